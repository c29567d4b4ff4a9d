/* Collective operations on five communicators, under way at once and completed in any order. The argument is the number of rounds. */
#include "check.h"

enum { COMMS = 5, LEN = 100 };

int main(int argc, char **argv) {
    begin(&argc, &argv);
    int rounds = argc > 1 ? atoi(argv[1]) : 200;
    MPI_Comm comms[COMMS] = {MPI_COMM_WORLD};
    DO(MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]));
    DO(MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comms[2]));
    DO(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comms[3]));
    DO(MPI_Comm_dup(comms[3], &comms[4]));
    long in[COMMS][LEN], out[COMMS][LEN], sum = rank + 1;
    for (int round = 0; round < rounds; round++) {
        MPI_Request requests[COMMS];
        for (int i = 0; i < COMMS; i++) {
            int size, at, count = LEN;
            DO(MPI_Comm_size(comms[i], &size));
            DO(MPI_Comm_rank(comms[i], &at));
            for (int j = 0; j < LEN; j++) in[i][j] = out[i][j] = sum + i * j + at;
            switch ((round + i) % 4) {
            case 0: DO(MPI_Iallreduce(in[i], out[i], count, MPI_LONG, MPI_SUM, comms[i], &requests[i])); break;
            case 1: DO(MPI_Ibcast(out[i], count, MPI_LONG, round % size, comms[i], &requests[i])); break;
            case 2: DO(MPI_Ialltoall(in[i], LEN / size, MPI_LONG, out[i], LEN / size, MPI_LONG, comms[i], &requests[i])); break;
            default: DO(MPI_Iscan(in[i], out[i], count, MPI_LONG, MPI_MAX, comms[i], &requests[i]));
            }
        }
        for (int left = COMMS; left > 0; left--) {
            int done;
            DO(MPI_Waitany(COMMS, requests, &done, MPI_STATUS_IGNORE));
            CHECK(done != MPI_UNDEFINED);
        }
        for (int i = 0; i < COMMS; i++)
            for (int j = 0; j < LEN; j++) sum = (sum * 31 + out[i][j]) % 1000003;
        if (round % (rounds / 10 + 1) == 0) printf("round %d, rank %d: %ld\n", round, rank, sum);
    }
    printf("rank %d: %ld\n", rank, sum);
    for (int i = 1; i < COMMS; i++) DO(MPI_Comm_free(&comms[i]));
    DO(MPI_Finalize());
    return 0;
}
