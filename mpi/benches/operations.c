/* Times of MPI's operations between all ranks: a line of JSON each, with microseconds for one operation. A ping-pong counts one way. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1 << 20, WARM_UP = 10 };

static int rank, ranks;
static char *in, *out;

static void ping_pong(int bytes) {
    if (rank > 1) return;
    if (rank == 0) MPI_Send(in, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(out, bytes, MPI_BYTE, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(in, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
}

static void barrier(int bytes) {
    (void)bytes;
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The root changes, so that no rank runs ahead of the others. */
static void bcast(int bytes) {
    static int root;
    MPI_Bcast(in, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
    root = (root + 1) % ranks;
}

static void allreduce(int bytes) { MPI_Allreduce(in, out, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }

static void measure(const char *name, void (*operation)(int), int bytes, int rounds, int one_way) {
    for (int i = 0; i < WARM_UP; i++) operation(bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    for (int i = 0; i < rounds; i++) operation(bytes);
    double us = (MPI_Wtime() - begun) * 1e6 / rounds / (one_way ? 2 : 1);
    if (rank == 0) printf("{\"operation\": \"%s\", \"bytes\": %d, \"us\": %.4f}\n", name, bytes, us);
}

/* Rounds in which some tens of megabytes are sent. */
static int rounds_of(int bytes) {
    int rounds = (48 << 20) / (bytes + 64);
    return rounds < 48 ? 48 : rounds > 20000 ? 20000 : rounds;
}

int main(int argc, char **argv) {
    static const int sizes[] = {8, 1 << 10, 64 << 10, LONGEST};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    in = malloc(LONGEST);
    out = malloc(LONGEST);
    memset(in, 0, LONGEST);
    memset(out, 0, LONGEST);
    measure("barrier", barrier, 0, 20000, 0);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int bytes = sizes[i], rounds = rounds_of(bytes);
        measure("ping-pong", ping_pong, bytes, rounds, 1);
        measure("broadcast", bcast, bytes, rounds, 0);
        measure("allreduce", allreduce, bytes, rounds, 0);
    }
    MPI_Finalize();
    return 0;
}
