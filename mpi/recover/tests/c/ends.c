/* Ways to end, named by the argument. */
#include "check.h"

#include <signal.h>

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    if (!strcmp(way, "session")) {
#if MPI_VERSION >= 4
        MPI_Session session;
        MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
#else
        return fprintf(stderr, "no sessions\n"), 1;
#endif
    }
    begin(&argc, &argv);
    DO(MPI_Barrier(MPI_COMM_WORLD));
    if (!strcmp(way, "abort") && rank == 1) MPI_Abort(MPI_COMM_WORLD, 9);
    if (!strcmp(way, "exit") && rank == 1) exit(5);
    if (!strcmp(way, "crash") && rank == 1) raise(SIGSEGV);
    if (!strcmp(way, "window")) {
        MPI_Win window;
        int memory;
        MPI_Win_create(&memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    }
    if (strcmp(way, "return")) MPI_Recv(&rank, 1, MPI_INT, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    DO(MPI_Finalize());
    return 7;
}
