/* What a program may free or overwrite while an operation lives: datatypes, reduction operations, and the arrays of its call. */
#include "check.h"

enum { ROUNDS = 3 };

static MPI_Datatype pair(void) {
    MPI_Datatype type;
    DO(MPI_Type_vector(2, 1, 2, MPI_INT, &type));
    DO(MPI_Type_commit(&type));
    return type;
}

/* Copies of an attribute, which are the program's own: MPI makes one where a datatype is duplicated. */
static int attributes_copied;

static int copy_attribute(MPI_Datatype type, int key, void *state, void *from, void *to, int *is_set) {
    (void)type, (void)key, (void)state;
    attributes_copied++;
    *(void **)to = from;
    *is_set = 1;
    return MPI_SUCCESS;
}

static void messages(void) {
    int out[3], in[3] = {0}, next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, key;
    MPI_Datatype type = pair(), other;
    DO(MPI_Type_create_keyval(copy_attribute, MPI_TYPE_NULL_DELETE_FN, &key, NULL));
    DO(MPI_Type_set_attr(type, key, out));
    MPI_Request requests[2];
    DO(MPI_Send_init(out, 1, type, next, 1, MPI_COMM_WORLD, &requests[0]));
    DO(MPI_Recv_init(in, 1, type, before, 1, MPI_COMM_WORLD, &requests[1]));
    DO(MPI_Type_free(&type));
    for (int round = 0; round < ROUNDS; round++) {
        /* Another datatype may have the handle now. */
        DO(MPI_Type_contiguous(1000, MPI_INT, &other));
        DO(MPI_Type_commit(&other));
        fill(out, 3, rank + round);
        DO(MPI_Startall(2, requests));
        DO(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        CHECK(in[0] == value(before + round, 0) && in[1] == 0 && in[2] == value(before + round, 2));
        DO(MPI_Type_free(&other));
    }
    for (int i = 0; i < 2; i++) DO(MPI_Request_free(&requests[i]));
    CHECK(attributes_copied == 0);
    DO(MPI_Type_free_keyval(&key));
}

static void add(void *in, void *inout, int *count, MPI_Datatype *type) {
    int bytes, *from = in, *into = inout;
    MPI_Aint lower, extent;
    DO(MPI_Type_size(*type, &bytes));
    DO(MPI_Type_get_extent(*type, &lower, &extent));
    int numbers = bytes / (int)sizeof(int), stride = (int)(extent / (MPI_Aint)sizeof(int));
    for (int i = 0; i < *count; i++)
        for (int k = 0; k < numbers; k++) into[i * stride + k * (stride - 1)] += from[i * stride + k * (stride - 1)];
}

static void never(void *in, void *inout, int *count, MPI_Datatype *type) {
    (void)in, (void)inout, (void)count, (void)type;
    CHECK(!"an operation that no call was given");
}

static void reductions(void) {
    enum { OTHERS = 20 };
    for (int round = 0; round < ROUNDS; round++) {
        int out[3], in[3] = {0}, sum = 0, expected[3] = {0};
        MPI_Datatype type = pair();
        MPI_Op op, others[OTHERS];
        MPI_Request requests[2];
        fill(out, 3, rank + round);
        DO(MPI_Op_create(add, 0, &op));
        DO(MPI_Iallreduce(out, in, 1, type, op, MPI_COMM_WORLD, &requests[0]));
        DO(MPI_Iallreduce(&rank, &sum, 1, MPI_INT, op, MPI_COMM_WORLD, &requests[1]));
        DO(MPI_Op_free(&op));
        CHECK(op == MPI_OP_NULL);
        DO(MPI_Type_free(&type));
        /* Another operation may have the handle now. */
        for (int i = 0; i < OTHERS; i++) DO(MPI_Op_create(never, 0, &others[i]));
        DO(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < OTHERS; i++) DO(MPI_Op_free(&others[i]));
        for (int i = 0; i < ranks; i++) (expected[0] += value(i + round, 0), expected[2] += value(i + round, 2));
        CHECK(in[0] == expected[0] && in[1] == 0 && in[2] == expected[2]);
        CHECK(sum == ranks * (ranks - 1) / 2);
    }
}

#ifdef HAVE_MPI_4
static int *copied(const int *numbers, int count) {
    int *copy = malloc(count * sizeof *copy);
    memcpy(copy, numbers, count * sizeof *copy);
    return copy;
}

static void discard(int *numbers, int count) {
    for (int i = 0; i < count; i++) numbers[i] = 1 << 28;
    free(numbers);
}

static void collectives(void) {
    enum { MAX = 8 };
    int out[3 * MAX], in[3 * MAX], ones[MAX], firsts[MAX], bytes[MAX];
    MPI_Datatype type = pair(), types[MAX];
    MPI_Request requests[4];
    CHECK(ranks <= MAX);
    for (int i = 0; i < ranks; i++) (ones[i] = 1, firsts[i] = i, bytes[i] = 3 * i * (int)sizeof(int), types[i] = type);
    int *counts = copied(ones, ranks), *displs = copied(firsts, ranks), *places = copied(bytes, ranks);
    MPI_Datatype *kinds = malloc(ranks * sizeof *kinds);
    memcpy(kinds, types, ranks * sizeof *kinds);
    DO(MPI_Alltoallv_init(out, counts, displs, MPI_INT, in, counts, displs, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
    DO(MPI_Scatterv_init(out, counts, displs, MPI_INT, in, 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]));
    DO(MPI_Reduce_scatter_init(out, in, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[2]));
    DO(MPI_Alltoallw_init(out, counts, places, kinds, in, counts, places, kinds, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[3]));
#ifndef ARRAYS_STAY
    discard(counts, ranks);
    discard(displs, ranks);
    discard(places, ranks);
    memset(kinds, 0xff, ranks * sizeof *kinds);
    free(kinds);
#endif
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 4; i++) {
            fill(out, 3 * ranks, rank + round);
            memset(in, 0, sizeof in);
            DO(MPI_Start(&requests[i]));
            DO(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
            if (i == 0) CHECK(in[0] == value(round, rank) && in[ranks - 1] == value(ranks - 1 + round, rank));
            if (i == 1) CHECK(in[0] == value(round, rank));
            if (i == 3) CHECK(in[2] == value(round, 3 * rank + 2) && in[1] == 0);
        }
    for (int i = 0; i < 4; i++) DO(MPI_Request_free(&requests[i]));
    DO(MPI_Type_free(&type));
}
#endif

int main(int argc, char **argv) {
    begin(&argc, &argv);
    messages();
    reductions();
#ifdef HAVE_MPI_4
    collectives();
#endif
    return end("freed");
}
