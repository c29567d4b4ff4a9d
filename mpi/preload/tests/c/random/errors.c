/* Calls that fail: their errors are returned, or a handler is called, which returns, jumps or throws. A message is under way meanwhile. */
#include <setjmp.h>

#include "random.h"
#include "thrown.h"

enum { RETURNED, HANDLED, JUMPS, THROWS, WAYS };

static jmp_buf back;
static int handled, way;

static void handler(MPI_Comm *comm, int *code, ...) {
    int class;
    (void)comm;
    DO(MPI_Error_class(*code, &class));
    handled += class;
    if (way == THROWS && throws_error()) return;
    if (way >= JUMPS) longjmp(back, 1);
}

enum { REFUSED_REDUCTION = 15, WRONG_CALLS = 18 };

typedef struct { const Group *g; int call, from; } Wrong;

static int wrong_call(void *arguments) {
    const Wrong *wrong = arguments;
    const Group *g = wrong->g;
    MPI_Request request, null = MPI_REQUEST_NULL;
    MPI_Status status;
    MPI_Comm comm = g->comm;
    int flag, bad = g->peers + 5;
    int *out = (int *)(outgoing[0] + MARGIN), *in = (int *)(incoming[0] + MARGIN);
    switch (wrong->call) {
    case 0: return MPI_Send(out, 1, MPI_INT, bad, 0, comm);
    case 1: return MPI_Send(out, 1000, MPI_INT, 0, -7, comm);
    case 2: return MPI_Isend(out, -1, MPI_INT, 0, 0, comm, &request);
    case 3: return MPI_Irecv(in, 1, MPI_INT, bad, 0, comm, &request);
    case 4: return MPI_Recv(in, 1, MPI_DATATYPE_NULL, 0, 0, comm, &status);
    case 5: return MPI_Sendrecv(out, 1, MPI_INT, bad, ERROR_TAG, in, 1, MPI_INT, wrong->from, ERROR_TAG, comm, &status);
    case 6: return MPI_Iprobe(bad, 0, comm, &flag, &status);
    case 7: return MPI_Bcast(out, -1, MPI_INT, 0, comm);
    case 8: return MPI_Ssend_init(out, 1, MPI_INT, bad, 0, comm, &request);
    case 9: return MPI_Alltoallv(out, NULL, NULL, MPI_INT, in, NULL, NULL, MPI_INT, comm);
    case 10: return MPI_Send(out, 1, MPI_DATATYPE_NULL, 0, 0, comm);
    case 11: return MPI_Isend(out, 300, MPI_DATATYPE_NULL, 0, 0, comm, &request);
    case 12: return MPI_Sendrecv_replace(in, 1, MPI_INT, bad, ERROR_TAG, wrong->from, ERROR_TAG, comm, &status);
    case 13: return MPI_Bsend(out, 1, MPI_INT, 0, -7, comm);
    case 14: return MPI_Irsend(out, -1, MPI_INT, 0, 0, comm, &null);
    case REFUSED_REDUCTION: return MPI_Allreduce(out, in, 1, MPI_INT, MPI_OP_NULL, comm);
    case 16: return MPI_Mprobe(bad, 0, comm, &(MPI_Message){MPI_MESSAGE_NULL}, &status);
    default: return MPI_Alltoall(out, 1, MPI_DATATYPE_NULL, in, 1, MPI_DATATYPE_NULL, comm);
    }
}

void errors(const Group *g) {
    MPI_Errhandler errhandler;
    MPI_Request request;
    MPI_Status status;
    int class, count = draw_count(INTEGER), code = MPI_SUCCESS, calls = 1 + draw(2), is_collective = 0;
    const Layout *layout = &layouts[INTEGER];
    unsigned char *out = outgoing[1] + MARGIN, *in = incoming[1] + MARGIN;
    Ring at = ring(g, draw(3));
    way = draw(WAYS);
    if (!has_handlers) way = RETURNED;
    if (way == RETURNED) DO(MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN));
    else {
        DO(MPI_Comm_create_errhandler(handler, &errhandler));
        DO(MPI_Comm_set_errhandler(g->comm, errhandler));
        DO(MPI_Errhandler_free(&errhandler));
    }
    /* Nothing that is refused takes this message. */
    fill_elements(out, count, layout, draw_seed() + (uint64_t)rank);
    note_sent(g, at.to, ERROR_TAG, out, count, layout->type);
    DO(MPI_Isend(out, count, layout->type, at.to, ERROR_TAG, g->comm, &request));
    for (int i = 0; i < calls; i++) {
        Wrong wrong = {g, draw(WRONG_CALLS), at.from};
        is_collective |= wrong.call == REFUSED_REDUCTION;
        handled = 0;
        if (!setjmp(back)) {
            if (!throw_caught(wrong_call, &wrong, &code)) {
                DO(MPI_Error_class(code, &class));
                add((uint64_t)class);
            }
        }
        add((uint64_t)handled);
    }
    clear_elements(in, count, layout);
    DO(MPI_Recv(in, count, layout->type, at.from, ERROR_TAG, g->comm, &status));
    if (at.from != MPI_PROC_NULL) add_status(&status, layout->type);
    add(hash_elements(in, count, layout));
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
    DO(MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_ARE_FATAL));
    if (is_collective) {
        /* The next operation takes the number of the refused one, and its contribution the place in the log. */
        int sum;
        note_contribution(&rank, sizeof rank);
        DO(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, g->comm));
        add((uint64_t)sum);
    }
}

/* Receives a message with room for fewer integers; returns the class of the error. */
static int receive_truncated(const Group *g, int kind, int from, unsigned char *in, int room, MPI_Status *status) {
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status statuses[2];
    MPI_Message message;
    int code, class, flag = 0, index;
    switch (kind) {
    case 0: code = MPI_Recv(in, room, MPI_INT, from, TRUNCATED_TAG, g->comm, status); break;
    case 1:
        DO(MPI_Mprobe(from, TRUNCATED_TAG, g->comm, &message, status));
        code = MPI_Mrecv(in, room, MPI_INT, &message, status);
        break;
    case 2:
        DO(MPI_Mprobe(from, TRUNCATED_TAG, g->comm, &message, status));
        DO(MPI_Imrecv(in, room, MPI_INT, &message, &requests[0]));
        code = MPI_Wait(&requests[0], status);
        break;
    default:
        if (kind % 2) DO(MPI_Irecv(in, room, MPI_INT, from, TRUNCATED_TAG, g->comm, &requests[0]));
        else {
            DO(MPI_Recv_init(in, room, MPI_INT, from, TRUNCATED_TAG, g->comm, &requests[0]));
            DO(MPI_Start(&requests[0]));
        }
        /* Of a receive that failed before the call, Open MPI 4.1.4's MPI_Waitall doesn't return, or, at MPI_THREAD_SINGLE, returns MPI_SUCCESS if
         * it is persistent. */
        switch (choose(IS_OPEN_MPI_4 ? 3 : 4)) {
        case 0: code = MPI_Wait(&requests[0], status); break;
        case 1:
            do code = MPI_Test(&requests[0], &flag, status);
            while (code == MPI_SUCCESS && !flag);
            break;
        case 2: code = MPI_Waitany(2, requests, &index, status); break;
        default:
            code = MPI_Waitall(2, requests, statuses);
            *status = statuses[0];
            if (code == MPI_ERR_IN_STATUS) code = statuses[0].MPI_ERROR;
        }
        /* Open MPI 4 has freed a persistent request that fails. */
        if (requests[0] != MPI_REQUEST_NULL) DO(MPI_Request_free(&requests[0]));
    }
    DO(MPI_Error_class(code, &class));
    return class;
}

/* A message that is longer than the room for it is lost; the next one of its stream isn't. */
void truncated(const Group *g) {
    int count = 2 + draw(draw(2) ? 20 : ELEMENTS_MAX - 2), room = draw(count), kind = draw(6), is_synchronous = draw(2), class;
    const Layout *layout = &layouts[INTEGER];
    unsigned char *out = outgoing[1] + MARGIN, *in = incoming[1] + MARGIN;
    MPI_Request requests[2];
    MPI_Status status = {0};
    Ring at = ring(g, draw(3));
    DO(MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN));
    fill_elements(out, count, layout, draw_seed() + (uint64_t)rank);
    for (int i = 0; i < 2; i++) {
        note_sent(g, at.to, TRUNCATED_TAG, out, count, layout->type);
        if (is_synchronous) DO(MPI_Issend(out, count, layout->type, at.to, TRUNCATED_TAG, g->comm, &requests[i]));
        else DO(MPI_Isend(out, count, layout->type, at.to, TRUNCATED_TAG, g->comm, &requests[i]));
    }
    if (at.from != MPI_PROC_NULL) {
        class = receive_truncated(g, kind, at.from, in, room, &status);
        add((uint64_t)class);
        add(status.MPI_SOURCE + 1000003u * (unsigned)status.MPI_TAG);
        clear_elements(in, count, layout);
        DO(MPI_Recv(in, count, layout->type, at.from, TRUNCATED_TAG, g->comm, &status));
        add_status(&status, layout->type);
        add(hash_elements(in, count, layout));
    }
    DO(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    DO(MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_ARE_FATAL));
}
