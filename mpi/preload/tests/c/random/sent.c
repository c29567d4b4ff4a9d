/* What this rank has sent, for a comparison with the log that takes nothing from the library: for each rank, the number of messages and the sum of
 * a mix of each message's bytes, tag and position in its stream; and the same of its contributions to collective operations, of which the log
 * keeps the sender's bytes (docs/book/src/explanation/collectives.md). */
#include <pthread.h>

#include "random.h"

typedef struct { long count; uint64_t sum; } Total;

static Total sent[RANKS_MAX], contributed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The test does the same to records of the log: tests/random/log.rs. */
static uint64_t mix(uint64_t hash, int tag, long position) {
    uint64_t state = hash + (uint64_t)tag * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)position * UINT64_C(0xd1342543de82ef95);
    return next(&state);
}

void note_sent_at(const Group *g, int to, int tag, long position, const void *buf, int count, MPI_Datatype type) {
    if (to == MPI_PROC_NULL) return;
    int len;
    DO(MPI_Type_size(type, &len));
    len *= count;
    void *packed = malloc((size_t)len + 1);
    pack_elements(buf, count, type, packed, len);
    uint64_t mixed = mix(hash(packed, (size_t)len), tag, tag == SHARED_TAG ? 0 : position);
    free(packed);
    pthread_mutex_lock(&lock);
    sent[g->world[to]].count++;
    sent[g->world[to]].sum += mixed;
    pthread_mutex_unlock(&lock);
}

void note_sent(const Group *g, int to, int tag, const void *buf, int count, MPI_Datatype type) {
    if (to == MPI_PROC_NULL) return;
    pthread_mutex_lock(&lock);
    long position = ++g->positions[to][tag];
    pthread_mutex_unlock(&lock);
    note_sent_at(g, to, tag, position, buf, count, type);
}

void note_contribution(const void *bytes, size_t len) {
    if (len == 0) return;
    uint64_t mixed = mix(hash(bytes, len), 0, 0);
    pthread_mutex_lock(&lock);
    contributed.count++;
    contributed.sum += mixed;
    pthread_mutex_unlock(&lock);
}

void print_sent(void) {
    long count = 0;
    for (int to = 0; to < ranks; to++) {
        printf("rank %d to %d: %ld/%016llx\n", rank, to, sent[to].count, (unsigned long long)sent[to].sum);
        count += sent[to].count;
    }
    printf("rank %d contributed: %ld/%016llx\n", rank, contributed.count, (unsigned long long)contributed.sum);
    printf("rank %d sent %ld\n", rank, count);
}
