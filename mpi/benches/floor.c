/* Floor of a log that keeps everything: each message is copied into new memory (floor.h), and nothing else is done.
 *
 * A library to preload into a benchmark that sends by the calls below. */
#include "floor.h"

/* From OVERLAP_BYTES on a message is copied while it is under way, as in the logging library, and from HALVES_BYTES on its second half first. */
enum { OVERLAP_BYTES = 257, HALVES_BYTES = 1 << 20, HEADER_WORDS = 4 };

/* A message: its bytes are one piece of memory, or have to be packed. */
typedef struct {
    const void *buf;
    int count;
    MPI_Datatype type;
    size_t len;
    int is_one_piece;
} Message;

static Message message(const void *buf, int count, MPI_Datatype type) {
    Message it = {buf, count, type, (size_t)count, 1};
    if (type != MPI_BYTE && type != MPI_UINT8_T) {
        int bytes = 0;
        MPI_Aint lower = 0, extent = 0;
        PMPI_Type_size(type, &bytes);
        PMPI_Type_get_extent(type, &lower, &extent);
        it.len = (size_t)bytes * (size_t)count;
        it.is_one_piece = buf != MPI_BOTTOM && lower == 0 && extent == bytes;
    }
    return it;
}

static void keep(Message it, int to, int tag) {
    size_t half = it.len >= HALVES_BYTES ? it.len / 2 : 0;
    uint64_t header[HEADER_WORDS] = {it.len, (uint64_t)to, (uint64_t)tag, 0};
    char *record = claim(sizeof header + it.len), *body = record + sizeof header;
    memcpy(record, header, sizeof header);
    if (it.is_one_piece) {
        memcpy(body + half, (const char *)it.buf + half, it.len - half);
        memcpy(body, it.buf, half);
    } else {
        int position = 0;
        PMPI_Pack(it.buf, it.count, it.type, body, (int)it.len, &position, MPI_COMM_SELF);
    }
}

int MPI_Init(int *argc, char ***argv) {
    int code = PMPI_Init(argc, argv);
    reserve();
    return code;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    int code = PMPI_Init_thread(argc, argv, required, provided);
    reserve();
    return code;
}

int MPI_Send(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    MPI_Request request;
    Message it = message(buf, count, type);
    int code;
    if (it.len < OVERLAP_BYTES) {
        code = PMPI_Send(buf, count, type, to, tag, comm);
        keep(it, to, tag);
        return code;
    }
    code = PMPI_Isend(buf, count, type, to, tag, comm, &request);
    if (code != MPI_SUCCESS) return code;
    keep(it, to, tag);
    return PMPI_Wait(&request, MPI_STATUS_IGNORE);
}

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
    int code = PMPI_Isend(buf, count, type, to, tag, comm, request);
    keep(message(buf, count, type), to, tag);
    return code;
}

int MPI_Sendrecv(const void *buf, int count, MPI_Datatype type, int to, int tag, void *into, int most, MPI_Datatype as, int from, int as_tag,
                 MPI_Comm comm, MPI_Status *status) {
    MPI_Request receive, send;
    int code = PMPI_Irecv(into, most, as, from, as_tag, comm, &receive);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Isend(buf, count, type, to, tag, comm, &send);
    if (code != MPI_SUCCESS) return code;
    PMPI_Wait(&send, MPI_STATUS_IGNORE);
    return PMPI_Wait(&receive, status);
}
