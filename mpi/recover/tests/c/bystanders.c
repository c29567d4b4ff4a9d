/* Clocks that are read while another thread is in a call of MPI, and in a child of the rank. With an argument, two threads are in calls
 * of MPI at once. */
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static int received;

static void *receive(void *nothing) {
    DO(MPI_Recv(&received, 1, MPI_INT, (rank + 1) % ranks, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    return nothing;
}

static double now(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void wait_for(double seconds) {
    double begun = now(), last = begun;
    while (last < begun + seconds) {
        double next = now();
        CHECK(next >= last);
        last = next;
    }
}

int main(int argc, char **argv) {
    int provided, sent;
    DO(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided));
    CHECK(provided >= MPI_THREAD_SERIALIZED);
    know_ranks();
    /* In turn, so that one rank waits in a thread of its own. */
    for (int turn = 0; turn < ranks; turn++) {
        if (turn == rank) {
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, receive, NULL) == 0);
            wait_for(0.05);
            CHECK(pthread_join(thread, NULL) == 0 && received == turn);
        } else if (turn == (rank + ranks - 1) % ranks) {
            wait_for(0.1);
            sent = turn;
            DO(MPI_Send(&sent, 1, MPI_INT, turn, 7, MPI_COMM_WORLD));
        }
        DO(MPI_Barrier(MPI_COMM_WORLD));
    }
    if (argc > 1 && rank == 1) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, receive, NULL) == 0);
        /* Nothing is sent that it receives, so it stays in its call. */
        for (int found;;) DO(MPI_Iprobe(0, 8, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        wait_for(0.01);
        exit(now() > 0 ? 5 : 6);
    }
    wait_for(0.02);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    DO(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) printf("bystanders: %d ranks\n", ranks);
    DO(MPI_Finalize());
    return 0;
}
