/* Every collective operation: blocking, immediate, persistent if the MPI has it, and in place if allowed. */
#include "check.h"

enum { COUNT = 7, RANKS_MAX = 64 };

static int mine[COUNT * RANKS_MAX], all[COUNT * RANKS_MAX], counts[RANKS_MAX], places[RANKS_MAX];
static MPI_Datatype types[RANKS_MAX];
static int bytes_at[RANKS_MAX];
static MPI_Comm comm;
static MPI_Request request;

/* Form of a call: blocking, immediate, or twice with a persistent request. */
enum { BLOCKING, IMMEDIATE, PERSISTENT, WAYS };

#ifdef HAVE_MPI_4
#define PERSISTENTLY(call)                                                                            \
    do {                                                                                              \
        DO(call);                                                                                     \
        for (int twice = 0; twice < 2; twice++) { DO(MPI_Start(&request)); DO(MPI_Wait(&request, MPI_STATUS_IGNORE)); } \
        DO(MPI_Request_free(&request));                                                               \
    } while (0)
#else
#define PERSISTENTLY(call) return
#endif

#define CALL(way, blocking, immediate, persistent)                                                    \
    switch (way) {                                                                                    \
    case BLOCKING: DO(blocking); break;                                                               \
    case IMMEDIATE: DO(immediate); DO(MPI_Wait(&request, MPI_STATUS_IGNORE)); break;                  \
    default: PERSISTENTLY(persistent);                                                                \
    }

/* Calls an operation in one of its three forms; NAME is in lower case after the I. */
#ifdef HAVE_MPI_4
#define ALL(way, NAME, small, ...)                                                                    \
    CALL(way, MPI_##NAME(__VA_ARGS__, comm), MPI_I##small(__VA_ARGS__, comm, &request),               \
         MPI_##NAME##_init(__VA_ARGS__, comm, MPI_INFO_NULL, &request))
#else
#define ALL(way, NAME, small, ...)                                                                    \
    CALL(way, MPI_##NAME(__VA_ARGS__, comm), MPI_I##small(__VA_ARGS__, comm, &request), MPI_SUCCESS)
#endif

static void reset(void) {
    fill(mine, COUNT * ranks, rank);
    memset(all, 0, sizeof all);
}

/* Checks the COUNT elements of `all` that came from each rank. */
static int gathered(void) {
    for (int i = 0; i < ranks; i++)
        for (int j = 0; j < COUNT; j++)
            if (all[i * COUNT + j] != value(i, j)) return 0;
    return 1;
}

/* Checks the part from each rank for this one. */
static int exchanged(void) {
    for (int i = 0; i < ranks; i++)
        for (int j = 0; j < COUNT; j++)
            if (all[i * COUNT + j] != value(i, rank * COUNT + j)) return 0;
    return 1;
}

static int sum(int upto, int place) {
    int sum = 0;
    for (int i = 0; i < upto; i++) sum += value(i, place);
    return sum;
}

static void rooted(int way, int root) {
    reset();
    if (rank == root) memcpy(all, mine, COUNT * sizeof(int));
    ALL(way, Bcast, bcast, all, COUNT, MPI_INT, root);
    CHECK(holds(all, COUNT, root));
    reset();
    ALL(way, Scatter, scatter, mine, COUNT, MPI_INT, all, COUNT, MPI_INT, root);
    for (int j = 0; j < COUNT; j++) CHECK(all[j] == value(root, rank * COUNT + j));
    reset();
    ALL(way, Scatterv, scatterv, mine, counts, places, MPI_INT, all, counts[rank], MPI_INT, root);
    for (int j = 0; j < counts[rank]; j++) CHECK(all[j] == value(root, places[rank] + j));
    reset();
    ALL(way, Gather, gather, mine, COUNT, MPI_INT, all, COUNT, MPI_INT, root);
    CHECK(rank != root || gathered());
    reset();
    ALL(way, Gatherv, gatherv, mine, counts[rank], MPI_INT, all, counts, places, MPI_INT, root);
    for (int i = 0; i < ranks && rank == root; i++)
        for (int j = 0; j < counts[i]; j++) CHECK(all[places[i] + j] == value(i, j));
    reset();
    ALL(way, Reduce, reduce, mine, all, COUNT, MPI_INT, MPI_SUM, root);
    for (int j = 0; j < COUNT && rank == root; j++) CHECK(all[j] == sum(ranks, j));
    if (way == PERSISTENT) return;
    reset();
    memcpy(all + rank * COUNT, mine, COUNT * sizeof(int));
    const void *given = rank == root ? MPI_IN_PLACE : mine;
    ALL(way, Gather, gather, given, COUNT, MPI_INT, all, COUNT, MPI_INT, root);
    CHECK(rank != root || gathered());
    reset();
    memcpy(all, mine, COUNT * sizeof(int));
    ALL(way, Reduce, reduce, given, all, COUNT, MPI_INT, MPI_SUM, root);
    for (int j = 0; j < COUNT && rank == root; j++) CHECK(all[j] == sum(ranks, j));
}

static void everybody(int way) {
    reset();
    ALL(way, Allgather, allgather, mine, COUNT, MPI_INT, all, COUNT, MPI_INT);
    CHECK(gathered());
    reset();
    ALL(way, Allgatherv, allgatherv, mine, counts[rank], MPI_INT, all, counts, places, MPI_INT);
    for (int i = 0; i < ranks; i++)
        for (int j = 0; j < counts[i]; j++) CHECK(all[places[i] + j] == value(i, j));
    reset();
    ALL(way, Alltoall, alltoall, mine, COUNT, MPI_INT, all, COUNT, MPI_INT);
    CHECK(exchanged());
    int each[RANKS_MAX], from[RANKS_MAX];
    for (int i = 0; i < ranks; i++) { each[i] = COUNT; from[i] = i * COUNT; }
    reset();
    ALL(way, Alltoallv, alltoallv, mine, each, from, MPI_INT, all, each, from, MPI_INT);
    CHECK(exchanged());
    reset();
    ALL(way, Alltoallw, alltoallw, mine, each, bytes_at, types, all, each, bytes_at, types);
    CHECK(exchanged());
    reset();
    ALL(way, Allreduce, allreduce, mine, all, COUNT, MPI_INT, MPI_SUM);
    for (int j = 0; j < COUNT; j++) CHECK(all[j] == sum(ranks, j));
}

static void scattered(int way) {
    int lengths[RANKS_MAX], first = 0;
    for (int i = 0; i < ranks; i++) {
        lengths[i] = 1 + i % 3;
        if (i < rank) first += lengths[i];
    }
    reset();
    ALL(way, Reduce_scatter, reduce_scatter, mine, all, lengths, MPI_INT, MPI_SUM);
    for (int j = 0; j < lengths[rank]; j++) CHECK(all[j] == sum(ranks, first + j));
    reset();
    ALL(way, Reduce_scatter_block, reduce_scatter_block, mine, all, COUNT, MPI_INT, MPI_SUM);
    for (int j = 0; j < COUNT; j++) CHECK(all[j] == sum(ranks, rank * COUNT + j));
    reset();
    ALL(way, Scan, scan, mine, all, COUNT, MPI_INT, MPI_SUM);
    for (int j = 0; j < COUNT; j++) CHECK(all[j] == sum(rank + 1, j));
    reset();
    ALL(way, Exscan, exscan, mine, all, COUNT, MPI_INT, MPI_SUM);
    for (int j = 0; j < COUNT && rank > 0; j++) CHECK(all[j] == sum(rank, j));
}

static void in_place(int way) {
    if (way == PERSISTENT) return;
    reset();
    memcpy(all + rank * COUNT, mine, COUNT * sizeof(int));
    ALL(way, Allgather, allgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, COUNT, MPI_INT);
    CHECK(gathered());
    reset();
    memcpy(all, mine, COUNT * ranks * sizeof(int));
    ALL(way, Alltoall, alltoall, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, COUNT, MPI_INT);
    CHECK(exchanged());
    reset();
    memcpy(all, mine, COUNT * sizeof(int));
    ALL(way, Allreduce, allreduce, MPI_IN_PLACE, all, COUNT, MPI_INT, MPI_SUM);
    for (int j = 0; j < COUNT; j++) CHECK(all[j] == sum(ranks, j));
    reset();
    memcpy(all, mine, COUNT * ranks * sizeof(int));
    ALL(way, Reduce_scatter_block, reduce_scatter_block, MPI_IN_PLACE, all, COUNT, MPI_INT, MPI_SUM);
    for (int j = 0; j < COUNT; j++) CHECK(all[j] == sum(ranks, rank * COUNT + j));
    reset();
    memcpy(all, mine, COUNT * sizeof(int));
    ALL(way, Scan, scan, MPI_IN_PLACE, all, COUNT, MPI_INT, MPI_SUM);
    for (int j = 0; j < COUNT; j++) CHECK(all[j] == sum(rank + 1, j));
}

static void barrier(int way) {
#ifdef HAVE_MPI_4
    CALL(way, MPI_Barrier(comm), MPI_Ibarrier(comm, &request), MPI_Barrier_init(comm, MPI_INFO_NULL, &request));
#else
    CALL(way, MPI_Barrier(comm), MPI_Ibarrier(comm, &request), MPI_SUCCESS);
#endif
}

/* Neighbours on a ring: the previous and the next rank. */
static void neighbours(int way) {
    int dims[] = {ranks}, periods[] = {1}, near[2];
    MPI_Comm ring, world = comm;
    DO(MPI_Cart_create(comm, 1, dims, periods, 0, &ring));
    DO(MPI_Cart_shift(ring, 0, 1, &near[0], &near[1]));
    comm = ring;
    int two[] = {COUNT, COUNT}, from[] = {0, COUNT};
    MPI_Aint bytes[] = {0, COUNT * sizeof(int)};
    MPI_Datatype both[] = {MPI_INT, MPI_INT};
    for (int which = 0; which < 5; which++) {
        reset();
        switch (which) {
        case 0: ALL(way, Neighbor_allgather, neighbor_allgather, mine, COUNT, MPI_INT, all, COUNT, MPI_INT); break;
        case 1: ALL(way, Neighbor_allgatherv, neighbor_allgatherv, mine, COUNT, MPI_INT, all, two, from, MPI_INT); break;
        case 2: ALL(way, Neighbor_alltoall, neighbor_alltoall, mine, COUNT, MPI_INT, all, COUNT, MPI_INT); break;
        case 3: ALL(way, Neighbor_alltoallv, neighbor_alltoallv, mine, two, from, MPI_INT, all, two, from, MPI_INT); break;
        case 4: ALL(way, Neighbor_alltoallw, neighbor_alltoallw, mine, two, bytes, both, all, two, bytes, both); break;
        }
        /* With two ranks, both neighbours are the same rank, and the MPI decides the order of its two messages. */
        for (int side = 0; side < 2 && ranks > 2; side++)
            for (int j = 0; j < COUNT; j++)
                CHECK(all[side * COUNT + j] == value(near[side], which < 2 ? j : (1 - side) * COUNT + j));
    }
    comm = world;
    DO(MPI_Comm_free(&ring));
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    CHECK(ranks <= RANKS_MAX);
    for (int i = 0; i < ranks; i++) {
        counts[i] = i % COUNT;
        places[i] = i * COUNT;
        bytes_at[i] = i * COUNT * (int)sizeof(int);
        types[i] = MPI_INT;
    }
    DO(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int way = BLOCKING; way < WAYS; way++) {
        for (int root = 0; root < ranks; root++) rooted(way, root);
        everybody(way);
        scattered(way);
        in_place(way);
        barrier(way);
        neighbours(way);
    }
    /* Many operations that don't synchronise. */
    for (int i = 0; i < 500; i++) {
        int number = rank == 0 ? value(0, i) : 0;
        DO(MPI_Bcast(&number, 1, MPI_INT, 0, comm));
        CHECK(number == value(0, i));
    }
    DO(MPI_Comm_free(&comm));
    return end("collectives");
}
