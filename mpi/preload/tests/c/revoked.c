/* Messages on communicators that are revoked before they are received: by their sender or, with an argument, by their receiver. All of them
 * together are ten times as long as the logs of the test. */
#include "check.h"

#include <mpi-ext.h>

enum { ROUNDS = 40, COUNT = 1 << 16 };

static const int out[COUNT];

int main(int argc, char **argv) {
    MPI_Comm comm;
    MPI_Request request;
    begin(&argc, &argv);
    int revoker = argc > 1 ? 0 : 1;
    for (int round = 0; round < ROUNDS; round++) {
        DO(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        DO(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
        if (rank == 1) DO(MPI_Isend(out, COUNT, MPI_INT, 0, 7, comm, &request));
        DO(MPI_Barrier(MPI_COMM_WORLD));
        if (rank == revoker) DO(MPIX_Comm_revoke(comm));
        /* It fails, unless the message has left. */
        if (rank == 1) MPI_Wait(&request, MPI_STATUS_IGNORE);
        DO(MPI_Barrier(MPI_COMM_WORLD));
        DO(MPI_Comm_free(&comm));
    }
    return end("revoked");
}
