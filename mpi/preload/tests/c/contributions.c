/* A collective operation whose end no later operation on its communicator proves, followed by many on all ranks.
 *
 * One MPI_Bcast on a communicator that is freed (`freed`), or not used again (`idle`, `bcast`); then 50,000 operations of 8 bytes on
 * MPI_COMM_WORLD: MPI_Allreduce, or for `bcast` MPI_Bcast of one rank. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank, ranks;
    char text[100] = "";
    double mine = 1, sum = 0;
    const char *what = argc > 1 ? argv[1] : "";
    MPI_Comm comm;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Bcast(text, 100, MPI_CHAR, 0, comm);
    if (!strcmp(what, "freed")) MPI_Comm_free(&comm);
    for (int i = 0; i < 50000; i++) {
        if (!strcmp(what, "bcast")) MPI_Bcast(&mine, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        else MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    if (rank == 0) printf("contributions: done\n");
    MPI_Finalize();
    return strcmp(what, "bcast") && sum != ranks;
}
