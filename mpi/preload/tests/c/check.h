/* Common parts of the test programs: checks that print their line, and values that differ by rank and index. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each file of a program has these; the linker makes one of them. */
__attribute__((weak)) int rank, ranks;

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: rank %d: failed: %s\n", __FILE__, __LINE__, rank, #condition); \
            MPI_Abort(MPI_COMM_WORLD, 3);                                                       \
        }                                                                                       \
    } while (0)

#define DO(call) CHECK((call) == MPI_SUCCESS)

/* A value that identifies its rank and index. */
static inline int value(int from, int index) { return from * 100000 + index; }

static inline void fill(int *numbers, int count, int from) {
    for (int i = 0; i < count; i++) numbers[i] = value(from, i);
}

static inline int holds(const int *numbers, int count, int from) {
    for (int i = 0; i < count; i++)
        if (numbers[i] != value(from, i)) return 0;
    return 1;
}

static inline void know_ranks(void) {
    DO(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    DO(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
}

static inline void begin(int *argc, char ***argv) {
    DO(MPI_Init(argc, argv));
    know_ranks();
}

/* Begins at a level of thread support; returns the one that MPI has given. */
static inline int begin_at(int level, int *argc, char ***argv) {
    int provided;
    DO(MPI_Init_thread(argc, argv, level, &provided));
    know_ranks();
    return provided;
}

static inline int end(const char *what) {
    DO(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) printf("%s: ok on %d ranks\n", what, ranks);
    DO(MPI_Finalize());
    return 0;
}

#endif
