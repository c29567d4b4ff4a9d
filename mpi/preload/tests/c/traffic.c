/* Known traffic: numbers and lengths of messages by sender and receiver, and collective operations.
 *
 * Rank r sends to each rank d other than itself (d + 1) * (r + 1) messages of 8 << (d % 8) bytes, waits for all of its
 * receives, then takes part in five Allreduce, three Bcast and a Barrier, and sends itself two messages of 24 bytes.
 * The optional first argument makes rank 1 end by `_exit` or `abort` after that. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS_MAX = 64 };

int main(int argc, char **argv) {
    int rank, ranks;
    static char out[1024], in[1024];
    double sum = 0, mine;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    memset(out, 'a' + rank, sizeof out);
    for (int distance = 1; distance < ranks; distance++) {
        int to = (rank + distance) % ranks, from = (rank + ranks - distance) % ranks;
        int sends = (to + 1) * (rank + 1), receives = (rank + 1) * (from + 1);
        int sent = 8 << (to % 8), received = 8 << (rank % 8);
        while (sends > 0 || receives > 0) {
            MPI_Request requests[2 * ROUNDS_MAX];
            int active = 0;
            for (int i = 0; i < ROUNDS_MAX && receives > 0; i++, receives--)
                MPI_Irecv(in, received, MPI_CHAR, from, 5, MPI_COMM_WORLD, &requests[active++]);
            for (int i = 0; i < ROUNDS_MAX && sends > 0; i++, sends--)
                MPI_Isend(out, sent, MPI_CHAR, to, 5, MPI_COMM_WORLD, &requests[active++]);
            MPI_Waitall(active, requests, MPI_STATUSES_IGNORE);
        }
    }
    mine = rank;
    for (int i = 0; i < 5; i++) MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < 3; i++) MPI_Bcast(out, 100, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++)
        MPI_Sendrecv(out, 24, MPI_CHAR, rank, 6, in, 24, MPI_CHAR, rank, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 1 && rank == 1 && !strcmp(argv[1], "_exit")) _exit(9);
    if (argc > 1 && rank == 1 && !strcmp(argv[1], "abort")) MPI_Abort(MPI_COMM_WORLD, 7);
    MPI_Finalize();
    if (sum != ranks * (ranks - 1) / 2.0) return 1;
    return 0;
}
