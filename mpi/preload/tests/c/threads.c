/* Threads that send and receive concurrently, by different calls in turn. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, MESSAGES = 500, LENGTH = 300 };

static MPI_Comm comms[THREADS];

static void *works(void *number) {
    int thread = (int)(long)number, next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    int out[LENGTH], in[LENGTH];
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Request request;
        MPI_Status status;
        fill(out, LENGTH, rank);
        out[0] = value(thread, i);
        switch (i % 4) {
        case 0:
            DO(MPI_Irecv(in, LENGTH, MPI_INT, before, thread, MPI_COMM_WORLD, &request));
            DO(MPI_Send(out, LENGTH, MPI_INT, next, thread, MPI_COMM_WORLD));
            DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
            break;
        case 1: DO(MPI_Sendrecv(out, LENGTH, MPI_INT, next, 0, in, LENGTH, MPI_INT, before, 0, comms[thread], &status)); break;
        case 2:
            memcpy(in, out, sizeof in);
            DO(MPI_Sendrecv_replace(in, LENGTH, MPI_INT, next, 1, before, 1, comms[thread], MPI_STATUS_IGNORE));
            break;
        default:
            DO(MPI_Isend(out, LENGTH, MPI_INT, next, 2, comms[thread], &request));
            DO(MPI_Recv(in, LENGTH, MPI_INT, before, 2, comms[thread], MPI_STATUS_IGNORE));
            DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
        }
        CHECK(in[0] == value(thread, i) && in[LENGTH - 1] == value(before, LENGTH - 1));
        if (i % 50 == 0) DO(MPI_Barrier(comms[thread]));
    }
    return NULL;
}

/* All threads send on one stream; one thread receives, and its order defines that of the stream. */
static void *shares(void *number) {
    int thread = (int)(long)number, next = (rank + 1) % ranks, out[LENGTH];
    for (int i = 0; i < MESSAGES; i++) {
        fill(out, LENGTH, rank);
        out[0] = value(thread, i);
        int length = 1 + (thread * 7 + i) % LENGTH;
        if (i % 3 == 0) DO(MPI_Send(out, length, MPI_INT, next, 50, MPI_COMM_WORLD));
        else {
            MPI_Request request;
            DO(MPI_Isend(out, length, MPI_INT, next, 50, MPI_COMM_WORLD, &request));
            DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
        }
    }
    return NULL;
}

static void receives(void) {
    int in[LENGTH], before = (rank + ranks - 1) % ranks, expected[THREADS] = {0};
    for (int i = 0; i < THREADS * MESSAGES; i++) {
        DO(MPI_Recv(in, LENGTH, MPI_INT, before, 50, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        int thread = in[0] / 100000;
        CHECK(thread >= 0 && thread < THREADS && in[0] == value(thread, expected[thread]));
        expected[thread]++;
    }
}

int main(int argc, char **argv) {
    int provided;
    pthread_t threads[THREADS];
    DO(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    DO(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    DO(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    if (provided < MPI_THREAD_MULTIPLE) {
        fprintf(stderr, "this MPI has no MPI_THREAD_MULTIPLE\n");
        MPI_Abort(MPI_COMM_WORLD, 4);
    }
    for (int i = 0; i < THREADS; i++) DO(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
    for (long i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, works, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (long i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, shares, (void *)i) == 0);
    receives();
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < THREADS; i++) DO(MPI_Comm_free(&comms[i]));
    return end("threads");
}
