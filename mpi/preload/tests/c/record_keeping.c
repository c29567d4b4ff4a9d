/* Calls whose records or counts are easily wrong. The first argument names the case. */
#include "check.h"
#include <unistd.h>

/* MPI_Allgather on an intercommunicator where only the even ranks contribute, more often than contributions stay unreleased. */
static void one_group_contributes(void) {
    MPI_Comm half, inter;
    int there, got[64];
    DO(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half));
    DO(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &inter));
    DO(MPI_Comm_remote_size(inter, &there));
    for (int i = 0; i < 70; i++) {
        DO(MPI_Allgather(&rank, rank % 2 ? 0 : 1, MPI_INT, got, rank % 2 ? 1 : 0, MPI_INT, inter));
        for (int from = 0; rank % 2 && from < there; from++) CHECK(got[from] == 2 * from);
    }
    DO(MPI_Comm_free(&inter));
    DO(MPI_Comm_free(&half));
}

#ifdef HAVE_MPI_4
/* Persistent in-place reductions that are started together: contributions are in the buffers only until the start. */
enum { STARTED = 23, ROUNDS = 50 };

static void persistent_in_place(void) {
    static int sums[STARTED];
    MPI_Request requests[STARTED];
    for (int i = 0; i < STARTED; i++)
        DO(MPI_Allreduce_init(MPI_IN_PLACE, &sums[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[i]));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < STARTED; i++) sums[i] = 1;
        /* One rank comes last: some of its operations can end while it starts the others. */
        if (rank == round % ranks) usleep(1000);
        DO(MPI_Startall(STARTED, requests));
        DO(MPI_Waitall(STARTED, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < STARTED; i++) CHECK(sums[i] == ranks);
    }
    for (int i = 0; i < STARTED; i++) DO(MPI_Request_free(&requests[i]));
}
#endif

/* Sends that the library doesn't see, as Open MPI's Fortran bindings make them, before others on the same stream. */
static void unseen_sends(void) {
    int number = 0, unseen = 600, seen = 200;
    if (rank == 0) {
        for (int i = 0; i < unseen; i++) DO(PMPI_Send(&number, 1, MPI_INT, 1, 1, MPI_COMM_WORLD));
        for (int i = 0; i < seen; i++) DO(MPI_Send(&number, 1, MPI_INT, 1, 1, MPI_COMM_WORLD));
    } else if (rank == 1) {
        for (int i = 0; i < unseen + seen; i++)
            DO(MPI_Recv(&number, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
}

/* A message that is sent while the program has turned logging off, and levels above 1, which log as 1 does. */
static void turned_off(void) {
    int number = 0;
    for (int level = 0; level <= 3; level++) {
        DO(MPI_Pcontrol(level));
        DO(MPI_Sendrecv_replace(&number, 1, MPI_INT, (rank + 1) % ranks, 1, (rank + ranks - 1) % ranks, 1, MPI_COMM_WORLD,
                                MPI_STATUS_IGNORE));
    }
}

/* A collective call that MPI refuses on one rank: no operation begins there. */
static void refused_collective(void) {
    int mine = 1, sum;
    DO(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    if (rank == 1) {
        CHECK(MPI_Bcast(&mine, 1, MPI_INT, ranks, MPI_COMM_WORLD) != MPI_SUCCESS);
        CHECK(MPI_Allreduce(&mine, &sum, -1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS);
    }
    DO(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == ranks);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "one-group")) one_group_contributes();
#ifdef HAVE_MPI_4
    else if (!strcmp(what, "persistent")) persistent_in_place();
#endif
    else if (!strcmp(what, "unseen")) unseen_sends();
    else if (!strcmp(what, "turned-off")) turned_off();
    else if (!strcmp(what, "refused")) refused_collective();
    else CHECK(!"a case");
    return end("record_keeping");
}
