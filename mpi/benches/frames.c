/* Floor of recovery: each message is copied into new memory behind a header (floor.h), and both are sent from there as one frame.
 *
 * A receiver takes the next frame by a matched probe, since it doesn't know its length, and copies it into the program's memory. Nothing
 * else is done: no checksum, no matching, no acknowledgement, no credit, no repair. Collectives are made of the frames that recovery sends.
 *
 * A library to preload into operations.c: it has the calls of that program, for two ranks and one message at a time. */
#include "floor.h"

/* Frame header, and length from which an allreduce is combined in blocks, in bytes. */
enum { HEADER_BYTES = 64, BLOCKS_BYTES = 8 << 10 };

static MPI_Comm frames;
static MPI_Request sending = MPI_REQUEST_NULL;
static int rank;
static char *arrived;
static size_t arrived_bytes;

static void require(int holds, const char *what) {
    errno = ENOTSUP;
    if (!holds) fail(what);
}

int MPI_Init(int *argc, char ***argv) {
    int code = PMPI_Init(argc, argv), ranks = 0;
    PMPI_Comm_dup(MPI_COMM_WORLD, &frames);
    PMPI_Comm_rank(frames, &rank);
    PMPI_Comm_size(frames, &ranks);
    require(ranks == 2, "two ranks are needed");
    reserve();
    return code;
}

/* A send is complete when its message is in the log, where it stays: only the next one waits for the MPI. */
static void send_frame(const void *buf, size_t len, int to) {
    char *frame = claim(HEADER_BYTES + len);
    memset(frame, 0, HEADER_BYTES);
    if (len) memcpy(frame + HEADER_BYTES, buf, len);
    PMPI_Wait(&sending, MPI_STATUS_IGNORE);
    PMPI_Isend(frame, (int)(HEADER_BYTES + len), MPI_BYTE, to, 0, frames, &sending);
}

/* Receives a frame; `into` may be NULL. Returns its message, valid until the next one. */
static const void *receive_frame(void *into, size_t most) {
    int found = 0, bytes = 0;
    MPI_Message message;
    MPI_Status status;
    while (!found) PMPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, frames, &found, &message, &status);
    PMPI_Get_count(&status, MPI_BYTE, &bytes);
    require((size_t)bytes <= HEADER_BYTES + most, "a message is longer than the receive");
    if ((size_t)bytes > arrived_bytes) {
        arrived_bytes = (size_t)bytes;
        arrived = realloc(arrived, arrived_bytes);
        if (!arrived) fail("a frame's memory");
    }
    PMPI_Mrecv(arrived, bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    if (into) memcpy(into, arrived + HEADER_BYTES, (size_t)bytes - HEADER_BYTES);
    return arrived + HEADER_BYTES;
}

int MPI_Send(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    require(type == MPI_BYTE && tag == 0 && comm == MPI_COMM_WORLD, "MPI_Send");
    send_frame(buf, (size_t)count, to);
    return MPI_SUCCESS;
}

int MPI_Recv(void *buf, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status) {
    require(type == MPI_BYTE && from == !rank && tag == 0 && comm == MPI_COMM_WORLD && status == MPI_STATUS_IGNORE, "MPI_Recv");
    receive_frame(buf, (size_t)count);
    return MPI_SUCCESS;
}

int MPI_Barrier(MPI_Comm comm) {
    require(comm == MPI_COMM_WORLD, "MPI_Barrier");
    send_frame(NULL, 0, !rank);
    receive_frame(NULL, 0);
    return MPI_SUCCESS;
}

int MPI_Bcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    require(type == MPI_BYTE && comm == MPI_COMM_WORLD, "MPI_Bcast");
    if (rank == root)
        send_frame(buf, (size_t)count, !rank);
    else
        receive_frame(buf, (size_t)count);
    return MPI_SUCCESS;
}

/* Sends one block, and adds the other rank's numbers to those of another block. */
static void exchange_sum(const double *sent, size_t sent_count, const double *own, double *sum, size_t count) {
    send_frame(sent, sent_count * sizeof *sent, !rank);
    const double *other = receive_frame(NULL, count * sizeof *own);
    for (size_t i = 0; i < count; i++) sum[i] = own[i] + other[i];
}

int MPI_Allreduce(const void *from, void *into, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm comm) {
    require(type == MPI_DOUBLE && operation == MPI_SUM && comm == MPI_COMM_WORLD && from != MPI_IN_PLACE, "MPI_Allreduce");
    size_t len = (size_t)count, half = len / 2;
    const double *own = from;
    double *sum = into;
    if (len * sizeof *own < BLOCKS_BYTES) {
        exchange_sum(own, len, own, sum, len);
        return MPI_SUCCESS;
    }
    /* Rank 0 combines the first block. */
    size_t mine = rank ? half : 0, mine_len = rank ? len - half : half, theirs = rank ? 0 : half, theirs_len = len - mine_len;
    exchange_sum(own + theirs, theirs_len, own + mine, sum + mine, mine_len);
    send_frame(sum + mine, mine_len * sizeof *own, !rank);
    receive_frame(sum + theirs, theirs_len * sizeof *own);
    return MPI_SUCCESS;
}

int MPI_Finalize(void) {
    PMPI_Wait(&sending, MPI_STATUS_IGNORE);
    PMPI_Comm_free(&frames);
    return PMPI_Finalize();
}
