/* Messages on a communicator of the survivors (MPIX_Comm_shrink): of all ranks, or after the death of rank 1. With the argument `fails`,
 * 200 messages of rank 0 to it are in flight then; with `interrupted` and `blocking`, rank 0 waits for a message of any rank, with
 * `blocking threads` at the level MPI_THREAD_MULTIPLE; with `halfway`, rank 1 fails while rank 0 receives a long message of it. In addition,
 * each surviving rank sends 1,110 messages of 4 KiB. */
#include "check.h"

#include <mpi-ext.h>
#include <signal.h>
#include <unistd.h>

enum { COUNT = 1 << 10, LOST = 200, MUCH = 8 << 20, MANY = 11000 };

static int out[COUNT], in[COUNT], much[MUCH];
static const int lost[COUNT];

static void ring(MPI_Comm comm, int times) {
    int r, n;
    DO(MPI_Comm_rank(comm, &r));
    DO(MPI_Comm_size(comm, &n));
    int next = (r + 1) % n, before = (r + n - 1) % n;
    for (int i = 0; i < times; i++) {
        fill(out, COUNT, r + i);
        DO(MPI_Sendrecv(out, COUNT, MPI_INT, next, 7, in, COUNT, MPI_INT, before, 7, comm, MPI_STATUS_IGNORE));
        CHECK(holds(in, COUNT, before + i));
    }
}

/* A receive from any source that a failure interrupts stays pending, and takes a message once the failure is acknowledged. */
static void interrupted(void) {
    int got = -1, go = 1, class;
    MPI_Request request;
    MPI_Status status;
    if (rank == 0) {
        DO(MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &request));
        DO(MPI_Error_class(MPI_Wait(&request, &status), &class));
        CHECK(class == MPIX_ERR_PROC_FAILED_PENDING && request != MPI_REQUEST_NULL);
        DO(MPIX_Comm_failure_ack(MPI_COMM_WORLD));
        DO(MPI_Send(&go, 1, MPI_INT, 2, 10, MPI_COMM_WORLD));
        DO(MPI_Wait(&request, &status));
        CHECK(got == 2 && status.MPI_SOURCE == 2);
    } else if (rank == 2) {
        DO(MPI_Recv(&go, 1, MPI_INT, 0, 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        DO(MPI_Send(&rank, 1, MPI_INT, 0, 9, MPI_COMM_WORLD));
    }
}

/* Errors that a handler of the program's has seen, and the class of the last. */
static int handled, handled_class;

static void handle(MPI_Comm *comm, int *code, ...) {
    (void)comm;
    handled++;
    MPI_Error_class(*code, &handled_class);
}

/* A blocking receive, or exchange, from any source that a failure interrupts leaves nothing pending: the next receive takes the message. */
static void blocking(void) {
    int got = -1, go = 1, class;
    MPI_Status status;
    MPI_Errhandler handler;
    if (rank == 0) {
        DO(MPI_Comm_create_errhandler(handle, &handler));
        DO(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler));
        DO(MPI_Error_class(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &status), &class));
        CHECK(class == MPIX_ERR_PROC_FAILED && handled == 1 && handled_class == class);
        DO(MPI_Error_class(MPI_Sendrecv(&go, 1, MPI_INT, 3, 10, &got, 1, MPI_INT, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &status), &class));
        CHECK(class == MPIX_ERR_PROC_FAILED && handled == 2 && handled_class == class);
        DO(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
        DO(MPI_Errhandler_free(&handler));
        DO(MPIX_Comm_failure_ack(MPI_COMM_WORLD));
        DO(MPI_Send(&go, 1, MPI_INT, 2, 10, MPI_COMM_WORLD));
        DO(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &status));
        CHECK(got == 2 && status.MPI_SOURCE == 2);
    } else if (rank == 2) {
        DO(MPI_Recv(&go, 1, MPI_INT, 0, 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        DO(MPI_Send(&rank, 1, MPI_INT, 0, 9, MPI_COMM_WORLD));
    } else {
        /* The message of the exchange may have been sent. */
        DO(MPI_Recv(&go, 1, MPI_INT, 0, 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
}

/* A failure ends a receive after a part of its message: none was received. Polls look at it before and between the program's tests, since
 * rank 2's log, of 40 MiB, is full of messages for rank 0. */
static void halfway(void) {
    int done = 0, class = MPI_SUCCESS;
    MPI_Request request, *sends = malloc(MANY * sizeof *sends);
    MPI_Status status;
    if (rank == 0) {
        /* The message is announced before it is asked for, so that this call begins it. */
        DO(MPI_Probe(1, 11, MPI_COMM_WORLD, &status));
        DO(MPI_Irecv(much, MUCH, MPI_INT, 1, 11, MPI_COMM_WORLD, &request));
        /* Rank 1 sends what the transport holds, and fails. */
        sleep(1);
        for (int i = 0; i < 100 && class == MPI_SUCCESS; i++) {
            for (int j = 0; j < 10; j++) {
                int flag;
                DO(MPI_Iprobe(0, 0, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE));
                usleep(500);
            }
            DO(MPI_Error_class(MPI_Test(&request, &done, &status), &class));
            CHECK(class != MPI_SUCCESS || !done);
        }
        CHECK(class == MPIX_ERR_PROC_FAILED);
        for (int i = 0; i < MANY; i++) DO(MPI_Recv(in, COUNT, MPI_INT, 2, 12, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else if (rank == 1) {
        DO(MPI_Isend(much, MUCH, MPI_INT, 0, 11, MPI_COMM_WORLD, &request));
        for (int i = 0; i < 500; i++) {
            DO(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
            usleep(1000);
        }
        CHECK(!done);
        raise(SIGKILL);
    } else if (rank == 2) {
        for (int i = 0; i < MANY; i++) DO(MPI_Isend(lost, COUNT, MPI_INT, 0, 12, MPI_COMM_WORLD, &sends[i]));
        DO(MPI_Waitall(MANY, sends, MPI_STATUSES_IGNORE));
    }
    free(sends);
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[2], "threads")) {
        if (begin_at(MPI_THREAD_MULTIPLE, &argc, &argv) < MPI_THREAD_MULTIPLE) return 77;
    } else {
        begin(&argc, &argv);
    }
    int fails = argc > 1, loses = fails && !strcmp(argv[1], "fails"), r, n;
    MPI_Comm living, copy;
    DO(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    ring(MPI_COMM_WORLD, 100);
    DO(MPI_Barrier(MPI_COMM_WORLD));
    if (fails && !strcmp(argv[1], "halfway")) {
        halfway();
    } else if (fails) {
        MPI_Request requests[LOST];
        MPI_Comm failing;
        if (loses) {
            DO(MPI_Comm_dup(MPI_COMM_WORLD, &failing));
            DO(MPI_Comm_set_errhandler(failing, MPI_ERRORS_RETURN));
        }
        for (int i = 0; loses && rank == 0 && i < LOST; i++)
            DO(MPI_Isend(lost, COUNT, MPI_INT, 1, 8, MPI_COMM_WORLD, &requests[i]));
        DO(MPI_Barrier(MPI_COMM_WORLD));
        if (rank == 1) raise(SIGKILL);
        if (loses) {
            CHECK(MPI_Barrier(failing) != MPI_SUCCESS);
            /* Ranks that don't know of the failure yet leave the barrier. The messages are on MPI_COMM_WORLD. */
            DO(MPIX_Comm_revoke(failing));
            /* Sends that were complete have succeeded, the others have failed. */
            if (rank == 0) MPI_Waitall(LOST, requests, MPI_STATUSES_IGNORE);
            DO(MPI_Comm_free(&failing));
        } else if (!strcmp(argv[1], "blocking")) {
            blocking();
        } else {
            interrupted();
        }
    }
    DO(MPIX_Comm_shrink(MPI_COMM_WORLD, &living));
    DO(MPI_Comm_rank(living, &r));
    DO(MPI_Comm_size(living, &n));
    CHECK(n == ranks - fails);
    ring(living, 1000);
    for (int i = 0; i < 500; i++) {
        if (r == i % n) fill(out, COUNT, i);
        DO(MPI_Bcast(out, COUNT, MPI_INT, i % n, living));
        CHECK(holds(out, COUNT, i));
    }
    DO(MPI_Comm_dup(living, &copy));
    ring(copy, 10);
    DO(MPI_Comm_free(&copy));
    DO(MPI_Comm_free(&living));
    if (rank == 0) printf("shrunk: ok on %d ranks\n", n);
    fflush(stdout);
    /* Open MPI 5.0.11 sometimes hangs in MPI_Finalize after a failure. */
    if (fails) alarm(20);
    DO(MPI_Finalize());
    return 0;
}
