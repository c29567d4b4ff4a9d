/* `graphs COUNT`: COUNT non-blocking barriers, then many distributed graphs, all on MPI_COMM_WORLD. In Open MPI 4 the tag of a non-blocking
 * collective is a count on its communicator, and passes the tags of the messages in MPI_Dist_graph_create: with some counts a call hangs. */
#include "check.h"

int main(int argc, char **argv) {
    CHECK(argc == 2);
    DO(MPI_Init(&argc, &argv));
    DO(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    DO(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    for (int i = 0; i < atoi(argv[1]); i++) {
        MPI_Request request;
        DO(MPI_Ibarrier(MPI_COMM_WORLD, &request));
        DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    for (int i = 0; i < 30; i++) {
        int degree = 1, next = (rank + 1) % ranks;
        MPI_Comm made;
        DO(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, &degree, &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made));
        DO(MPI_Comm_free(&made));
    }
    if (rank == 0) printf("graphs: ok on %d ranks\n", ranks);
    DO(MPI_Finalize());
    return 0;
}
