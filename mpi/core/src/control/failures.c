/* Process failures that other processes outlive: User-Level Failure Mitigation, an extension of Open MPI 5. Without it a failure ends the
 * job. */
#include <mpi.h>
#ifdef __has_include
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif

#ifdef OMPI_HAVE_MPI_EXT_FTMPI

int counterfoil_outlives_failures(void) {
    int *is_on = NULL, is_there = 0;
    return !PMPI_Comm_get_attr(MPI_COMM_WORLD, MPIX_FT, &is_on, &is_there) && is_there && *is_on;
}

int counterfoil_is_failure(int code) {
    int class = 0;
    return !PMPI_Error_class(code, &class) &&
           (class == MPIX_ERR_PROC_FAILED || class == MPIX_ERR_PROC_FAILED_PENDING || class == MPIX_ERR_REVOKED);
}

/* Whether a receive with this error is still pending: a receive from any source that a failure has interrupted. */
int counterfoil_is_pending(int code) {
    int class = 0;
    return !PMPI_Error_class(code, &class) && class == MPIX_ERR_PROC_FAILED_PENDING;
}

int counterfoil_failed_code(void) { return MPIX_ERR_PROC_FAILED; }

/* All processes that have failed so far; receives from any source go on without them. */
int counterfoil_failed(MPI_Comm comm, MPI_Group *failed) {
    int code = PMPIX_Comm_failure_ack(comm);
    return code ? code : PMPIX_Comm_failure_get_acked(comm, failed);
}

int counterfoil_living(MPI_Comm comm, MPI_Comm *living) { return PMPIX_Comm_shrink(comm, living); }

/* Completes when all living processes have called it. */
int counterfoil_meet(MPI_Comm comm, int *flag, MPI_Request *request) {
    return counterfoil_outlives_failures() ? PMPIX_Comm_iagree(comm, flag, request) : PMPI_Ibarrier(comm, request);
}

int counterfoil_revoke(MPI_Comm comm) { return PMPIX_Comm_revoke(comm); }

int counterfoil_is_revoked(MPI_Comm comm) {
    int is_revoked = 0;
    return !PMPIX_Comm_is_revoked(comm, &is_revoked) && is_revoked;
}

#else

int counterfoil_outlives_failures(void) { return 0; }

int counterfoil_is_failure(int code) {
    (void)code;
    return 0;
}

int counterfoil_is_pending(int code) {
    (void)code;
    return 0;
}

int counterfoil_failed_code(void) { return MPI_ERR_OTHER; }

int counterfoil_failed(MPI_Comm comm, MPI_Group *failed) {
    (void)comm, (void)failed;
    return MPI_ERR_UNSUPPORTED_OPERATION;
}

int counterfoil_living(MPI_Comm comm, MPI_Comm *living) {
    (void)comm, (void)living;
    return MPI_ERR_UNSUPPORTED_OPERATION;
}

int counterfoil_meet(MPI_Comm comm, int *flag, MPI_Request *request) {
    (void)flag;
    return PMPI_Ibarrier(comm, request);
}

int counterfoil_revoke(MPI_Comm comm) {
    (void)comm;
    return MPI_ERR_UNSUPPORTED_OPERATION;
}

int counterfoil_is_revoked(MPI_Comm comm) {
    (void)comm;
    return 0;
}

#endif
