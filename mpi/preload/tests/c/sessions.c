/* A program of sessions, without MPI_Init; with an argument, MPI_Init follows. */
#include "check.h"

static void exchange(MPI_Comm comm) {
    int got = -1, next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    DO(MPI_Sendrecv(&rank, 1, MPI_INT, next, 0, &got, 1, MPI_INT, before, 0, comm, MPI_STATUS_IGNORE));
    CHECK(got == before);
}

int main(int argc, char **argv) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    DO(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    DO(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
    DO(MPI_Comm_create_from_group(group, "counterfoil.sessions", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    DO(MPI_Comm_rank(comm, &rank));
    DO(MPI_Comm_size(comm, &ranks));
    exchange(comm);
    if (argc > 1) {
        begin(&argc, &argv);
        exchange(MPI_COMM_WORLD);
        DO(MPI_Finalize());
    }
    if (rank == 0) printf("sessions: ok on %d ranks\n", ranks);
    DO(MPI_Comm_free(&comm));
    DO(MPI_Group_free(&group));
    DO(MPI_Session_finalize(&session));
    return 0;
}
