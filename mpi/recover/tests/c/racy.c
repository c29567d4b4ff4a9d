/* A program whose run depends on timing: rank 0 takes results of any worker, by receives, tests and probes in turn, reads the clock,
 * and gives out what is left. In the end each worker checks that rank 0 has seen what it sent, in the order in which it sent it. */
#include "check.h"

enum { TASKS = 3000, WORK = 1, RESULT = 2, STOP = 3, CHECKSUM = 4 };

static unsigned mix(unsigned sum, unsigned value) { return sum * 1000003u + value; }

static void lead(void) {
    unsigned sums[64] = {0}, order = 0;
    int given = 0, open = 0;
    double before = MPI_Wtime();
    for (int worker = 1; worker < ranks; worker++, given++, open++) DO(MPI_Send(&given, 1, MPI_INT, worker, WORK, MPI_COMM_WORLD));
    while (open > 0) {
        int result[2], flag = 0, polls = 0;
        MPI_Status status;
        if (open % 3 == 0) {
            for (; !flag; polls++) DO(MPI_Iprobe(MPI_ANY_SOURCE, RESULT, MPI_COMM_WORLD, &flag, &status));
            DO(MPI_Recv(result, 2, MPI_INT, status.MPI_SOURCE, RESULT, MPI_COMM_WORLD, &status));
        } else if (open % 3 == 1) {
            DO(MPI_Recv(result, 2, MPI_INT, MPI_ANY_SOURCE, RESULT, MPI_COMM_WORLD, &status));
        } else {
            MPI_Request request;
            DO(MPI_Irecv(result, 2, MPI_INT, MPI_ANY_SOURCE, RESULT, MPI_COMM_WORLD, &request));
            for (; !flag; polls++) DO(MPI_Test(&request, &flag, &status));
        }
        double now = MPI_Wtime();
        CHECK(now >= before);
        /* The clock, and the number of calls that found nothing, decide what is computed next. */
        int task = given + ((int)((now - before) * 1e9) & 7) + (polls & 7);
        before = now;
        sums[status.MPI_SOURCE] = mix(sums[status.MPI_SOURCE], result[1]);
        order = mix(order, status.MPI_SOURCE);
        int tag = given < TASKS ? WORK : STOP;
        given++;
        DO(MPI_Send(&task, 1, MPI_INT, status.MPI_SOURCE, tag, MPI_COMM_WORLD));
        if (tag == STOP) open--;
        if (given % 500 == 0) printf("racy: %d given, order %u\n", given, order);
    }
    for (int worker = 1; worker < ranks; worker++) DO(MPI_Send(&sums[worker], 1, MPI_UNSIGNED, worker, CHECKSUM, MPI_COMM_WORLD));
}

static void work(void) {
    unsigned sum = 0, seen;
    for (;;) {
        int task, result[2] = {rank};
        MPI_Status status;
        DO(MPI_Recv(&task, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
        if (status.MPI_TAG == STOP) break;
        result[1] = task * 7 + rank;
        sum = mix(sum, result[1]);
        DO(MPI_Send(result, 2, MPI_INT, 0, RESULT, MPI_COMM_WORLD));
    }
    DO(MPI_Recv(&seen, 1, MPI_UNSIGNED, 0, CHECKSUM, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(seen == sum);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    if (rank == 0) lead();
    else work();
    int one = 1, all = 0;
    DO(MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    if (rank == 0) printf("racy: consistent on %d ranks\n", all);
    DO(MPI_Finalize());
    return 0;
}
