/* Calls with wrong arguments, whose errors MPI returns, and error handlers that return or jump out of the call. With an argument: at
 * MPI_THREAD_MULTIPLE. */
#include <setjmp.h>

#include "check.h"

#define FAILS(call) CHECK((call) != MPI_SUCCESS)

static int out[1000], in[1000];

/* Calls with wrong arguments end no request and take no matched message. */
static void not_ended(void) {
    MPI_Request requests[2];
    MPI_Message message;
    MPI_Status status, statuses[2];
    int flag, index, count, peer = rank ^ 1;
    if (ranks % 2) return;
    for (int call = 0; call < 8; call++) {
        DO(MPI_Irecv(&in[0], 1, MPI_INT, peer, 20, MPI_COMM_WORLD, &requests[0]));
        DO(MPI_Irecv(&in[1], 1, MPI_INT, peer, 21, MPI_COMM_WORLD, &requests[1]));
        switch (call) {
        case 0: FAILS(MPI_Test(&requests[0], NULL, &status)); break;
        case 1: FAILS(MPI_Testany(1, requests, NULL, &flag, &status)); break;
        case 2: FAILS(MPI_Testany(2, requests, &index, NULL, &status)); break;
        case 3: FAILS(MPI_Waitany(1, requests, NULL, &status)); break;
        case 4: FAILS(MPI_Testall(2, requests, NULL, statuses)); break;
        case 5: FAILS(MPI_Waitsome(2, requests, NULL, &index, statuses)); break;
        case 6: FAILS(MPI_Testsome(2, requests, &count, NULL, statuses)); break;
        case 7: FAILS(MPI_Waitany(2, requests, NULL, &status)); break;
        }
        for (int i = 0; i < 2; i++) {
            CHECK(requests[i] != MPI_REQUEST_NULL);
            out[i] = value(rank, call + i);
            DO(MPI_Send(&out[i], 1, MPI_INT, peer, 20 + i, MPI_COMM_WORLD));
        }
        DO(MPI_Waitall(2, requests, statuses));
        CHECK(in[0] == value(peer, call) && in[1] == value(peer, call + 1));
    }
    for (int call = 0; call < 2; call++) {
        DO(MPI_Isend(out, 1, MPI_INT, peer, 22, MPI_COMM_WORLD, &requests[0]));
        DO(MPI_Mprobe(peer, 22, MPI_COMM_WORLD, &message, &status));
        if (call == 0) FAILS(MPI_Mrecv(in, -1, MPI_INT, &message, &status));
        else FAILS(MPI_Imrecv(in, -1, MPI_INT, &message, &requests[1]));
        CHECK(message != MPI_MESSAGE_NULL);
        DO(MPI_Mrecv(in, 1, MPI_INT, &message, &status));
        DO(MPI_Wait(&requests[0], &status));
    }
}

/* Arguments that MPI refuses. Nothing is sent or received. */
static void refused(void) {
    MPI_Comm self = MPI_COMM_SELF;
    MPI_Datatype open;
    MPI_Request request;
    MPI_Status status;
    int flag, index, ones[1] = {1}, zeros[1] = {0};
    DO(MPI_Comm_set_errhandler(self, MPI_ERRORS_RETURN));
    DO(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    DO(MPI_Type_vector(2, 1, 2, MPI_INT, &open)); /* not committed */
    FAILS(MPI_Bcast(out, 1, open, 0, self));
    FAILS(MPI_Ibcast(out, 1, open, 0, self, &request));
    FAILS(MPI_Send(out, 1, open, 0, 0, self));
    FAILS(MPI_Isend(out, 1, open, 0, 0, self, &request));
    FAILS(MPI_Sendrecv_replace(out, 1, open, 0, 0, 0, 0, self, &status));
    FAILS(MPI_Send_init(out, 1, open, 0, 0, self, &request));
    FAILS(MPI_Bcast(out, -1, MPI_INT, 0, self));
    FAILS(MPI_Bcast(out, 1, MPI_DATATYPE_NULL, 0, self));
    FAILS(MPI_Bcast(out, 1, MPI_INT, 99, self));
    FAILS(MPI_Send(out, 1, MPI_DATATYPE_NULL, 0, 0, self));
    FAILS(MPI_Send(out, 1, MPI_INT, 99, 0, self));
    FAILS(MPI_Send(out, 1000, MPI_INT, 0, -5, self));
    FAILS(MPI_Sendrecv(out, 1, MPI_INT, 99, 0, in, 1, MPI_INT, 0, 0, self, &status));
    FAILS(MPI_Alltoallv(out, NULL, NULL, MPI_INT, in, NULL, NULL, MPI_INT, self));
    FAILS(MPI_Scatterv(out, NULL, NULL, MPI_INT, in, 1, MPI_INT, 0, self));
    FAILS(MPI_Reduce_scatter(out, in, NULL, MPI_INT, MPI_SUM, self));
    FAILS(MPI_Alltoallw(out, ones, zeros, NULL, in, ones, zeros, NULL, self));
    FAILS(MPI_Reduce(out, in, 1, MPI_INT, MPI_OP_NULL, 0, self));
    FAILS(MPI_Wait(NULL, &status));
    FAILS(MPI_Waitall(3, NULL, MPI_STATUSES_IGNORE));
    FAILS(MPI_Waitany(2, NULL, &index, &status));
    FAILS(MPI_Waitsome(3, NULL, NULL, NULL, MPI_STATUSES_IGNORE));
    FAILS(MPI_Testall(2, NULL, &flag, MPI_STATUSES_IGNORE));
    FAILS(MPI_Testsome(2, NULL, &index, NULL, MPI_STATUSES_IGNORE));
    FAILS(MPI_Start(NULL));
    FAILS(MPI_Cancel(NULL));
    FAILS(MPI_Request_free(NULL));
    FAILS(MPI_Type_free(NULL));
    FAILS(MPI_Comm_dup(self, NULL));
    FAILS(MPI_Comm_free(&(MPI_Comm){MPI_COMM_NULL}));
    DO(MPI_Type_free(&open));
    /* Addresses without elements. */
    FAILS(MPI_Bcast(MPI_IN_PLACE, 4, MPI_INT, 0, self));
    FAILS(MPI_Scatter(MPI_IN_PLACE, 4, MPI_INT, in, 4, MPI_INT, 0, self));
    FAILS(MPI_Sendrecv_replace(NULL, 4, MPI_INT, MPI_PROC_NULL, 0, rank, 9, MPI_COMM_WORLD, &status));
    if (rank > 0) {
        FAILS(MPI_Reduce(MPI_IN_PLACE, NULL, 4, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD));
        FAILS(MPI_Gather(MPI_IN_PLACE, 4, MPI_INT, NULL, 0, MPI_INT, 0, MPI_COMM_WORLD));
        FAILS(MPI_Gatherv(MPI_IN_PLACE, 4, MPI_INT, NULL, NULL, NULL, MPI_INT, 0, MPI_COMM_WORLD));
    }
    /* Open MPI needs no address for its only rank. */
    (void)MPI_Bcast(NULL, 4, MPI_INT, 0, self);
    /* An exchange that is refused takes no message that has arrived. */
    out[0] = value(rank, 9);
    DO(MPI_Isend(out, 1, MPI_INT, rank, 9, MPI_COMM_WORLD, &request));
    FAILS(MPI_Sendrecv(out, 1, MPI_INT, 99, 0, in, 1, MPI_INT, rank, 9, MPI_COMM_WORLD, &status));
    FAILS(MPI_Sendrecv(out, 1, MPI_INT, rank, 9, in, 1, MPI_DATATYPE_NULL, rank, 9, MPI_COMM_WORLD, &status));
    DO(MPI_Recv(in, 1, MPI_INT, rank, 9, MPI_COMM_WORLD, &status));
    DO(MPI_Wait(&request, &status));
    CHECK(in[0] == value(rank, 9));
    DO(MPI_Iprobe(rank, 9, MPI_COMM_WORLD, &flag, &status));
    CHECK(!flag);
    not_ended();
}

static jmp_buf back;
static int handled, jumps;

static void handler(MPI_Comm *comm, int *code, ...) {
    int class;
    DO(MPI_Error_class(*code, &class));
    CHECK(*comm == MPI_COMM_WORLD && class != MPI_SUCCESS);
    handled++;
    if (jumps) longjmp(back, 1);
}

/* A call that fails calls the handler once. After a jump nothing of the call is left: what follows is sent, and logged. */
static void fail(int call) {
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    int flag, code = MPI_SUCCESS;
    switch (call) {
    case 0: code = MPI_Send(out, 1, MPI_INT, 99, 0, MPI_COMM_WORLD); break;
    case 1: code = MPI_Send(out, 1000, MPI_INT, rank, -5, MPI_COMM_WORLD); break;
    case 2: code = MPI_Isend(out, 1, MPI_INT, rank, -5, MPI_COMM_WORLD, &request); break;
    case 3: code = MPI_Irecv(in, 1, MPI_INT, 99, 0, MPI_COMM_WORLD, &request); break;
    case 4: code = MPI_Recv(in, 1, MPI_INT, 99, 0, MPI_COMM_WORLD, &status); break;
    case 5: code = MPI_Sendrecv(out, 1, MPI_INT, 99, 0, in, 1, MPI_INT, rank, 0, MPI_COMM_WORLD, &status); break;
    case 6: code = MPI_Improbe(99, 0, MPI_COMM_WORLD, &flag, &message, &status); break;
    case 7: code = MPI_Bcast(out, 1, MPI_INT, 99, MPI_COMM_WORLD); break;
    case 8: code = MPI_Ssend(out, 300, MPI_INT, 99, 0, MPI_COMM_WORLD); break;
    case 9: code = MPI_Sendrecv_replace(out, 1, MPI_INT, 99, 0, rank, 0, MPI_COMM_WORLD, &status); break;
    case 10: /* a message that is too long, received with another one */
        DO(MPI_Isend(out, 2, MPI_INT, rank, 3, MPI_COMM_WORLD, &request));
        code = MPI_Recv(in, 1, MPI_INT, rank, 3, MPI_COMM_WORLD, &status);
        break;
    }
    CHECK(code != MPI_SUCCESS && !jumps);
}

static void handlers(void) {
    enum { CALLS = 11 };
    MPI_Errhandler errhandler;
    MPI_Status status;
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    DO(MPI_Comm_create_errhandler(handler, &errhandler));
    DO(MPI_Comm_set_errhandler(MPI_COMM_WORLD, errhandler));
    DO(MPI_Errhandler_free(&errhandler));
    for (volatile int call = 0; call < 2 * CALLS; call++) {
        /* A request that a jump leaves behind is lost, and MPI waits for it at the end. */
        jumps = call >= CALLS && call - CALLS != 10;
        handled = 0;
        if (!setjmp(back)) fail(call % CALLS);
        CHECK(handled == 1);
        fill(out, 1000, rank);
        DO(MPI_Sendrecv(out, 500, MPI_INT, next, call, in, 500, MPI_INT, before, call, MPI_COMM_WORLD, &status));
        CHECK(holds(in, 500, before));
    }
    DO(MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_OTHER));
    DO(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
}

/* A receive of a message that is too long ends MPI_Waitall while another one is pending, in Open MPI; null requests have empty statuses. `first`:
 * index of the pending one, which is large, so that the library waits for each in turn. */
static void truncated(int first) {
    enum { LARGE = 64 << 20 };
    char *large = malloc(LARGE), message[100] = {1}, small[10];
    MPI_Request requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status statuses[3];
    int class, count, peer = rank ^ 1;
    if (ranks % 2) return;
    DO(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    DO(MPI_Irecv(large, LARGE, MPI_BYTE, peer, 5, MPI_COMM_WORLD, &requests[first]));
    DO(MPI_Irecv(small, 10, MPI_BYTE, peer, 6, MPI_COMM_WORLD, &requests[2 - first]));
    DO(MPI_Send(message, 100, MPI_BYTE, peer, 6, MPI_COMM_WORLD));
    int code = MPI_Waitall(3, requests, statuses);
    CHECK(code == MPI_ERR_IN_STATUS);
    CHECK(statuses[first].MPI_ERROR == MPI_ERR_PENDING && requests[first] != MPI_REQUEST_NULL);
    DO(MPI_Error_class(statuses[2 - first].MPI_ERROR, &class));
    CHECK(class == MPI_ERR_TRUNCATE && requests[2 - first] == MPI_REQUEST_NULL);
    DO(MPI_Barrier(MPI_COMM_WORLD));
    DO(MPI_Send(message, 100, MPI_BYTE, peer, 5, MPI_COMM_WORLD));
    DO(MPI_Waitall(3, requests, statuses));
    DO(MPI_Get_count(&statuses[first], MPI_BYTE, &count));
    CHECK(count == 100 && statuses[first].MPI_SOURCE == peer && statuses[first].MPI_TAG == 5 && large[0] == 1);
    for (int i = 0; i < 3; i++) {
        CHECK(requests[i] == MPI_REQUEST_NULL);
        CHECK(i == first || (statuses[i].MPI_SOURCE == MPI_ANY_SOURCE && statuses[i].MPI_TAG == MPI_ANY_TAG));
    }
    DO(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    free(large);
}

int main(int argc, char **argv) {
    int level = begin_at(argc > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &argc, &argv);
    CHECK(argc == 1 || level == MPI_THREAD_MULTIPLE);
    refused();
    handlers();
    truncated(0);
    truncated(2);
    return end("errors");
}
