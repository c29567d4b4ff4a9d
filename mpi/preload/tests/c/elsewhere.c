/* Communication with processes outside MPI_COMM_WORLD: spawned, accepted, connected and joined ones. */
#include "check.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A message and a sum with each process of the other group, then on a merged communicator. */
static void talk(MPI_Comm other) {
    int mine = 17, theirs = 0, there, all, n, sum;
    MPI_Comm merged, copy;
    MPI_Request requests[2];
    DO(MPI_Comm_remote_size(other, &there));
    for (int i = 0; i < there; i++) {
        DO(MPI_Irecv(&theirs, 1, MPI_INT, i, 4, other, &requests[0]));
        DO(MPI_Isend(&mine, 1, MPI_INT, i, 4, other, &requests[1]));
        DO(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        CHECK(theirs == 17);
    }
    DO(MPI_Intercomm_merge(other, 0, &merged));
    DO(MPI_Comm_dup(merged, &copy));
    DO(MPI_Comm_size(copy, &n));
    DO(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, copy));
    CHECK(sum == 17 * n);
    DO(MPI_Comm_rank(copy, &all));
    int next = (all + 1) % n, before = (all + n - 1) % n;
    DO(MPI_Sendrecv(&all, 1, MPI_INT, next, 5, &theirs, 1, MPI_INT, before, 5, copy, MPI_STATUS_IGNORE));
    CHECK(theirs == before);
    /* One process and the others: a group may have processes of two worlds, and the other one of this world alone. */
    for (int one = 0; one < n && n > 2; one++) {
        MPI_Comm own, between;
        DO(MPI_Comm_split(copy, all == one, all, &own));
        DO(MPI_Intercomm_create(own, 0, copy, all != one ? one : one == 0, 8, &between));
        DO(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, between));
        CHECK(sum == 17 * (all == one ? n - 1 : 1));
        DO(MPI_Comm_free(&between));
        DO(MPI_Comm_free(&own));
    }
    DO(MPI_Comm_free(&copy));
    DO(MPI_Comm_free(&merged));
}

/* Between the ranks themselves. */
static void around(void) {
    int got = -1;
    DO(MPI_Sendrecv(&rank, 1, MPI_INT, 1 - rank, 6, &got, 1, MPI_INT, 1 - rank, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(got == 1 - rank);
}

static void by_name(void) {
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm other;
    if (rank == 0) DO(MPI_Open_port(MPI_INFO_NULL, port));
    DO(MPI_Bcast(port, sizeof port, MPI_CHAR, 0, MPI_COMM_WORLD));
    if (rank == 0) DO(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other));
    else DO(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other));
    talk(other);
    DO(MPI_Comm_disconnect(&other));
    if (rank == 0) DO(MPI_Close_port(port));
}

/* Connects two processes by a socket: one listens at an address that both know. */
static int end_of_socket(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int number = getpid(), listening = -1, end;
    if (rank == 0) listening = socket(AF_UNIX, SOCK_STREAM, 0);
    DO(MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD));
    /* An abstract address, which begins with a zero byte and has no name in the file system. */
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "counterfoil-test-%d", number);
    if (rank == 0) CHECK(bind(listening, (struct sockaddr *)&address, sizeof address) == 0 && listen(listening, 1) == 0);
    DO(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) end = accept(listening, NULL, NULL);
    else {
        end = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(connect(end, (struct sockaddr *)&address, sizeof address) == 0);
    }
    if (rank == 0) close(listening);
    CHECK(end >= 0);
    return end;
}

static void by_socket(void) {
    MPI_Comm other;
    int socket = end_of_socket();
    DO(MPI_Comm_join(socket, &other));
    talk(other);
    DO(MPI_Comm_disconnect(&other));
    close(socket);
}

int main(int argc, char **argv) {
    MPI_Comm parent, other;
    int code[2];
    begin(&argc, &argv);
    DO(MPI_Comm_get_parent(&parent));
    if (parent != MPI_COMM_NULL) {
        talk(parent);
        DO(MPI_Comm_disconnect(&parent));
        DO(MPI_Finalize());
        return 0;
    }
    CHECK(ranks == 2);
    around();
    DO(MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, code));
    talk(other);
    DO(MPI_Comm_disconnect(&other));
    char *commands[] = {argv[0], argv[0]};
    int counts[] = {1, 1};
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    DO(MPI_Comm_spawn_multiple(2, commands, MPI_ARGVS_NULL, counts, infos, 0, MPI_COMM_WORLD, &other, code));
    talk(other);
    DO(MPI_Comm_disconnect(&other));
    around();
    by_name();
    by_socket();
    around();
    return end("elsewhere");
}
