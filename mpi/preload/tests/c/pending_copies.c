/* Several copies of a communicator are pending (MPI_Comm_idup), between sends of rank 0. In Open MPI 5.0.11 all ranks wait for each other for
 * ever if one makes progress between two of them, with an MPI_Iprobe for example, without any library. */
#include "check.h"

enum { TURNS = 100, COPIES = 4, REQUESTS_MAX = 64 };

int main(int argc, char **argv) {
    MPI_Comm parent, copies[COPIES];
    MPI_Request requests[REQUESTS_MAX];
    begin(&argc, &argv);
    CHECK(ranks * COPIES <= REQUESTS_MAX);
    for (int turn = 0; turn < TURNS; turn++) {
        int pending = 0, in[COPIES], out = value(0, turn);
        DO(MPI_Comm_dup(MPI_COMM_WORLD, &parent));
        for (int i = 0; i < COPIES; i++) {
            for (int to = 1; rank == 0 && to < ranks; to++)
                DO(MPI_Isend(&out, 1, MPI_INT, to, 0, parent, &requests[pending++]));
            DO(MPI_Comm_idup(parent, &copies[i], &requests[pending++]));
            if (rank > 0) DO(MPI_Irecv(&in[i], 1, MPI_INT, 0, 0, parent, &requests[pending++]));
        }
        DO(MPI_Waitall(pending, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < COPIES; i++) {
            CHECK(rank == 0 || in[i] == out);
            DO(MPI_Comm_free(&copies[i]));
        }
        DO(MPI_Comm_free(&parent));
    }
    return end("pending_copies");
}
