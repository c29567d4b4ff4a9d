/* Threads that receive from the same streams concurrently, by every kind of receive: no message is lost or received twice. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, MESSAGES = 400, ALL = THREADS * MESSAGES };

static int next, before, taken[ALL];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *sends(void *number) {
    (void)number;
    for (int i = 0; i < ALL; i++) DO(MPI_Send(&i, 1, MPI_INT, next, 3, MPI_COMM_WORLD));
    return NULL;
}

static void *receives(void *number) {
    int thread = (int)(long)number, last = -1;
    for (int i = 0; i < MESSAGES; i++) {
        int got[2] = {-1, -1}, flag = 0, dummy = 0, out = thread;
        MPI_Request request;
        MPI_Message message;
        switch ((thread + i) % 6) {
        case 0: DO(MPI_Recv(got, 1, MPI_INT, before, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE)); break;
        case 1:
            DO(MPI_Irecv(got, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &request));
            DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
            break;
        case 2:
            DO(MPI_Mprobe(before, 3, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
            DO(MPI_Mrecv(got, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
            break;
        case 3:
            while (!flag) DO(MPI_Improbe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE));
            DO(MPI_Imrecv(got, 1, MPI_INT, &message, &request));
            DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
            break;
        case 4:
            DO(MPI_Irecv(got, 1, MPI_INT, before, 3, MPI_COMM_WORLD, &request));
            while (!flag) DO(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
            break;
        default:
            DO(MPI_Sendrecv(&out, 1, MPI_INT, rank, 10 + thread, got, 1, MPI_INT, before, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            DO(MPI_Recv(&dummy, 1, MPI_INT, rank, 10 + thread, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(dummy == thread);
        }
        /* Each thread receives its messages in the order of sending. */
        CHECK(got[0] > last && got[0] < ALL && got[1] == -1);
        last = got[0];
        pthread_mutex_lock(&lock);
        taken[last]++;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int provided;
    pthread_t threads[THREADS + 1];
    DO(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    DO(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    DO(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    CHECK(provided == MPI_THREAD_MULTIPLE);
    next = (rank + 1) % ranks;
    before = (rank + ranks - 1) % ranks;
    CHECK(pthread_create(&threads[THREADS], NULL, sends, NULL) == 0);
    for (long i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, receives, (void *)i) == 0);
    for (int i = 0; i <= THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < ALL; i++) CHECK(taken[i] == 1);
    return end("sharing");
}
