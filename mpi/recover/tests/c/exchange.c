/* Steps of a ring: BYTES to the next rank, two numbers from any rank, and WORK passes over what has arrived. With a fifth
   argument, the longest step goes to standard error. */
#include "check.h"
#include <stdint.h>

int main(int argc, char **argv) {
    begin(&argc, &argv);
    long steps = atol(argv[1]), bytes = atol(argv[2]), work = atol(argv[3]), len = bytes / sizeof(uint64_t);
    int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    uint64_t *mine = malloc(bytes), *theirs = malloc(bytes), sum = rank, all;
    double longest = 0;
    for (long i = 0; i < len; i++) mine[i] = i * 0x9E3779B97F4A7C15u + rank;
    for (long step = 0; step < steps; step++) {
        double begun = MPI_Wtime();
        DO(MPI_Sendrecv(mine, bytes, MPI_BYTE, next, 0, theirs, bytes, MPI_BYTE, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int i = 0; i < 2; i++) {
            uint64_t in;
            MPI_Request request;
            MPI_Status status;
            DO(MPI_Isend(&sum, 1, MPI_UINT64_T, next, 1, MPI_COMM_WORLD, &request));
            DO(MPI_Recv(&in, 1, MPI_UINT64_T, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &status));
            DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
            sum = sum * 31 + in + status.MPI_SOURCE;
        }
        for (long pass = 0; pass < work; pass++)
            for (long i = 0; i < len; i++) mine[i] = mine[i] * 6364136223846793005u + theirs[(i * 7 + pass) % len];
        sum ^= mine[step % len];
        double time = MPI_Wtime() - begun;
        if (time > longest) longest = time;
        if (rank == 0 && (step + 1) % (steps / 10 + 1) == 0) printf("step %ld: %016llx\n", step + 1, (unsigned long long)sum);
    }
    DO(MPI_Reduce(&sum, &all, 1, MPI_UINT64_T, MPI_BXOR, 0, MPI_COMM_WORLD));
    if (rank == 0) printf("all: %016llx\n", (unsigned long long)all);
    if (argc > 4) fprintf(stderr, "rank %d: longest step %.1f ms\n", rank, longest * 1e3);
    DO(MPI_Finalize());
    return 0;
}
