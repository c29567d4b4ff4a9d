/* Errors of calls that make a communicator of groups: the handler that they are given is called, with the null communicator, and may jump
 * out of the call. */
#include <setjmp.h>

#include "check.h"

static jmp_buf back;
static int handled, jumps;

static void handle(MPI_Comm *comm, int *code, ...) {
    int class;
    DO(MPI_Error_class(*code, &class));
    CHECK(*comm == MPI_COMM_NULL && class != MPI_SUCCESS);
    handled++;
    if (jumps) longjmp(back, 1);
}

/* Without an address for the communicator. */
static int fail(int between, MPI_Group group, MPI_Errhandler handler) {
    const char *tag = "counterfoil.none";
    return between ? MPI_Intercomm_create_from_groups(group, 0, group, 0, tag, MPI_INFO_NULL, handler, NULL)
                   : MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, handler, NULL);
}

static void exchange(void) {
    int got = -1, next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    DO(MPI_Sendrecv(&rank, 1, MPI_INT, next, 0, &got, 1, MPI_INT, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(got == before);
}

int main(int argc, char **argv) {
    MPI_Group group;
    MPI_Errhandler handler;
    begin(&argc, &argv);
    DO(MPI_Comm_create_errhandler(handle, &handler));
    DO(MPI_Comm_group(MPI_COMM_WORLD, &group));
    for (jumps = 0; jumps < 2; jumps++) {
        /* In memory that a jump leaves as it is. */
        static int between;
        for (between = 0; between < 2; between++) {
            handled = 0;
            if (!setjmp(back)) CHECK(fail(between, group, handler) != MPI_SUCCESS && !jumps);
            CHECK(handled == 1);
            exchange();
        }
    }
    DO(MPI_Group_free(&group));
    DO(MPI_Errhandler_free(&handler));
    return end("group_errors");
}
