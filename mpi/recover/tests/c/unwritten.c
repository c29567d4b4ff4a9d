/* A program that sends what it has not written: memory that it has used before. The argument makes it send its process id, too. */
#include <unistd.h>

#include "check.h"

enum { STEPS = 40 };

/* Leaves bytes in memory that differ in each process, and returns such a block. */
static unsigned char *unwritten(size_t bytes) {
    int pid = getpid();
    unsigned char *block = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) block[i] = (pid >> i % 3 * 8) + i;
    free(block);
    return malloc(bytes);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    for (int step = 0; step < STEPS; step++) {
        size_t bytes = (size_t)16 << step % 14;
        unsigned char *sent = unwritten(bytes), *received = unwritten(bytes);
        int pid = getpid();
        if (argc > 1) memcpy(sent, &pid, sizeof pid);
        DO(MPI_Sendrecv(sent, bytes, MPI_BYTE, next, step, received, bytes, MPI_BYTE, previous, step, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
        free(sent);
        free(received);
    }
    printf("unwritten: %d steps on rank %d\n", STEPS, rank);
    DO(MPI_Finalize());
    return 0;
}
