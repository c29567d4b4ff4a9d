/* A ring: each step is a send and a receive. The argument names what rank 1 does otherwise in the third step. */
#include "check.h"

enum { STEPS = 20 };

int main(int argc, char **argv) {
    begin(&argc, &argv);
    const char *change = argc > 1 && rank == 1 ? argv[1] : "";
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    long sent[3] = {rank, 0, 0}, received[3];
    for (int step = 0; step < STEPS; step++) {
        int is_changed = step == 2, tag = 0, to = next, length = 3;
        if (is_changed && !strcmp(change, "abort")) MPI_Abort(MPI_COMM_WORLD, 3);
        if (step == STEPS - 1 && !strcmp(change, "last")) to = MPI_PROC_NULL;
        if (step == 3 && !strcmp(change, "short")) break;
        if (is_changed && !strcmp(change, "byte")) sent[1] ^= 256;
        if (is_changed && !strcmp(change, "tag")) tag = 9;
        if (is_changed && !strcmp(change, "swap")) to = previous;
        if (is_changed && !strcmp(change, "length")) length = 2;
        DO(MPI_Send(sent, length, MPI_LONG, to, tag, MPI_COMM_WORLD));
        DO(MPI_Recv(received, 3, MPI_LONG, previous, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        sent[1] = received[1] + rank;
        sent[2] = received[0] * step;
        printf("step %d of %d: %ld %ld\n", step, rank, sent[1], sent[2]);
    }
    if (!strcmp(change, "more")) DO(MPI_Barrier(MPI_COMM_SELF));
    if (!strcmp(change, "wait")) DO(MPI_Recv(received, 3, MPI_LONG, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    DO(MPI_Finalize());
    return 0;
}
