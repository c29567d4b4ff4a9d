/* A stream in one direction: rank 0 only sends, rank 1 only receives.
 *
 *     stream [MESSAGES] [PAUSE_MS] [send|isend] [return|fatal]
 *
 * MESSAGES messages of 8 to 64 bytes, at full speed, with values that are checked. Rank 1 begins to receive after PAUSE_MS
 * milliseconds: until then blocking sends wait for room in the MPI's buffers, and immediate ones are all started. A send that fails
 * ends the stream or (`fatal`) the job, by the error handler. An empty message with another tag ends the stream: sent and
 * received by the profiling interface, so not logged. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, words = 1, code = MPI_SUCCESS;
    long messages = argc > 1 ? atol(argv[1]) : 100000, pause_ms = argc > 2 ? atol(argv[2]) : 0, done = 0, wrong = 0;
    int is_immediate = argc > 3 && !strcmp(argv[3], "isend"), is_fatal = argc > 4 && !strcmp(argv[4], "fatal");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!is_fatal) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        size_t slots = is_immediate ? (size_t)messages : 1;
        unsigned long(*text)[8] = malloc(slots * sizeof *text);
        MPI_Request *requests = malloc(slots * sizeof *requests);
        for (; done < messages; done++) {
            unsigned long *slot = text[is_immediate ? done : 0];
            words = 1 + (int)(done % 8);
            for (int i = 0; i < words; i++) slot[i] = (unsigned long)done * 8 + i;
            if (is_immediate) code = MPI_Isend(slot, words, MPI_UNSIGNED_LONG, 1, 1, MPI_COMM_WORLD, &requests[done]);
            else code = MPI_Send(slot, words, MPI_UNSIGNED_LONG, 1, 1, MPI_COMM_WORLD);
            if (code != MPI_SUCCESS) break;
        }
        if (is_immediate) MPI_Waitall((int)done, requests, MPI_STATUSES_IGNORE);
        PMPI_Send(text, 0, MPI_UNSIGNED_LONG, 1, 2, MPI_COMM_WORLD);
        free(requests);
        free(text);
    } else if (rank == 1) {
        usleep((useconds_t)pause_ms * 1000);
        for (;; done++) {
            unsigned long text[8];
            MPI_Status status;
            PMPI_Probe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            if (status.MPI_TAG == 2) {
                PMPI_Recv(text, 0, MPI_UNSIGNED_LONG, 0, 2, MPI_COMM_WORLD, &status);
                break;
            }
            MPI_Recv(text, 8, MPI_UNSIGNED_LONG, 0, 1, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_UNSIGNED_LONG, &words);
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
