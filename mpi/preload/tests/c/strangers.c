/* MPI_Comm_create with a group that has processes from outside its communicator: an error, which Open MPI 5 doesn't find. */
#include "check.h"

static void exchange(MPI_Comm comm, int next, int before) {
    int got = -1;
    DO(MPI_Sendrecv(&rank, 1, MPI_INT, next, 0, &got, 1, MPI_INT, before, 0, comm, MPI_STATUS_IGNORE));
    CHECK(got >= 0);
}

int main(int argc, char **argv) {
    MPI_Comm low, made = MPI_COMM_NULL;
    MPI_Group world, high;
    begin(&argc, &argv);
    DO(MPI_Comm_split(MPI_COMM_WORLD, rank < 2, -rank, &low));
    DO(MPI_Comm_set_errhandler(low, MPI_ERRORS_RETURN));
    DO(MPI_Comm_group(MPI_COMM_WORLD, &world));
    int range[1][3] = {{1, ranks - 1, 1}};
    DO(MPI_Group_range_incl(world, 1, range, &high));
    if (rank < 2) {
        int code = MPI_Comm_create(low, high, &made);
        if (code == MPI_SUCCESS && made != MPI_COMM_NULL) DO(MPI_Comm_free(&made));
        exchange(low, 1 - rank, 1 - rank);
    }
    exchange(MPI_COMM_WORLD, (rank + 1) % ranks, (rank + ranks - 1) % ranks);
    DO(MPI_Group_free(&high));
    DO(MPI_Group_free(&world));
    DO(MPI_Comm_free(&low));
    return end("strangers");
}
