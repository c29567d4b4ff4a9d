/* Threads that send and receive at once, as the level of thread support allows: concurrently, in turns, or their traffic on one thread. Each has a
 * communicator and tags of its own; one stream is shared by all. */
#include <pthread.h>

#include "random.h"

enum { OPERATIONS_MAX = 6, THREAD_ELEMENTS = 1500, BATCH_MAX = 4 };

static Group own_groups[THREADS_MAX];

void make_thread_groups(void) {
    for (int i = 0; i < THREADS_MAX; i++) {
        MPI_Comm comm;
        DO(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        own_groups[i] = group_of(comm, MPI_GROUP_NULL);
    }
}

void free_thread_groups(void) {
    for (int i = 0; i < THREADS_MAX; i++) free_group(&own_groups[i]);
}

/* Kinds of an operation. */
enum { IMMEDIATE, EXCHANGE, ANY_SOURCE, PROBED, MATCHED, ANY_OF_SEVERAL, STARTED, SUM, SHARED, REPLACED, KINDS };

typedef struct {
    /* The thread's communicator, and the one of all threads. */
    const Group *own, *all;
    int number, count, operations, shift;
    /* What all ranks draw, what this rank chooses, and what was received. */
    uint64_t plan, choices, received, shared;
    unsigned char out[BATCH_MAX][THREAD_ELEMENTS * 8 + 2 * MARGIN], in[BATCH_MAX][THREAD_ELEMENTS * 8 + 2 * MARGIN];
} Worker;

static Worker workers[THREADS_MAX];

static int drawn(Worker *w, int bound) { return (int)(next(&w->plan) % (uint64_t)bound); }
static int chosen(Worker *w, int bound) { return (int)(next(&w->choices) % (uint64_t)bound); }

static void receive(Worker *w, const unsigned char *in, int count, const Layout *layout, const MPI_Status *status) {
    int got;
    DO(MPI_Get_count(status, layout->type, &got));
    w->received = w->received * 0x100000001b3 + hash_elements(in, count, layout) + (uint64_t)(got + status->MPI_SOURCE * 5 + status->MPI_TAG * 77);
}

/* Messages of a stream on which all threads send: any thread receives any of them. */
static void share(Worker *w, Ring at) {
    int count = 1 + drawn(w, BATCH_MAX), lengths[BATCH_MAX];
    MPI_Request requests[BATCH_MAX];
    MPI_Status status;
    const Layout *layout = &layouts[INTEGER];
    for (int i = 0; i < count; i++) {
        lengths[i] = drawn(w, 3) ? drawn(w, 40) : drawn(w, THREAD_ELEMENTS);
        fill_elements(w->out[i] + MARGIN, lengths[i], layout, next(&w->plan) + (uint64_t)rank);
        note_sent(w->all, at.to, SHARED_TAG, w->out[i] + MARGIN, lengths[i], layout->type);
        if (chosen(w, 2)) DO(MPI_Isend(w->out[i] + MARGIN, lengths[i], layout->type, at.to, SHARED_TAG, w->all->comm, &requests[i]));
        else DO(MPI_Ibsend(w->out[i] + MARGIN, lengths[i], layout->type, at.to, SHARED_TAG, w->all->comm, &requests[i]));
    }
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) {
        int got;
        unsigned char *in = w->in[i] + MARGIN;
        clear_elements(in, THREAD_ELEMENTS, layout);
        if (chosen(w, 2)) DO(MPI_Recv(in, THREAD_ELEMENTS, layout->type, at.from, SHARED_TAG, w->all->comm, &status));
        else {
            MPI_Message message;
            DO(MPI_Mprobe(at.from, SHARED_TAG, w->all->comm, &message, &status));
            DO(MPI_Mrecv(in, THREAD_ELEMENTS, layout->type, &message, &status));
        }
        DO(MPI_Get_count(&status, layout->type, &got));
        sum += hash_elements(in, got, layout);
    }
    DO(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE));
    /* The sum over all threads is that of the stream. */
    w->shared += sum;
}

static void operate(Worker *w) {
    int kind = drawn(w, KINDS), type = 1 + drawn(w, 4), count = drawn(w, 3) ? drawn(w, 60) : drawn(w, THREAD_ELEMENTS / 2), is_own = drawn(w, 2);
    int tag = THREAD_TAG + w->number, several = 1 + drawn(w, BATCH_MAX), index;
    const Group *g = is_own || kind == ANY_SOURCE || kind == SUM ? w->own : w->all;
    const Layout *layout = &layouts[type];
    MPI_Datatype of = layout->type;
    MPI_Request requests[2 * BATCH_MAX];
    MPI_Status statuses[2 * BATCH_MAX], status;
    MPI_Message message;
    Ring at = ring(g, w->shift);
    unsigned char *out = w->out[0] + MARGIN, *in = w->in[0] + MARGIN;
    if (kind == SHARED) {
        share(w, at);
        return;
    }
    fill_elements(out, count, layout, next(&w->plan) + (uint64_t)rank);
    clear_elements(in, count, layout);
    if (kind < ANY_OF_SEVERAL || kind == REPLACED) note_sent(g, at.to, tag, out, count, of);
    switch (kind) {
    case IMMEDIATE:
        DO(MPI_Irecv(in, count, of, at.from, tag, g->comm, &requests[0]));
        if (chosen(w, 2)) DO(MPI_Send(out, count, of, at.to, tag, g->comm));
        else DO(MPI_Ssend(out, count, of, at.to, tag, g->comm));
        DO(MPI_Wait(&requests[0], &status));
        break;
    case EXCHANGE: DO(MPI_Sendrecv(out, count, of, at.to, tag, in, count, of, at.from, tag, g->comm, &status)); break;
    case REPLACED:
        copy_elements(in, out, count, layout);
        DO(MPI_Sendrecv_replace(in, count, of, at.to, tag, at.from, tag, g->comm, &status));
        break;
    case ANY_SOURCE:
        DO(MPI_Isend(out, count, of, at.to, tag, g->comm, &requests[0]));
        DO(MPI_Recv(in, count, of, MPI_ANY_SOURCE, chosen(w, 2) ? tag : MPI_ANY_TAG, g->comm, &status));
        DO(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        /* Later messages are not for this receive. */
        DO(MPI_Barrier(g->comm));
        break;
    case PROBED:
        DO(MPI_Issend(out, count, of, at.to, tag, g->comm, &requests[0]));
        DO(MPI_Probe(at.from, tag, g->comm, &status));
        DO(MPI_Recv(in, count, of, at.from, tag, g->comm, &status));
        DO(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        break;
    case MATCHED:
        DO(MPI_Ibsend(out, count, of, at.to, tag, g->comm, &requests[0]));
        DO(MPI_Mprobe(at.from, tag, g->comm, &message, &status));
        DO(MPI_Mrecv(in, count, of, &message, &status));
        DO(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        break;
    case SUM: {
        int numbers[2] = {drawn(w, 1000) + rank, rank * rank}, sums[2];
        note_contribution(numbers, sizeof numbers);
        DO(MPI_Allreduce(numbers, sums, 2, MPI_INT, MPI_SUM, g->comm));
        w->received = w->received * 31 + hash(sums, sizeof sums);
        return;
    }
    default:
        /* Several of a stream: immediate or persistent. */
        for (int i = 0; i < several; i++) {
            (out = w->out[i] + MARGIN, in = w->in[i] + MARGIN);
            fill_elements(out, count, layout, next(&w->plan) + (uint64_t)rank);
            clear_elements(in, count, layout);
            note_sent(g, at.to, tag, out, count, of);
            if (kind == STARTED) {
                DO(MPI_Recv_init(in, count, of, at.from, tag, g->comm, &requests[i]));
                DO(MPI_Send_init(out, count, of, at.to, tag, g->comm, &requests[several + i]));
            } else {
                DO(MPI_Irecv(in, count, of, at.from, tag, g->comm, &requests[i]));
                DO(MPI_Isend(out, count, of, at.to, tag, g->comm, &requests[several + i]));
            }
        }
        if (kind == STARTED) DO(MPI_Startall(2 * several, requests));
        for (int left = 2 * several; left > 0; left--) {
            DO(MPI_Waitany(2 * several, requests, &index, &status));
            statuses[index] = status;
        }
        for (int i = 0; i < several; i++) receive(w, w->in[i] + MARGIN, count, layout, &statuses[i]);
        for (int i = 0; i < 2 * several && kind == STARTED; i++) DO(MPI_Request_free(&requests[i]));
        return;
    }
    receive(w, in, count, layout, &status);
}

/* Threads in turns: the same order on all ranks, so that none waits for a message of a thread whose turn comes later. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t passed = PTHREAD_COND_INITIALIZER;
static int turn;

static void *work(void *worker) {
    Worker *w = worker;
    for (int i = 0; i < w->operations; i++) {
        if (level == MPI_THREAD_SERIALIZED) {
            pthread_mutex_lock(&lock);
            while (turn != i * w->count + w->number) pthread_cond_wait(&passed, &lock);
            operate(w);
            turn++;
            pthread_cond_broadcast(&passed);
            pthread_mutex_unlock(&lock);
        } else {
            operate(w);
        }
    }
    return NULL;
}

void threads(const Group *world) {
    pthread_t handles[THREADS_MAX];
    int count = 2 + draw(THREADS_MAX - 1), operations = 1 + draw(OPERATIONS_MAX), shift = 1 + draw(3);
    turn = 0;
    for (int i = 0; i < count; i++) {
        Worker *w = &workers[i];
        (w->own = &own_groups[i], w->all = world, w->number = i, w->count = count, w->operations = operations, w->shift = shift);
        (w->plan = draw_seed(), w->choices = (uint64_t)choose(1 << 30), w->received = w->shared = 0);
    }
    if (level >= MPI_THREAD_SERIALIZED) {
        for (int i = 0; i < count; i++) CHECK(pthread_create(&handles[i], NULL, work, &workers[i]) == 0);
        for (int i = 0; i < count; i++) CHECK(pthread_join(handles[i], NULL) == 0);
    } else {
        for (int i = 0; i < operations; i++)
            for (int k = 0; k < count; k++) operate(&workers[k]);
    }
    uint64_t shared = 0;
    for (int i = 0; i < count; i++) (add(workers[i].received), shared += workers[i].shared);
    add(shared);
}
