/* The first receive of a stream is pending while later ones complete: rank 0 prints the number of unacknowledged messages in its log,
 * before and after the first receive completes. Two more cases are described below. */
#include "check.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 640, ECHOES = 320 };

/* Gives the library opportunities to take in acknowledgements. */
static void make_progress(void) {
    for (int i = 0; i < ECHOES; i++) {
        int got = -1;
        DO(MPI_Sendrecv(&i, 1, MPI_INT, 0, 9, &got, 1, MPI_INT, 0, 9, MPI_COMM_SELF, MPI_STATUS_IGNORE));
        CHECK(got == i);
        usleep(1000);
    }
}

/* Reads the library's live counters (profile/src/live.rs) and prints the number of unacknowledged records. */
static void print_unacknowledged(const char *way, const char *when) {
    enum { RANKS = 2, CONTRIBUTIONS = 4, ACKNOWLEDGED = 8, FRONT = 16 };
    const char *dir = getenv("COUNTERFOIL_SUMMARY_DIR");
    char path[4096];
    uint64_t words[FRONT + 8] = {0};
    if (!dir) return;
    snprintf(path, sizeof path, "%s/rank-0.live", dir);
    FILE *file = fopen(path, "r");
    if (!file) return;
    CHECK(fread(words, sizeof *words, FRONT + 8, file) == FRONT + 8);
    fclose(file);
    CHECK(!memcmp(words, "cflive01", 8) && words[RANKS] == 2);
    fprintf(stderr, "%s, %s: %d\n", way, when,
            (int)(words[FRONT] + words[FRONT + 2] + words[CONTRIBUTIONS] - words[ACKNOWLEDGED]));
}

static void sends(const char *way, int tag) {
    int go;
    for (int i = 0; i <= MANY; i++) DO(MPI_Send(&i, 1, MPI_INT, 1, tag, MPI_COMM_WORLD));
    DO(MPI_Recv(&go, 1, MPI_INT, 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    make_progress();
    print_unacknowledged(way, "before");
    DO(MPI_Send(&go, 1, MPI_INT, 1, tag + 10, MPI_COMM_WORLD));
    DO(MPI_Recv(&go, 1, MPI_INT, 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    make_progress();
    print_unacknowledged(way, "after");
    DO(MPI_Barrier(MPI_COMM_WORLD));
}

static void receives(int tag) {
    static int in[MANY + 1];
    static MPI_Request requests[MANY + 1];
    MPI_Message message = MPI_MESSAGE_NULL;
    int go = 0;
    if (tag == 3) DO(MPI_Mprobe(0, tag, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
    else DO(MPI_Irecv(&in[0], 1, MPI_INT, tag == 2 ? MPI_ANY_SOURCE : 0, tag, MPI_COMM_WORLD, &requests[0]));
    for (int i = 1; i <= MANY; i++) DO(MPI_Irecv(&in[i], 1, MPI_INT, 0, tag, MPI_COMM_WORLD, &requests[i]));
    DO(MPI_Waitall(MANY, &requests[1], MPI_STATUSES_IGNORE));
    DO(MPI_Send(&go, 1, MPI_INT, 0, tag, MPI_COMM_WORLD));
    DO(MPI_Recv(&go, 1, MPI_INT, 0, tag + 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (tag == 3) DO(MPI_Mrecv(&in[0], 1, MPI_INT, &message, MPI_STATUS_IGNORE));
    else DO(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    for (int i = 0; i <= MANY; i++) CHECK(in[i] == i);
    DO(MPI_Send(&go, 1, MPI_INT, 0, tag, MPI_COMM_WORLD));
    DO(MPI_Barrier(MPI_COMM_WORLD));
}

/* Messages of a datatype whose size exceeds an int also count in the stream; these have no elements. 441 of the messages after them are
 * not received at first. */
static void longer_than_an_int(void) {
    enum { NONE = 600, TAKEN = 800 };
    int one = 1, go = 0;
    MPI_Datatype huge;
    DO(MPI_Type_contiguous(1 << 29, MPI_DOUBLE, &huge));
    DO(MPI_Type_commit(&huge));
    if (rank == 0) {
        for (int i = 0; i < NONE; i++) DO(MPI_Send(&one, 0, huge, 1, 4, MPI_COMM_WORLD));
        for (int i = 0; i <= MANY; i++) DO(MPI_Send(&one, 1, MPI_INT, 1, 4, MPI_COMM_WORLD));
        DO(MPI_Send(&go, 1, MPI_INT, 1, 14, MPI_COMM_WORLD));
        DO(MPI_Recv(&go, 1, MPI_INT, 1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        make_progress();
        print_unacknowledged("huge", "before");
        DO(MPI_Send(&go, 1, MPI_INT, 1, 14, MPI_COMM_WORLD));
    } else {
        DO(MPI_Recv(&go, 1, MPI_INT, 0, 14, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int i = 0; i < TAKEN; i++) DO(MPI_Recv(&one, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        DO(MPI_Send(&go, 1, MPI_INT, 0, 4, MPI_COMM_WORLD));
        DO(MPI_Recv(&go, 1, MPI_INT, 0, 14, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int i = TAKEN; i < NONE + MANY + 1; i++) {
            DO(MPI_Recv(&one, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
    }
    DO(MPI_Type_free(&huge));
    DO(MPI_Barrier(MPI_COMM_WORLD));
}

/* Rank 0 only waits while rank 1 receives; it releases what rank 1 acknowledges during the wait. */
static void waits(void) {
    enum { MORE = 20000 };
    static int what[MORE];
    static MPI_Request requests[MORE];
    int go = 0;
    if (rank == 0) {
        for (int i = 0; i < MORE; i++) DO(MPI_Isend(&what[i], 1, MPI_INT, 1, 5, MPI_COMM_WORLD, &requests[i]));
        DO(MPI_Waitall(MORE, requests, MPI_STATUSES_IGNORE));
        DO(MPI_Recv(&go, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        print_unacknowledged("waiting", "after");
    } else {
        usleep(300000);
        for (int i = 0; i < MORE; i++) DO(MPI_Recv(&what[i], 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        usleep(300000);
        DO(MPI_Send(&go, 1, MPI_INT, 0, 5, MPI_COMM_WORLD));
    }
    DO(MPI_Barrier(MPI_COMM_WORLD));
}

int main(int argc, char **argv) {
    const char *ways[] = {"", "named", "wildcard", "matched"};
    begin(&argc, &argv);
    CHECK(ranks == 2);
    for (int tag = 1; tag <= 3; tag++) {
        if (rank == 0) sends(ways[tag], tag);
        else receives(tag);
    }
    longer_than_an_int();
    waits();
    return end("acknowledged");
}
