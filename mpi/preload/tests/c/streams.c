/* Streams whose messages are received in unusual ways: later requests waited for first, wildcards mixed with named sources, matched
 * messages, and communicators and datatypes that are freed while messages are in flight. */
#include "check.h"

enum { MANY = 12, LENGTH = 40 };

static int next, before;
static int out[MANY][LENGTH], in[MANY][LENGTH];

static void prepare(int round) {
    for (int i = 0; i < MANY; i++)
        for (int j = 0; j < LENGTH; j++) out[i][j] = value(rank, round * 10000 + i * LENGTH + j);
    memset(in, 0, sizeof in);
}

static int is_message(const int *got, int from, int round, int i) {
    for (int j = 0; j < LENGTH; j++)
        if (got[j] != value(from, round * 10000 + i * LENGTH + j)) return 0;
    return 1;
}

/* All receives of one stream are pending, and the last is waited for first. */
static void backwards(void) {
    MPI_Request receives[MANY], sends[MANY];
    for (int round = 0; round < 3; round++) {
        prepare(round);
        for (int i = 0; i < MANY; i++) DO(MPI_Irecv(in[i], LENGTH, MPI_INT, before, 1, MPI_COMM_WORLD, &receives[i]));
        for (int i = 0; i < MANY; i++) DO(MPI_Isend(out[i], LENGTH, MPI_INT, next, 1, MPI_COMM_WORLD, &sends[i]));
        for (int i = MANY - 1; i >= 0; i--) DO(MPI_Wait(&receives[i], MPI_STATUS_IGNORE));
        DO(MPI_Waitall(MANY, sends, MPI_STATUSES_IGNORE));
        for (int i = 0; i < MANY; i++) CHECK(is_message(in[i], before, round, i));
    }
}

/* Wildcards of four kinds in turn, in the order of completion. */
static void wildcards(void) {
    MPI_Request receives[MANY], sends[MANY];
    MPI_Status status;
    prepare(10);
    for (int i = 0; i < MANY; i++) {
        int source = i % 2 ? MPI_ANY_SOURCE : before, tag = i / 2 % 2 ? MPI_ANY_TAG : 2;
        DO(MPI_Irecv(in[i], LENGTH, MPI_INT, source, tag, MPI_COMM_WORLD, &receives[i]));
    }
    for (int i = 0; i < MANY; i++) DO(MPI_Isend(out[i], LENGTH, MPI_INT, next, 2, MPI_COMM_WORLD, &sends[i]));
    for (int i = 0; i < MANY; i++) {
        int index;
        DO(MPI_Waitany(MANY, receives, &index, &status));
        CHECK(status.MPI_SOURCE == before && status.MPI_TAG == 2 && is_message(in[index], before, 10, index));
    }
    DO(MPI_Waitall(MANY, sends, MPI_STATUSES_IGNORE));
}

/* Messages that are matched in order and received in reverse order, with a plain receive in between. */
static void matched(void) {
    MPI_Request sends[MANY], receives[MANY];
    MPI_Message messages[MANY];
    MPI_Status status;
    prepare(20);
    for (int i = 0; i < MANY; i++) DO(MPI_Isend(out[i], LENGTH, MPI_INT, next, 3, MPI_COMM_WORLD, &sends[i]));
    for (int i = 0; i < MANY - 1; i++) {
        if (i % 2) DO(MPI_Mprobe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &messages[i], &status));
        else DO(MPI_Mprobe(before, 3, MPI_COMM_WORLD, &messages[i], MPI_STATUS_IGNORE));
    }
    DO(MPI_Recv(in[MANY - 1], LENGTH, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int i = MANY - 2; i >= 0; i--) {
        if (i % 3) DO(MPI_Imrecv(in[i], LENGTH, MPI_INT, &messages[i], &receives[i]));
        else { DO(MPI_Mrecv(in[i], LENGTH, MPI_INT, &messages[i], &status)); receives[i] = MPI_REQUEST_NULL; }
    }
    DO(MPI_Waitall(MANY - 1, receives, MPI_STATUSES_IGNORE));
    DO(MPI_Waitall(MANY, sends, MPI_STATUSES_IGNORE));
    for (int i = 0; i < MANY; i++) CHECK(is_message(in[i], before, 20, i));
}

/* A communicator and a datatype that are freed while a receive uses them, and others that reuse their handles. */
static void freed(void) {
    for (int round = 0; round < 4; round++) {
        MPI_Comm made, other;
        MPI_Datatype pairs;
        MPI_Request receive, send;
        prepare(30 + round);
        DO(MPI_Comm_dup(MPI_COMM_WORLD, &made));
        DO(MPI_Type_vector(LENGTH / 4, 2, 4, MPI_INT, &pairs));
        DO(MPI_Type_commit(&pairs));
        DO(MPI_Irecv(in[0], 1, pairs, before, 4, made, &receive));
        DO(MPI_Isend(out[0], 1, pairs, next, 4, made, &send));
        DO(MPI_Type_free(&pairs));
        DO(MPI_Comm_free(&made));
        DO(MPI_Comm_dup(MPI_COMM_WORLD, &other));
        DO(MPI_Type_vector(LENGTH / 4, 1, 4, MPI_INT, &pairs));
        DO(MPI_Type_commit(&pairs));
        DO(MPI_Sendrecv(out[1], 1, pairs, next, 4, in[1], 1, pairs, before, 4, other, MPI_STATUS_IGNORE));
        DO(MPI_Wait(&receive, MPI_STATUS_IGNORE));
        DO(MPI_Wait(&send, MPI_STATUS_IGNORE));
        for (int j = 0; j < LENGTH; j++) {
            CHECK(in[0][j] == (j % 4 < 2 ? value(before, (30 + round) * 10000 + j) : 0));
            CHECK(in[1][j] == (j % 4 < 1 ? value(before, (30 + round) * 10000 + LENGTH + j) : 0));
        }
        DO(MPI_Type_free(&pairs));
        DO(MPI_Comm_free(&other));
    }
}

/* Communicators in turn that reuse one handle, if MPI does: their messages belong to different streams. */
static void handles(void) {
    for (int round = 0; round < 4; round++) {
        MPI_Comm made;
        prepare(50 + round);
        DO(MPI_Comm_dup(MPI_COMM_WORLD, &made));
        for (int i = 0; i < 3 + round; i++) {
            DO(MPI_Send(out[i], LENGTH, MPI_INT, next, 8, made));
            DO(MPI_Recv(in[i], LENGTH, MPI_INT, before, 8, made, MPI_STATUS_IGNORE));
            CHECK(is_message(in[i], before, 50 + round, i));
        }
        DO(MPI_Comm_free(&made));
    }
}

/* More streams in turn than the library caches, some of them in the same cache slot, with messages to MPI_PROC_NULL between them. */
static void many_tags(void) {
    for (int round = 0; round < 3; round++) {
        prepare(60 + round);
        for (int tag = 100; tag < 400; tag++) {
            int i = tag % MANY;
            DO(MPI_Send(out[i], LENGTH, MPI_INT, next, tag, MPI_COMM_WORLD));
            DO(MPI_Send(out[i], LENGTH, MPI_INT, MPI_PROC_NULL, tag, MPI_COMM_WORLD));
            DO(MPI_Recv(in[i], LENGTH, MPI_INT, before, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(is_message(in[i], before, 60 + round, i));
        }
    }
}

/* Receives that are cancelled between others of the same stream. A send is not cancelled, although MPI_Cancel is called. */
static void cancelled(void) {
    MPI_Request receives[3], send;
    MPI_Status status;
    int is_cancelled;
    prepare(40);
    for (int i = 0; i < 3; i++) DO(MPI_Irecv(in[i], LENGTH, MPI_INT, before, 5, MPI_COMM_WORLD, &receives[i]));
    DO(MPI_Cancel(&receives[1]));
    DO(MPI_Wait(&receives[1], &status));
    DO(MPI_Test_cancelled(&status, &is_cancelled));
    CHECK(is_cancelled);
    DO(MPI_Barrier(MPI_COMM_WORLD));
    DO(MPI_Send(out[0], LENGTH, MPI_INT, next, 5, MPI_COMM_WORLD));
    DO(MPI_Send(out[2], LENGTH, MPI_INT, next, 5, MPI_COMM_WORLD));
    DO(MPI_Wait(&receives[2], MPI_STATUS_IGNORE));
    DO(MPI_Wait(&receives[0], MPI_STATUS_IGNORE));
    CHECK(is_message(in[0], before, 40, 0) && is_message(in[2], before, 40, 2));
    DO(MPI_Issend(out[3], LENGTH, MPI_INT, next, 6, MPI_COMM_WORLD, &send));
    DO(MPI_Cancel(&send));
    DO(MPI_Barrier(MPI_COMM_WORLD));
    /* The first message was not cancelled; if it had been, this would receive the second one. */
    DO(MPI_Recv(in[3], LENGTH, MPI_INT, before, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(is_message(in[3], before, 40, 3));
    DO(MPI_Wait(&send, &status));
    DO(MPI_Test_cancelled(&status, &is_cancelled));
    CHECK(!is_cancelled);
    DO(MPI_Sendrecv(out[4], LENGTH, MPI_INT, next, 6, in[4], LENGTH, MPI_INT, before, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(is_message(in[4], before, 40, 4));
}

/* Persistent requests of one stream, started one by one and all together. */
static void persistent(void) {
    MPI_Request receives[MANY], sends[MANY];
    for (int i = 0; i < MANY; i++) {
        DO(MPI_Recv_init(in[i], LENGTH, MPI_INT, i % 3 ? before : MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &receives[i]));
        DO(MPI_Send_init(out[i], LENGTH, MPI_INT, next, 7, MPI_COMM_WORLD, &sends[i]));
    }
    for (int round = 0; round < 4; round++) {
        prepare(50 + round);
        if (round % 2) DO(MPI_Startall(MANY, receives));
        else for (int i = 0; i < MANY; i++) DO(MPI_Start(&receives[i]));
        DO(MPI_Startall(MANY, sends));
        for (int i = MANY - 1; i >= 0; i--) DO(MPI_Wait(&receives[i], MPI_STATUS_IGNORE));
        DO(MPI_Waitall(MANY, sends, MPI_STATUSES_IGNORE));
        for (int i = 0; i < MANY; i++) CHECK(is_message(in[i], before, 50 + round, i));
    }
    for (int i = 0; i < MANY; i++) {
        DO(MPI_Request_free(&receives[i]));
        DO(MPI_Request_free(&sends[i]));
    }
}

/* An immediate receive of a truncated message: an error that counts as received; the next request reuses the handle. */
static void truncated(void) {
    MPI_Request request, sends[2];
    int class;
    prepare(60);
    DO(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    DO(MPI_Irecv(in[0], LENGTH / 2, MPI_INT, before, 8, MPI_COMM_WORLD, &request));
    DO(MPI_Isend(out[0], LENGTH, MPI_INT, next, 8, MPI_COMM_WORLD, &sends[0]));
    int code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    DO(MPI_Error_class(code, &class));
    CHECK(class == MPI_ERR_TRUNCATE);
    DO(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    DO(MPI_Isend(out[1], LENGTH, MPI_INT, next, 8, MPI_COMM_WORLD, &sends[1]));
    DO(MPI_Recv(in[1], LENGTH, MPI_INT, before, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    DO(MPI_Waitall(2, sends, MPI_STATUSES_IGNORE));
    CHECK(is_message(in[1], before, 60, 1));
}

static int query(void *state, MPI_Status *status) {
    (void)state;
    DO(MPI_Status_set_elements(status, MPI_INT, 0));
    DO(MPI_Status_set_cancelled(status, 1));
    status->MPI_SOURCE = status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int freed_state(void *state) { return (void)state, MPI_SUCCESS; }
static int cancelled_state(void *state, int complete) { return (void)state, (void)complete, MPI_SUCCESS; }

/* A generalized request that is cancelled is no send. */
static void generalized(void) {
    MPI_Request request;
    MPI_Status status;
    int flag;
    DO(MPI_Grequest_start(query, freed_state, cancelled_state, NULL, &request));
    DO(MPI_Cancel(&request));
    DO(MPI_Grequest_complete(request));
    DO(MPI_Wait(&request, &status));
    DO(MPI_Test_cancelled(&status, &flag));
    CHECK(flag);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    generalized();
    next = (rank + 1) % ranks;
    before = (rank + ranks - 1) % ranks;
    backwards();
    wildcards();
    matched();
    freed();
    cancelled();
    persistent();
    handles();
    many_tags();
    truncated();
    return end("streams");
}
