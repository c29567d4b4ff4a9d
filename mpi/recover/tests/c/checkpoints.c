/* `checkpoints`: set-up with messages of every kind, checkpoints that can't be taken, and some that are, in the midst of messages that wait. */
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "counterfoil_checkpoint.h"

enum { STEPS = 60, WAITING = 3 };

/* Reads clocks, none of which may be behind its last reading. */
static void read_clocks(double last[3]) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    double now[] = {MPI_Wtime(), clock() / (double)CLOCKS_PER_SEC, usage.ru_utime.tv_sec + usage.ru_utime.tv_usec * 1e-6};
    for (int i = 0; i < 3; i++) {
        CHECK(now[i] >= last[i]);
        last[i] = now[i];
    }
}

int main(int argc, char **argv) {
    int step = 0, sum = 0, in, all, refused = 0;
    double clocks[3] = {0};
    DO(MPI_Init(&argc, &argv));
    know_ranks();
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;

    /* Wildcards, polls, clocks, collective operations, communicators, a persistent request. */
    double begun = MPI_Wtime();
    for (int i = 0; i < 5; i++) {
        MPI_Status status;
        int flag = 0;
        DO(MPI_Send(&rank, 1, MPI_INT, next, i, MPI_COMM_WORLD));
        while (!flag) DO(MPI_Iprobe(MPI_ANY_SOURCE, i, MPI_COMM_WORLD, &flag, &status));
        DO(MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, i, MPI_COMM_WORLD, &status));
        CHECK(in == before && status.MPI_SOURCE == before);
        DO(MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        sum += all;
    }
    MPI_Comm ring, half;
    DO(MPI_Comm_dup(MPI_COMM_WORLD, &ring));
    DO(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half));
    MPI_Request persistent;
    int out = 0;
    DO(MPI_Send_init(&out, 1, MPI_INT, next, 7, ring, &persistent));
    /* Started before the program is set up, and ended after it; a freed receive; one that is freed later, and whose number is used again. */
    MPI_Request early, orphan, number;
    int from_early = -1, from_orphan = -1;
    DO(MPI_Recv_init(&from_early, 1, MPI_INT, before, 8, ring, &early));
    DO(MPI_Start(&early));
    DO(MPI_Irecv(&from_orphan, 1, MPI_INT, before, 6, ring, &orphan));
    DO(MPI_Request_free(&orphan));
    DO(MPI_Send_init(&rank, 1, MPI_INT, before, 5, ring, &number));
    CHECK(counterfoil_protect(1, &step, sizeof step) == 0);
    CHECK(counterfoil_protect(2, &sum, sizeof sum) == 0);
    CHECK(counterfoil_protect(3, NULL, 0) == 0);
    CHECK(counterfoil_protect(4, clocks, sizeof clocks) == 0);
    if (rank == 0) printf("set up, and a line that isn't complete: ");
    int goes_on = counterfoil_restarted();
    CHECK(MPI_Wtime() >= begun);

    if (!goes_on) {
        refused += counterfoil_checkpoint();
        DO(MPI_Send(&rank, 1, MPI_INT, next, 8, ring));
        DO(MPI_Send(&rank, 1, MPI_INT, next, 6, ring));
        DO(MPI_Wait(&early, MPI_STATUS_IGNORE));
        CHECK(from_early == before);
        while (from_orphan != before) DO(MPI_Iprobe(MPI_ANY_SOURCE, 99, ring, &in, MPI_STATUS_IGNORE));
        MPI_Request again;
        DO(MPI_Request_free(&number));
        DO(MPI_Recv_init(&in, 1, MPI_INT, before, 5, ring, &again));
        refused += counterfoil_checkpoint();
        DO(MPI_Request_free(&again));
    }
    for (; step < STEPS; step++) {
        /* More processor time than a new process has used. */
        for (clock_t begun = clock(); step == 0 && clock() - begun < CLOCKS_PER_SEC / 10;) {}
        read_clocks(clocks);
        if (step % 7 == 5) CHECK(counterfoil_checkpoint() == 0);
        /* Messages that wait for a later step are in the checkpoint. */
        for (int i = 0; step % 10 == 0 && i < WAITING; i++) {
            int number = step * 100 + i;
            DO(MPI_Send(&number, 1, MPI_INT, next, 50 + i, ring));
        }
        if (step % 7 == 3) {
            MPI_Request request;
            DO(MPI_Irecv(&in, 1, MPI_INT, before, 9, ring, &request));
            refused += counterfoil_checkpoint();
            DO(MPI_Send(&step, 1, MPI_INT, next, 9, ring));
            DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
            MPI_Comm made;
            DO(MPI_Comm_dup(ring, &made));
            refused += counterfoil_checkpoint();
            DO(MPI_Comm_free(&made));
            MPI_Message message;
            DO(MPI_Send(&step, 1, MPI_INT, next, 10, ring));
            DO(MPI_Mprobe(before, 10, ring, &message, MPI_STATUS_IGNORE));
            refused += counterfoil_checkpoint();
            DO(MPI_Mrecv(&in, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
        }
        out = step * ranks + rank;
        DO(MPI_Start(&persistent));
        DO(MPI_Recv(&in, 1, MPI_INT, before, 7, ring, MPI_STATUS_IGNORE));
        DO(MPI_Wait(&persistent, MPI_STATUS_IGNORE));
        CHECK(in == step * ranks + before);
        DO(MPI_Allreduce(&in, &all, 1, MPI_INT, MPI_SUM, half));
        sum = (sum * 31 + all) % 1000003;
        for (int i = WAITING - 1; step % 10 == 9 && i >= 0; i--) {
            DO(MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 50 + i, ring, MPI_STATUS_IGNORE));
            CHECK(in == (step - 9) * 100 + i);
        }
        if (rank == 0 && step % 4 == 0) printf("%d\nstep %d, more: ", sum, step);
    }
    if (rank == 0) printf("\nsum %d\n", sum);
    fprintf(stderr, "rank %d: refused %d, restarted %d\n", rank, refused, goes_on);
    DO(MPI_Request_free(&persistent));
    DO(MPI_Request_free(&early));
    DO(MPI_Comm_free(&half));
    DO(MPI_Comm_free(&ring));
    DO(MPI_Finalize());
    return 0;
}
