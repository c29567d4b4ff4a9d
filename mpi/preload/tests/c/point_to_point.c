/* Every call that sends or receives a message, around a ring. */
#include "check.h"

enum { COUNT = 1000, LONG = 200000 };

static int next, before;
static int out[LONG], in[LONG];

static void status_is(MPI_Status *status, int source, int tag, int count) {
    int got;
    CHECK(status->MPI_SOURCE == source && status->MPI_TAG == tag);
    DO(MPI_Get_count(status, MPI_INT, &got));
    CHECK(got == count);
}

static void receive(int tag, int count) {
    MPI_Status status;
    memset(in, 0, sizeof in);
    DO(MPI_Recv(in, count, MPI_INT, before, tag, MPI_COMM_WORLD, &status));
    status_is(&status, before, tag, count);
    CHECK(holds(in, count, before));
}

/* Even ranks send first, so that synchronous sends don't deadlock. */
#define AROUND(send, tag, count)            \
    do {                                    \
        if (rank % 2 == 0) { DO(send); receive(tag, count); } \
        else { receive(tag, count); DO(send); } \
    } while (0)

static void blocking(void) {
    int lengths[] = {0, 1, 13, COUNT, LONG};
    for (int i = 0; i < 5; i++) {
        int count = lengths[i];
        AROUND(MPI_Send(out, count, MPI_INT, next, 10 + i, MPI_COMM_WORLD), 10 + i, count);
        AROUND(MPI_Ssend(out, count, MPI_INT, next, 20 + i, MPI_COMM_WORLD), 20 + i, count);
    }
    int size;
    DO(MPI_Pack_size(COUNT, MPI_INT, MPI_COMM_WORLD, &size));
    size += MPI_BSEND_OVERHEAD;
    void *room = malloc(size), *back;
    DO(MPI_Buffer_attach(room, size));
    DO(MPI_Bsend(out, COUNT, MPI_INT, next, 30, MPI_COMM_WORLD));
    receive(30, COUNT);
    int had;
    DO(MPI_Buffer_detach(&back, &had));
    CHECK(back == room && had == size);
    free(room);
    /* A ready send needs a posted receive. */
    MPI_Request request;
    memset(in, 0, sizeof in);
    DO(MPI_Irecv(in, COUNT, MPI_INT, before, 31, MPI_COMM_WORLD, &request));
    DO(MPI_Barrier(MPI_COMM_WORLD));
    DO(MPI_Rsend(out, COUNT, MPI_INT, next, 31, MPI_COMM_WORLD));
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(request == MPI_REQUEST_NULL && holds(in, COUNT, before));
}

typedef int Immediate(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static void immediate(void) {
    Immediate *ways[] = {MPI_Isend, MPI_Ibsend, MPI_Issend, MPI_Irsend};
    int size;
    DO(MPI_Pack_size(COUNT, MPI_INT, MPI_COMM_WORLD, &size));
    size += MPI_BSEND_OVERHEAD;
    void *room = malloc(size);
    DO(MPI_Buffer_attach(room, size));
    for (int way = 0; way < 4; way++) {
        MPI_Request requests[2];
        MPI_Status statuses[2];
        memset(in, 0, sizeof in);
        DO(MPI_Irecv(in, COUNT, MPI_INT, MPI_ANY_SOURCE, 40 + way, MPI_COMM_WORLD, &requests[0]));
        DO(MPI_Barrier(MPI_COMM_WORLD));
        DO(ways[way](out, COUNT, MPI_INT, next, 40 + way, MPI_COMM_WORLD, &requests[1]));
        DO(MPI_Waitall(2, requests, statuses));
        status_is(&statuses[0], before, 40 + way, COUNT);
        CHECK(holds(in, COUNT, before));
    }
    DO(MPI_Buffer_detach(&room, &size));
    free(room);
}

typedef int Init(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static void persistent(void) {
    Init *ways[] = {MPI_Send_init, MPI_Bsend_init, MPI_Ssend_init, MPI_Rsend_init};
    int size;
    DO(MPI_Pack_size(COUNT, MPI_INT, MPI_COMM_WORLD, &size));
    size = (size + MPI_BSEND_OVERHEAD) * 4;
    void *room = malloc(size);
    DO(MPI_Buffer_attach(room, size));
    for (int way = 0; way < 4; way++) {
        MPI_Request requests[2];
        DO(MPI_Recv_init(in, COUNT, MPI_INT, before, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]));
        DO(ways[way](out, COUNT, MPI_INT, next, 50 + way, MPI_COMM_WORLD, &requests[1]));
        /* Waiting for an inactive request returns at once. */
        MPI_Status status;
        DO(MPI_Wait(&requests[1], &status));
        for (int round = 0; round < 3; round++) {
            out[0] = value(rank, 0) + round;
            memset(in, 0, sizeof in);
            DO(MPI_Start(&requests[0]));
            DO(MPI_Barrier(MPI_COMM_WORLD));
            if (round == 1) DO(MPI_Startall(1, &requests[1]));
            else DO(MPI_Start(&requests[1]));
            DO(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
            CHECK(requests[0] != MPI_REQUEST_NULL && in[0] == value(before, 0) + round && in[COUNT - 1] == value(before, COUNT - 1));
        }
        out[0] = value(rank, 0);
        DO(MPI_Request_free(&requests[0]));
        DO(MPI_Request_free(&requests[1]));
        CHECK(requests[0] == MPI_REQUEST_NULL);
    }
    DO(MPI_Buffer_detach(&room, &size));
    free(room);
}

static void probes(void) {
    MPI_Request request;
    MPI_Status status;
    MPI_Message message;
    int flag;
    DO(MPI_Isend(out, COUNT, MPI_INT, next, 60, MPI_COMM_WORLD, &request));
    DO(MPI_Probe(MPI_ANY_SOURCE, 60, MPI_COMM_WORLD, &status));
    status_is(&status, before, 60, COUNT);
    receive(60, COUNT);
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
    DO(MPI_Isend(out, COUNT, MPI_INT, next, 61, MPI_COMM_WORLD, &request));
    do DO(MPI_Iprobe(before, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status));
    while (!flag);
    status_is(&status, before, 61, COUNT);
    receive(61, COUNT);
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
    DO(MPI_Isend(out, COUNT, MPI_INT, next, 62, MPI_COMM_WORLD, &request));
    DO(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
    memset(in, 0, sizeof in);
    DO(MPI_Mrecv(in, COUNT, MPI_INT, &message, &status));
    CHECK(message == MPI_MESSAGE_NULL);
    status_is(&status, before, 62, COUNT);
    CHECK(holds(in, COUNT, before));
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
    DO(MPI_Isend(out, COUNT, MPI_INT, next, 63, MPI_COMM_WORLD, &request));
    do DO(MPI_Improbe(MPI_ANY_SOURCE, 63, MPI_COMM_WORLD, &flag, &message, &status));
    while (!flag);
    status_is(&status, before, 63, COUNT);
    MPI_Request receiving;
    memset(in, 0, sizeof in);
    DO(MPI_Imrecv(in, COUNT, MPI_INT, &message, &receiving));
    DO(MPI_Wait(&receiving, MPI_STATUS_IGNORE));
    CHECK(holds(in, COUNT, before));
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void both(void) {
    MPI_Status status;
    memset(in, 0, sizeof in);
    DO(MPI_Sendrecv(out, LONG, MPI_INT, next, 70, in, LONG, MPI_INT, before, 70, MPI_COMM_WORLD, &status));
    status_is(&status, before, 70, LONG);
    CHECK(holds(in, LONG, before));
    fill(in, COUNT, rank);
    DO(MPI_Sendrecv_replace(in, COUNT, MPI_INT, next, 71, before, 71, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(holds(in, COUNT, before));
#if MPI_VERSION >= 4 || defined(HAVE_MPI_4)
    MPI_Request request;
    memset(in, 0, sizeof in);
    DO(MPI_Isendrecv(out, COUNT, MPI_INT, next, 72, in, COUNT, MPI_INT, before, 72, MPI_COMM_WORLD, &request));
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(holds(in, COUNT, before));
    fill(in, COUNT, rank);
    DO(MPI_Isendrecv_replace(in, COUNT, MPI_INT, next, 73, before, 73, MPI_COMM_WORLD, &request));
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(holds(in, COUNT, before));
#endif
}

/* MPI_PROC_NULL, messages to self, MPI_BOTTOM with absolute addresses, and datatypes with gaps. */
static void odd(void) {
    MPI_Status status;
    MPI_Request request;
    int flag;
    DO(MPI_Send(out, COUNT, MPI_INT, MPI_PROC_NULL, 80, MPI_COMM_WORLD));
    DO(MPI_Recv(in, COUNT, MPI_INT, MPI_PROC_NULL, 80, MPI_COMM_WORLD, &status));
    status_is(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    DO(MPI_Sendrecv(out, 1, MPI_INT, MPI_PROC_NULL, 80, in, 1, MPI_INT, MPI_PROC_NULL, 80, MPI_COMM_WORLD, &status));
    DO(MPI_Isend(out, COUNT, MPI_INT, rank, 81, MPI_COMM_WORLD, &request));
    memset(in, 0, sizeof in);
    DO(MPI_Recv(in, COUNT, MPI_INT, rank, 81, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(holds(in, COUNT, rank));
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
    DO(MPI_Isend(out, 1, MPI_INT, 0, 82, MPI_COMM_SELF, &request));
    DO(MPI_Recv(in, 1, MPI_INT, 0, 82, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));

    MPI_Datatype column, pairs, at;
    int table[20][10], got[20];
    for (int i = 0; i < 20; i++)
        for (int j = 0; j < 10; j++) table[i][j] = value(rank, i * 10 + j);
    DO(MPI_Type_vector(20, 1, 10, MPI_INT, &column));
    DO(MPI_Type_commit(&column));
    DO(MPI_Sendrecv(&table[0][3], 1, column, next, 83, got, 20, MPI_INT, before, 83, MPI_COMM_WORLD, &status));
    for (int i = 0; i < 20; i++) CHECK(got[i] == value(before, i * 10 + 3));
    DO(MPI_Type_free(&column));
    /* Another datatype, which may reuse the old one's handle. */
    struct { int number; double real; } mine = {value(rank, 1), rank + 0.5}, theirs = {0, 0};
    int lengths[] = {1, 1};
    MPI_Aint places[2], start;
    MPI_Datatype types[] = {MPI_DOUBLE, MPI_INT};
    DO(MPI_Get_address(&mine, &start));
    DO(MPI_Get_address(&mine.real, &places[0]));
    DO(MPI_Get_address(&mine.number, &places[1]));
    for (int i = 0; i < 2; i++) places[i] -= start;
    DO(MPI_Type_create_struct(2, lengths, places, types, &pairs));
    DO(MPI_Type_commit(&pairs));
    DO(MPI_Sendrecv(&mine, 1, pairs, next, 84, &theirs, 1, pairs, before, 84, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(theirs.number == value(before, 1) && theirs.real == before + 0.5);
    DO(MPI_Type_free(&pairs));
    MPI_Aint bottom[2];
    DO(MPI_Get_address(&out[5], &bottom[0]));
    DO(MPI_Get_address(&out[700], &bottom[1]));
    DO(MPI_Type_create_hindexed(2, lengths, bottom, MPI_INT, &at));
    DO(MPI_Type_commit(&at));
    DO(MPI_Sendrecv(MPI_BOTTOM, 1, at, next, 85, in, 2, MPI_INT, before, 85, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(in[0] == value(before, 5) && in[1] == value(before, 700));
    DO(MPI_Type_free(&at));

    /* A cancelled receive, and one whose request is freed while it is pending. */
    DO(MPI_Irecv(in, 1, MPI_INT, before, 86, MPI_COMM_WORLD, &request));
    DO(MPI_Cancel(&request));
    DO(MPI_Wait(&request, &status));
    DO(MPI_Test_cancelled(&status, &flag));
    CHECK(flag);
    static volatile int given[1];
    given[0] = -1;
    DO(MPI_Irecv((void *)given, 1, MPI_INT, before, 87, MPI_COMM_WORLD, &request));
    DO(MPI_Request_free(&request));
    CHECK(request == MPI_REQUEST_NULL);
    DO(MPI_Isend(&out[9], 1, MPI_INT, next, 87, MPI_COMM_WORLD, &request));
    DO(MPI_Request_free(&request));
    while (given[0] == -1) DO(MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    CHECK(given[0] == value(before, 9));

    /* A truncated message is an error, and counts as received. */
    DO(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    DO(MPI_Isend(out, 8, MPI_INT, next, 88, MPI_COMM_WORLD, &request));
    int code = MPI_Recv(in, 4, MPI_INT, before, 88, MPI_COMM_WORLD, MPI_STATUS_IGNORE), class;
    DO(MPI_Error_class(code, &class));
    CHECK(class == MPI_ERR_TRUNCATE);
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
    code = MPI_Send(out, 1, MPI_INT, ranks, 88, MPI_COMM_WORLD);
    DO(MPI_Error_class(code, &class));
    CHECK(class == MPI_ERR_RANK);
    DO(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    DO(MPI_Isend(out, 8, MPI_INT, next, 88, MPI_COMM_WORLD, &request));
    receive(88, 8);
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void completions(void) {
    enum { MANY = 8 };
    static int mine[MANY], theirs[MANY];
    MPI_Request requests[2 * MANY];
    MPI_Status statuses[2 * MANY], status;
    int index, flag, count, indices[2 * MANY];
    for (int way = 0; way < 8; way++) {
        for (int i = 0; i < MANY; i++) {
            theirs[i] = -1;
            mine[i] = value(rank, way * 100 + i);
            DO(MPI_Irecv(&theirs[i], 1, MPI_INT, MPI_ANY_SOURCE, 100 + i, MPI_COMM_WORLD, &requests[i]));
        }
        for (int i = 0; i < MANY; i++)
            DO(MPI_Isend(&mine[i], 1, MPI_INT, next, 100 + i, MPI_COMM_WORLD, &requests[MANY + i]));
        int left = 2 * MANY;
        switch (way) {
        case 0: DO(MPI_Waitall(2 * MANY, requests, statuses)); break;
        case 1: while (left--) { DO(MPI_Waitany(2 * MANY, requests, &index, &status)); CHECK(index >= 0 && index < 2 * MANY); } break;
        case 2: while (left > 0) { DO(MPI_Waitsome(2 * MANY, requests, &count, indices, statuses)); CHECK(count > 0); left -= count; } break;
        case 3:
            for (int i = 0; i < 2 * MANY; i++)
                do {
                    MPI_Request before_test = requests[i];
                    DO(MPI_Test(&requests[i], &flag, &status));
                    CHECK(flag || requests[i] == before_test);
                } while (!flag);
            break;
        case 4: do DO(MPI_Testall(2 * MANY, requests, &flag, MPI_STATUSES_IGNORE)); while (!flag); break;
        case 5: while (left > 0) { DO(MPI_Testany(2 * MANY, requests, &index, &flag, &status)); if (flag) left--; } break;
        case 6: while (left > 0) { DO(MPI_Testsome(2 * MANY, requests, &count, indices, MPI_STATUSES_IGNORE)); left -= count; } break;
        case 7:
            for (int i = 0; i < 2 * MANY; i++) {
                do DO(MPI_Request_get_status(requests[i], &flag, &status)); while (!flag);
                CHECK(requests[i] != MPI_REQUEST_NULL);
                DO(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
            }
            break;
        }
        for (int i = 0; i < MANY; i++) CHECK(theirs[i] == value(before, way * 100 + i) && requests[i] == MPI_REQUEST_NULL);
        DO(MPI_Waitany(2 * MANY, requests, &index, &status));
        CHECK(index == MPI_UNDEFINED);
    }
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    next = (rank + 1) % ranks;
    before = (rank + ranks - 1) % ranks;
    fill(out, LONG, rank);
    if (ranks % 2) { fprintf(stderr, "point_to_point: the number of ranks has to be even\n"); MPI_Abort(MPI_COMM_WORLD, 2); }
    blocking();
    immediate();
    persistent();
    probes();
    both();
    odd();
    completions();
    DO(MPI_Pcontrol(0));
    AROUND(MPI_Send(out, COUNT, MPI_INT, next, 200, MPI_COMM_WORLD), 200, COUNT);
    DO(MPI_Pcontrol(1));
    AROUND(MPI_Send(out, COUNT, MPI_INT, next, 200, MPI_COMM_WORLD), 200, COUNT);
    return end("point_to_point");
}
