/* Eigenvalue of a large sparse matrix by inverse iteration, each step solved by conjugate gradients: a reimplementation of the NAS
 * benchmark CG with its sizes and message pattern: `cg [CLASS]`, A (14,000 rows, 15 steps of 25 iterations) or B (75,000 rows, 75 steps).
 *
 * Each rank has the columns of its part of the vectors. As in NAS CG, products are summed by recursive halving and dot products by
 * recursive doubling, with Irecv, Send and Wait. The number of ranks is a power of two that divides the number of rows.
 *
 * The matrix is a sum of outer products of random sparse vectors, with weights from 1 down to 0.1, less a shift on the diagonal.
 * Prints the time of the iterations and the relative residual of the last solution, which is checked.
 */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { NONZEROS_MAX = 13, ITERATIONS = 25 };
static const double CONDITION = 0.1, RESIDUAL_MAX = 1e-8;

/* Size of a class. */
typedef struct {
    int rows, nonzeros, steps;
    double shift;
} Class;

static const Class class_a = {14000, 11, 15, 20.0}, class_b = {75000, 13, 75, 60.0};
static Class size;

static int rank, ranks, own, first;
static int *begins, *columns;
static double *values, *sum, *incoming;

static uint64_t state = 0x9e3779b97f4a7c15;

static uint64_t next(void) {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* Generates the entries of the matrix in this rank's columns; every rank draws the same vectors. Counts them, or stores them if `at` is
 * given. */
static void entries(int *at) {
    state = 314159265;
    for (int i = 0; i < size.rows; i++) {
        int place[NONZEROS_MAX + 1];
        double element[NONZEROS_MAX + 1];
        for (int k = 0; k < size.nonzeros; k++) {
            place[k] = (int)(next() % size.rows);
            element[k] = (double)(next() >> 11) / 9007199254740992.0;
        }
        place[size.nonzeros] = i;
        element[size.nonzeros] = 0.5;
        double weight = pow(CONDITION, (double)i / size.rows);
        for (int r = 0; r <= size.nonzeros; r++)
            for (int c = 0; c <= size.nonzeros; c++) {
                if (place[c] < first || place[c] >= first + own) continue;
                if (at) {
                    int here = at[place[r]]++;
                    columns[here] = place[c] - first;
                    values[here] = weight * element[r] * element[c] * 0.25;
                } else {
                    begins[place[r] + 1]++;
                }
            }
        if (i < first || i >= first + own) continue;
        if (at) {
            int here = at[i]++;
            columns[here] = i - first;
            values[here] = CONDITION - size.shift;
        } else {
            begins[i + 1]++;
        }
    }
}

static void make_matrix(void) {
    begins = calloc(size.rows + 1, sizeof *begins);
    int *at = malloc(size.rows * sizeof *at);
    entries(NULL);
    for (int i = 0; i < size.rows; i++) {
        begins[i + 1] += begins[i];
        at[i] = begins[i];
    }
    columns = malloc((size_t)begins[size.rows] * sizeof *columns);
    values = malloc((size_t)begins[size.rows] * sizeof *values);
    entries(at);
    free(at);
}

static double total(double mine) {
    for (int step = 1; step < ranks; step *= 2) {
        double other;
        MPI_Request request;
        MPI_Irecv(&other, 1, MPI_DOUBLE, rank ^ step, 1, MPI_COMM_WORLD, &request);
        MPI_Send(&mine, 1, MPI_DOUBLE, rank ^ step, 1, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        mine = rank & step ? other + mine : mine + other;
    }
    return mine;
}

static double dot(const double *a, const double *b) {
    double mine = 0;
    for (int i = 0; i < own; i++) mine += a[i] * b[i];
    return total(mine);
}

/* Computes to = A from, of which this rank has its part. */
static void multiply(const double *from, double *to) {
    for (int i = 0; i < size.rows; i++) {
        double of_row = 0;
        for (int k = begins[i]; k < begins[i + 1]; k++) of_row += values[k] * from[columns[k]];
        sum[i] = of_row;
    }
    int low = 0, length = size.rows;
    for (int step = ranks / 2; step > 0; step /= 2) {
        length /= 2;
        int keep = rank & step ? low + length : low, give = rank & step ? low : low + length;
        MPI_Request request;
        MPI_Irecv(incoming, length, MPI_DOUBLE, rank ^ step, 2, MPI_COMM_WORLD, &request);
        MPI_Send(sum + give, length, MPI_DOUBLE, rank ^ step, 2, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < length; i++) sum[keep + i] += incoming[i];
        low = keep;
    }
    for (int i = 0; i < own; i++) to[i] = sum[low + i];
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    size = argc > 1 && argv[1][0] == 'B' ? class_b : class_a;
    if (ranks & (ranks - 1) || size.rows % ranks) {
        if (rank == 0) fprintf(stderr, "cg: the number of ranks has to be a power of two that divides %d\n", size.rows);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    own = size.rows / ranks;
    first = rank * own;
    make_matrix();
    sum = malloc(size.rows * sizeof *sum);
    incoming = malloc(size.rows * sizeof *incoming);
    double *x = malloc(own * sizeof *x), *z = malloc(own * sizeof *z), *r = malloc(own * sizeof *r);
    double *p = malloc(own * sizeof *p), *q = malloc(own * sizeof *q);
    for (int i = 0; i < own; i++) x[i] = 1;
    double zeta = 0, residual = 0, begun = 0;
    /* The first step warms up the caches. */
    for (int step = 0; step <= size.steps; step++) {
        if (step == 1) {
            MPI_Barrier(MPI_COMM_WORLD);
            begun = MPI_Wtime();
        }
        for (int i = 0; i < own; i++) z[i] = 0, r[i] = p[i] = x[i];
        double rho = dot(r, r);
        for (int iteration = 0; iteration < ITERATIONS; iteration++) {
            multiply(p, q);
            double alpha = rho / dot(p, q), before = rho;
            for (int i = 0; i < own; i++) z[i] += alpha * p[i], r[i] -= alpha * q[i];
            rho = dot(r, r);
            for (int i = 0; i < own; i++) p[i] = r[i] + rho / before * p[i];
        }
        multiply(z, q);
        for (int i = 0; i < own; i++) r[i] = x[i] - q[i];
        residual = sqrt(dot(r, r) / dot(x, x));
        zeta = size.shift + 1 / dot(x, z);
        double length = 1 / sqrt(dot(z, z));
        for (int i = 0; i < own; i++) x[i] = z[i] * length;
    }
    double seconds = MPI_Wtime() - begun;
    int is_right = residual < RESIDUAL_MAX;
    if (rank == 0)
        printf("{\"seconds\": %.6f, \"zeta\": %.12f, \"residual\": %.3e, \"is_right\": %s}\n", seconds, zeta, residual,
               is_right ? "true" : "false");
    MPI_Finalize();
    return is_right ? 0 : 1;
}
