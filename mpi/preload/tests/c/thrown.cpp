/* An error handler that throws a C++ exception out of the call. With an argument: at MPI_THREAD_MULTIPLE. */
#include <cstring>
#include <stdexcept>

#include "check.h"

static void handler(MPI_Comm *, int *, ...) { throw std::runtime_error("MPI"); }

static int out[1000], in[1000];

static int fail(int call) {
    MPI_Request request;
    MPI_Status status;
    switch (call) {
    case 0: return MPI_Send(out, 1, MPI_INT, 99, 0, MPI_COMM_WORLD);
    case 1: return MPI_Send(out, 1000, MPI_INT, rank, -5, MPI_COMM_WORLD);
    case 2: return MPI_Isend(out, 1, MPI_INT, rank, -5, MPI_COMM_WORLD, &request);
    case 3: return MPI_Irecv(in, 1, MPI_INT, 99, 0, MPI_COMM_WORLD, &request);
    case 4: return MPI_Recv(in, 1, MPI_INT, 99, 0, MPI_COMM_WORLD, &status);
    case 5: return MPI_Sendrecv(out, 1, MPI_INT, 99, 0, in, 1, MPI_INT, rank, 0, MPI_COMM_WORLD, &status);
    case 6: return MPI_Bcast(out, 1, MPI_INT, 99, MPI_COMM_WORLD);
    default: return MPI_Sendrecv_replace(out, 1, MPI_INT, 99, 0, rank, 0, MPI_COMM_WORLD, &status);
    }
}

int main(int argc, char **argv) {
    int level, caught = 0;
    MPI_Errhandler errhandler;
    MPI_Status status;
    DO(MPI_Init_thread(&argc, &argv, argc > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level));
    DO(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    DO(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    DO(MPI_Comm_create_errhandler(handler, &errhandler));
    DO(MPI_Comm_set_errhandler(MPI_COMM_WORLD, errhandler));
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (int call = 0; call < 8; call++) {
        try {
            fail(call);
        } catch (const std::runtime_error &) {
            caught++;
        }
        CHECK(caught == call + 1);
        fill(out, 1000, rank);
        DO(MPI_Sendrecv(out, 500, MPI_INT, next, call, in, 500, MPI_INT, before, call, MPI_COMM_WORLD, &status));
        CHECK(holds(in, 500, before));
    }
    DO(MPI_Errhandler_free(&errhandler));
    return end("thrown");
}
