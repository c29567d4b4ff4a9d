/* Lets a process hang in its next MPI_Improbe after SIGUSR1. Preloaded. */
#include <mpi.h>
#include <signal.h>

static volatile sig_atomic_t hangs;

static void hang(int signal) {
    (void)signal;
    hangs = 1;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    signal(SIGUSR1, hang);
    return PMPI_Init_thread(argc, argv, required, provided);
}

int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status) {
    while (hangs) {
    }
    return PMPI_Improbe(source, tag, comm, flag, message, status);
}
