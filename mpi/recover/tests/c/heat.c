/* `heat CELLS STEPS EVERY`: a rod whose ends are hot and cold, in parts, with a checkpoint each EVERY steps. Prints a line now and then, and
 * the sum at the end; says how many steps this process has made. */
#include "check.h"
#include "counterfoil_checkpoint.h"

int main(int argc, char **argv) {
    CHECK(argc == 4);
    int cells = atoi(argv[1]), steps = atoi(argv[2]), every = atoi(argv[3]), step = 0, made = 0;
    DO(MPI_Init(&argc, &argv));
    know_ranks();
    /* Set-up sends messages, too. */
    MPI_Comm rod;
    int dims = ranks, periodic = 0, left, right;
    DO(MPI_Cart_create(MPI_COMM_WORLD, 1, &dims, &periodic, 0, &rod));
    DO(MPI_Cart_shift(rod, 0, 1, &left, &right));
    DO(MPI_Bcast(&cells, 1, MPI_INT, 0, rod));
    double *now = calloc(cells + 2, sizeof *now), *next = calloc(cells + 2, sizeof *next);
    for (int i = 1; i <= cells; i++) now[i] = (rank * 31 + i * 7) % 100;
    counterfoil_protect(0, &step, sizeof step);
    counterfoil_protect(1, now, (cells + 2) * sizeof *now);
    int goes_on = counterfoil_restarted();
    for (; step < steps; step++, made++) {
        if (every && step % every == 0) CHECK(counterfoil_checkpoint() == 0);
        if (left == MPI_PROC_NULL) now[0] = 100;
        if (right == MPI_PROC_NULL) now[cells + 1] = 0;
        MPI_Request requests[4];
        DO(MPI_Irecv(&now[0], 1, MPI_DOUBLE, left, 1, rod, &requests[0]));
        DO(MPI_Irecv(&now[cells + 1], 1, MPI_DOUBLE, right, 2, rod, &requests[1]));
        DO(MPI_Isend(&now[cells], 1, MPI_DOUBLE, right, 1, rod, &requests[2]));
        DO(MPI_Isend(&now[1], 1, MPI_DOUBLE, left, 2, rod, &requests[3]));
        DO(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
        for (int i = 1; i <= cells; i++) next[i] = now[i] + 0.25 * (now[i - 1] - 2 * now[i] + now[i + 1]);
        memcpy(now + 1, next + 1, cells * sizeof *now);
        if (step % 50 == 49) {
            double sum = 0, all;
            for (int i = 1; i <= cells; i++) sum += now[i];
            DO(MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, rod));
            if (rank == 0) printf("step %d: %.17g\n", step + 1, all);
        }
    }
    double sum = 0, all;
    for (int i = 1; i <= cells; i++) sum += now[i];
    DO(MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, rod));
    if (rank == 0) printf("heat: %.17g after %d steps\n", all, steps);
    fprintf(stderr, "heat: rank %d made %d of %d steps, restarted %d\n", rank, made, steps, goes_on);
    DO(MPI_Comm_free(&rod));
    DO(MPI_Finalize());
    return 0;
}
