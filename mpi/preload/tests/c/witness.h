/* State of the witness: known communicators, counts of sent messages, received messages, and active requests. */
#ifndef WITNESS_H
#define WITNESS_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The next definition of an MPI function after this library's. */
#define NEXT(name)                                                                       \
    ({                                                                                   \
        static __typeof__(&MPI_##name) found;                                            \
        if (!found) found = (__typeof__(&MPI_##name))dlsym(RTLD_NEXT, "MPI_" #name);     \
        found;                                                                           \
    })

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
#define LOCKED(work)                 \
    do {                             \
        pthread_mutex_lock(&lock);   \
        work;                        \
        pthread_mutex_unlock(&lock); \
    } while (0)

/* Grows a table of `count` elements, if needed, for one more. */
#define GROW(table, count)                                                                    \
    do {                                                                                      \
        if (((count) & ((count) - 1)) == 0)                                                   \
            (table) = realloc((table), sizeof *(table) * ((count) ? 2 * (size_t)(count) : 1)); \
    } while (0)

typedef struct { MPI_Comm handle; int size, *world; } Comm;
typedef struct { long long messages, bytes, passed, passed_bytes; } Sent;
typedef struct { uint64_t ticket, hash; long long bytes; int source, comm, tag, seen; } Receipt;
typedef struct { void *buf; long long count; MPI_Datatype type; int source, tag, comm, partitioned, type_is_ours; uint64_t ticket; } Receive; /* partitioned: number of the pair, or 0 */
typedef struct { long long count; MPI_Datatype type; int dest; MPI_Comm comm; } Send;
typedef struct { MPI_Request handle; enum { FREE, ONCE, SENDS, RECEIVES } kind; int active; Receive receive; Send send; } Request;
typedef struct { MPI_Message handle; int comm; uint64_t ticket; } Message;

static Comm *comms;
static Sent *sent;
static Receipt *receipts;
static Request *requests;
static Message *messages;
static int comm_count, ranks, is_passing, pairs;
static size_t receipt_count, request_count, message_count;
static uint64_t tickets;

static uint64_t hash_of(const unsigned char *bytes, size_t count) {
    uint64_t hash = count + 1, word;
    for (size_t at = 0; at < count; at += 8) {
        size_t now = count - at < 8 ? count - at : 8;
        word = 0;
        memcpy(&word, bytes + at, now);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

static int number_of(MPI_Comm handle) {
    for (int i = comm_count - 1; i >= 0; i--)
        if (comms[i].handle == handle) return i;
    int inter, size;
    MPI_Group group, world;
    PMPI_Comm_test_inter(handle, &inter);
    if (inter) PMPI_Comm_remote_group(handle, &group);
    else PMPI_Comm_group(handle, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_size(group, &size);
    /* Control messages between logs are not messages of the program. */
    char name[MPI_MAX_OBJECT_NAME];
    int length;
    PMPI_Comm_get_name(handle, name, &length);
    if (!strncmp(name, "counterfoil", strlen("counterfoil"))) size = 0;
    GROW(comms, comm_count);
    Comm *comm = &comms[comm_count];
    *comm = (Comm){handle, size, malloc(sizeof(int) * (size + 1))};
    int *all = malloc(sizeof(int) * (size + 1));
    for (int i = 0; i < size; i++) all[i] = i;
    PMPI_Group_translate_ranks(group, size, all, world, comm->world);
    free(all);
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    if (!sent) {
        PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
        sent = calloc(ranks, sizeof *sent);
    }
    return comm_count++;
}

static int world_of(int comm, int rank) {
    if (rank < 0 || rank >= comms[comm].size) return -1;
    return comms[comm].world[rank] == MPI_UNDEFINED ? -1 : comms[comm].world[rank];
}

static void count_send(long long count, MPI_Datatype type, int dest, MPI_Comm comm) {
    int to = world_of(number_of(comm), dest);
    MPI_Count size;
    if (to < 0) return;
    PMPI_Type_size_x(type, &size);
    Sent *channel = &sent[to];
    *(is_passing ? &channel->passed : &channel->messages) += 1;
    *(is_passing ? &channel->passed_bytes : &channel->bytes) += count * size;
}

/* Returns the record of a receive that is posted now. It owns a copy of the datatype, which may be freed while the receive is pending. */
static Receive posted(void *buf, long long count, MPI_Datatype type, int source, int tag, MPI_Comm comm) {
    int integers, addresses, types, combiner;
    Receive receive = {buf, count, type, source, tag, number_of(comm), 0, 0, tickets++};
    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    if (combiner != MPI_COMBINER_NAMED) {
        /* MPI_Type_dup would call the program's attribute functions. */
        PMPI_Type_contiguous(1, type, &receive.type);
        PMPI_Type_commit(&receive.type);
        receive.type_is_ours = 1;
    }
    return receive;
}

static void forget(Receive *receive) {
    if (receive->type_is_ours) PMPI_Type_free(&receive->type);
    receive->type_is_ours = 0;
}

static void note(Receipt receipt) {
    GROW(receipts, receipt_count);
    receipts[receipt_count++] = receipt;
}

/* Records a receive that has ended with this code and status. */
static void received(Receive *receive, int code, const MPI_Status *status) {
    int cancelled = 0, class = MPI_SUCCESS, from;
    MPI_Count bytes, size;
    if (code) PMPI_Error_class(code, &class);
    if (code && class != MPI_ERR_TRUNCATE) return;
    PMPI_Test_cancelled(status, &cancelled);
    if (cancelled || (from = world_of(receive->comm, status->MPI_SOURCE)) < 0) return;
    Receipt receipt = {receive->ticket, 0, 0, from, receive->comm, status->MPI_TAG, 0};
    PMPI_Type_size_x(receive->type, &size);
    PMPI_Get_elements_x(status, MPI_BYTE, &bytes);
    if (receive->partitioned) {
        bytes = receive->count * size;
        receipt.comm = ~(receipt.comm + 4096 * receive->partitioned);
    }
    receipt.bytes = bytes;
    if (!code) {
        int elements = size ? (bytes + size - 1) / size : 0, room = elements * size, position = 0;
        unsigned char *packed = malloc(room + 1);
        if (elements) PMPI_Pack(receive->buf, elements, receive->type, packed, room, &position, MPI_COMM_SELF);
        receipt.seen = 1;
        receipt.hash = hash_of(packed, bytes);
        free(packed);
    }
    note(receipt);
}

static void add(MPI_Request handle, Request request) {
    if (handle == MPI_REQUEST_NULL) return;
    request.handle = handle;
    for (size_t i = 0; i < request_count; i++)
        if (requests[i].kind == FREE || requests[i].handle == handle) {
            requests[i] = request;
            return;
        }
    GROW(requests, request_count);
    requests[request_count++] = request;
}

static void add_receive(MPI_Request handle, Receive receive) {
    add(handle, (Request){.kind = ONCE, .active = 1, .receive = receive});
}

static Request *find(MPI_Request handle) {
    for (size_t i = 0; i < request_count; i++)
        if (requests[i].kind != FREE && requests[i].handle == handle) return &requests[i];
    return NULL;
}

/* Removes an active request: another thread may soon reuse its handle for a new one. */
static Request take(MPI_Request handle) {
    Request *found = find(handle), taken = {.kind = FREE};
    if (found && found->active) {
        taken = *found;
        if (found->kind == ONCE) found->kind = FREE;
        else found->active = 0;
    }
    return taken;
}

static void settle(Request *held, int is_over, int code, const MPI_Status *status) {
    if (held->kind == FREE) return;
    if (!is_over) {
        Request *found = find(held->handle);
        if (found) found->active = 1;
        else add(held->handle, *held);
        return;
    }
    if (held->kind != SENDS) received(&held->receive, code, status);
    if (held->kind == ONCE) forget(&held->receive);
}

static int earlier(const void *one, const void *other) {
    uint64_t a = ((const Receipt *)one)->ticket, b = ((const Receipt *)other)->ticket;
    return a < b ? -1 : a > b;
}

static void write_report(const char *dir) {
    int rank;
    char path[4096];
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(path, sizeof path, "%s/witness-%d", dir, rank);
    FILE *file = fopen(path, "w");
    for (int to = 0; sent && to < ranks; to++)
        fprintf(file, "sent %d %lld %lld %lld %lld\n", to, sent[to].messages, sent[to].bytes, sent[to].passed, sent[to].passed_bytes);
    if (receipt_count) qsort(receipts, receipt_count, sizeof *receipts, earlier);
    for (size_t i = 0; i < receipt_count; i++) {
        Receipt *of = &receipts[i];
        fprintf(file, "received %d %d %d %lld ", of->source, of->comm, of->tag, of->bytes);
        if (of->seen) fprintf(file, "%016llx\n", (unsigned long long)of->hash);
        else fprintf(file, "?\n");
    }
    fclose(file);
}

#endif
