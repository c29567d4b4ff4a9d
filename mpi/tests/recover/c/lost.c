/* Loses all agreements, as Open MPI 5.0.11 sometimes loses one when two processes die at the same time: they are begun and never end. Preloaded. */
#include <mpi.h>
#include <string.h>

static int query(void *state, MPI_Status *status) {
    (void)state;
    memset(status, 0, sizeof *status);
    return MPI_SUCCESS;
}

static int release(void *state) {
    (void)state;
    return MPI_SUCCESS;
}

static int cancel(void *state, int is_complete) {
    (void)state, (void)is_complete;
    return MPI_SUCCESS;
}

/* Stands before the function of libmpi. */
int PMPIX_Comm_iagree(MPI_Comm comm, int *flag, MPI_Request *request) {
    (void)comm, (void)flag;
    return PMPI_Grequest_start(query, release, cancel, NULL, request);
}
