/* A stream in one direction: rank 0 sends, rank 1 only receives, and says nothing.
 *
 *     stream [MESSAGES] [PAUSE_MS]
 *
 * MESSAGES messages of 8 to 64 bytes, as fast as they go, with values that are checked. Rank 1 begins to receive after PAUSE_MS
 * milliseconds. A send that fails ends the stream. Its end is a message without bytes, past whatever stands between: it is
 * received like the others, and not logged. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, words = 1;
    long messages = argc > 1 ? atol(argv[1]) : 100000, done = 0, wrong = 0;
    unsigned long text[8];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        for (; done < messages; done++) {
            words = 1 + (int)(done % 8);
            for (int i = 0; i < words; i++) text[i] = (unsigned long)done * 8 + i;
            if (MPI_Send(text, words, MPI_UNSIGNED_LONG, 1, 1, MPI_COMM_WORLD) != MPI_SUCCESS) break;
        }
        PMPI_Send(text, 0, MPI_UNSIGNED_LONG, 1, 1, MPI_COMM_WORLD);
    } else if (rank == 1) {
        if (argc > 2) usleep((useconds_t)atol(argv[2]) * 1000);
        for (;; done++) {
            MPI_Status status;
            MPI_Recv(text, 8, MPI_UNSIGNED_LONG, 0, 1, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_UNSIGNED_LONG, &words);
            if (words == 0) break;
            wrong += words != 1 + (int)(done % 8);
            for (int i = 0; i < words; i++) wrong += text[i] != (unsigned long)done * 8 + i;
        }
        printf("stream: %ld of %ld received, %ld wrong\n", done, messages, wrong);
        fflush(stdout);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return wrong != 0;
}
