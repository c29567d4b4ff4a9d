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
    int class, count = draw_count(), code = MPI_SUCCESS, calls = 1 + draw(2), is_collective = 0;
    const Layout *layout = &layouts[1];
    unsigned char *out = outgoing[1] + MARGIN, *in = incoming[1] + MARGIN;
    Ring at = ring(g, draw(3));
    way = draw(WAYS);
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
