/* Programs that a seed makes: `random SEED FIRST COUNT STEPS [multiple]` runs COUNT of them, from number FIRST on, each with at most STEPS steps,
 * and prints a digest of what each has received: data, statuses and error classes. The digest depends on the seed alone, so it is the same with
 * and without a library under the program. At the end each rank prints how many messages it has sent.
 *
 * All ranks draw the same plan. What MPI leaves to a rank, such as the order in which it waits, comes from a generator of its own. */
#include <setjmp.h>
#include <stdint.h>

#include "check.h"

#ifdef HAVE_MPI_4
#define HAVE_ISENDRECV 1
#else
#define HAVE_ISENDRECV 0
#endif

enum { MESSAGES_MAX = 12, RANKS_MAX = 8, ELEMENTS_MAX = 3000, BUFFER_BYTES = 8 << 20 };

/* Generators: SplitMix64. */
static uint64_t plan, own;

static uint64_t next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* A number below `bound` that all ranks draw; one of this rank's own. */
static int draw(int bound) { return (int)(next(&plan) % (uint64_t)bound); }
static int choose(int bound) { return (int)(next(&own) % (uint64_t)bound); }

static uint64_t digest;
static long sent;

static void add(uint64_t value) {
    digest = (digest ^ value) * 0x100000001b3;
    digest ^= digest >> 29;
}

static uint64_t hash(const void *bytes, size_t len) {
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < len; i++) h = (h ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
    return h;
}

/* A communicator of a program. */
typedef struct {
    MPI_Comm comm;
    int rank, size, peers, is_inter;
    /* Of an intercommunicator: which of the two groups is the own one. */
    int side;
} Group;

static Group group_of(MPI_Comm comm) {
    Group group = {.comm = comm};
    DO(MPI_Comm_rank(comm, &group.rank));
    DO(MPI_Comm_size(comm, &group.size));
    DO(MPI_Comm_test_inter(comm, &group.is_inter));
    group.peers = group.size;
    if (group.is_inter) DO(MPI_Comm_remote_size(comm, &group.peers));
    return group;
}

/* Datatypes of messages. Counts are numbers of elements. */
static MPI_Datatype types[5];
static const int type_bytes[5] = {1, 4, 8, 12, 8}; /* extents */

static void make_types(void) {
    types[0] = MPI_BYTE;
    types[1] = MPI_INT;
    types[2] = MPI_DOUBLE;
    DO(MPI_Type_vector(2, 1, 2, MPI_INT, &types[3])); /* a gap in the middle */
    DO(MPI_Type_contiguous(2, MPI_INT, &types[4]));
    for (int i = 3; i < 5; i++) DO(MPI_Type_commit(&types[i]));
}

static void free_types(void) {
    for (int i = 3; i < 5; i++) DO(MPI_Type_free(&types[i]));
}

static int draw_count(void) {
    static const int counts[] = {0, 1, 2, 7, 30, 64, 65, 257, 1000, ELEMENTS_MAX};
    return counts[draw(sizeof counts / sizeof *counts)];
}

static void fill_bytes(unsigned char *to, size_t len, uint64_t seed) {
    for (size_t i = 0; i < len; i++) to[i] = (unsigned char)(seed * 31 + i * 7 + (i >> 8) * 13);
}

static void add_status(const MPI_Status *status, MPI_Datatype type) {
    int count;
    DO(MPI_Get_count(status, type, &count));
    add(status->MPI_SOURCE + 1000003u * (unsigned)status->MPI_TAG);
    add((unsigned)count);
}

/* Waits for requests in one of MPI's ways; statuses are those of the requests. */
static void complete(int count, MPI_Request *requests, MPI_Status *statuses) {
    int left = 0, index, flag = 0, ended, indices[2 * MESSAGES_MAX];
    MPI_Status some[2 * MESSAGES_MAX];
    for (int i = 0; i < count; i++) left += requests[i] != MPI_REQUEST_NULL;
    switch (choose(8)) {
    case 0: DO(MPI_Waitall(count, requests, statuses)); break;
    case 1:
        for (int i = 0; i < count; i++) DO(MPI_Wait(&requests[i], &statuses[i]));
        break;
    case 2:
        for (int i = count - 1; i >= 0; i--) DO(MPI_Wait(&requests[i], &statuses[i]));
        break;
    case 3:
        for (; left > 0; left--) {
            DO(MPI_Waitany(count, requests, &index, &some[0]));
            statuses[index] = some[0];
        }
        break;
    case 4:
        while (left > 0) {
            DO(MPI_Waitsome(count, requests, &ended, indices, some));
            for (int i = 0; i < ended; i++) statuses[indices[i]] = some[i];
            left -= ended;
        }
        break;
    case 5:
        while (!flag) DO(MPI_Testall(count, requests, &flag, statuses));
        break;
    case 6:
        while (left > 0) {
            DO(MPI_Testany(count, requests, &index, &flag, &some[0]));
            if (flag && index != MPI_UNDEFINED) (statuses[index] = some[0], left--);
        }
        break;
    default:
        for (int i = 0; i < count; i++)
            for (flag = 0; !flag;) DO(MPI_Test(&requests[i], &flag, &statuses[i]));
    }
}

/* A message of a step. */
typedef struct {
    int from, to, tag, type, count, mode, form, receipt;
} Message;

static unsigned char outgoing[MESSAGES_MAX][ELEMENTS_MAX * 12 + 16], incoming[MESSAGES_MAX][ELEMENTS_MAX * 12 + 16];

/* Receives of a message: posted before all sends, or after them. */
enum { POSTED, PERSISTENT, RECEIVED, PROBED, MATCHED };

static void send_one(const Group *g, const Message *m, unsigned char *buf, MPI_Request *request, int *is_persistent) {
    MPI_Datatype type = types[m->type];
    int blocks = m->form == 0 && m->receipt <= PERSISTENT;
    *request = MPI_REQUEST_NULL;
    sent++;
    if (m->form == 2) {
        *is_persistent = 1;
        switch (m->mode) {
        case 1: DO(MPI_Ssend_init(buf, m->count, type, m->to, m->tag, g->comm, request)); break;
        case 2: DO(MPI_Bsend_init(buf, m->count, type, m->to, m->tag, g->comm, request)); break;
        default: DO(MPI_Send_init(buf, m->count, type, m->to, m->tag, g->comm, request));
        }
        DO(MPI_Start(request));
        return;
    }
    switch (m->mode) {
    case 1:
        if (blocks) DO(MPI_Ssend(buf, m->count, type, m->to, m->tag, g->comm));
        else DO(MPI_Issend(buf, m->count, type, m->to, m->tag, g->comm, request));
        break;
    case 2:
        if (blocks) DO(MPI_Bsend(buf, m->count, type, m->to, m->tag, g->comm));
        else DO(MPI_Ibsend(buf, m->count, type, m->to, m->tag, g->comm, request));
        break;
    default:
        if (blocks) DO(MPI_Send(buf, m->count, type, m->to, m->tag, g->comm));
        else DO(MPI_Isend(buf, m->count, type, m->to, m->tag, g->comm, request));
    }
}

/* Messages between ranks of a communicator. `kind`: 0 named receives, 1 from any source, 2 with any tag. */
static void messages(const Group *g) {
    Message all[MESSAGES_MAX];
    MPI_Request requests[2 * MESSAGES_MAX];
    MPI_Status statuses[2 * MESSAGES_MAX];
    int count = 1 + draw(MESSAGES_MAX), kind = draw(4), open = 0, any_type = draw(5), persistent[2 * MESSAGES_MAX] = {0};
    int of[2 * MESSAGES_MAX] = {0};
    uint64_t step = next(&plan), sum = 0;
    for (int i = 0; i < count; i++) {
        /* Between two groups, each sends what the other receives. */
        int least = g->size < g->peers ? g->size : g->peers;
        Message m = {draw(least), draw(least), draw(3), draw(5), draw_count(), draw(3), draw(3), draw(6)};
        /* Receives of a stream are posted in the order of its messages. */
        m.receipt = m.tag == 0 ? m.receipt % 2 : RECEIVED + m.receipt % 3;
        if (kind == 1) {
            /* A blocking send may wait for a receive that another message has taken. */
            m = (Message){m.from, m.to, 10, any_type, m.count, m.mode, m.form ? m.form : 1, m.receipt};
        }
        if (kind == 2) m.receipt = RECEIVED;
        all[i] = m;
    }
    /* Receives that are posted before the sends, in the order of the plan. */
    for (int i = 0; i < count; i++) {
        const Message *m = &all[i];
        int source = kind == 1 ? MPI_ANY_SOURCE : m->from, room = kind == 1 ? ELEMENTS_MAX : m->count;
        memset(incoming[i], 0xee, sizeof incoming[i]);
        if (m->to != g->rank || m->receipt > PERSISTENT) continue;
        of[open] = i;
        if (m->receipt == PERSISTENT) {
            persistent[open] = 1;
            DO(MPI_Recv_init(incoming[i], room, types[m->type], source, m->tag, g->comm, &requests[open]));
            DO(MPI_Start(&requests[open++]));
        } else {
            DO(MPI_Irecv(incoming[i], room, types[m->type], source, m->tag, g->comm, &requests[open++]));
        }
    }
    int receives = open;
    DO(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < count; i++) {
        const Message *m = &all[i];
        if (m->from != g->rank) continue;
        fill_bytes(outgoing[i], (size_t)m->count * type_bytes[m->type], step + (uint64_t)i);
        send_one(g, m, outgoing[i], &requests[open], &persistent[open]);
        open += requests[open] != MPI_REQUEST_NULL;
    }
    for (int i = 0; i < count; i++) {
        const Message *m = &all[i];
        MPI_Status status;
        MPI_Message message;
        int source = kind == 1 ? MPI_ANY_SOURCE : m->from, tag = kind == 2 ? MPI_ANY_TAG : m->tag, flag = 0, there;
        if (m->to != g->rank || m->receipt <= PERSISTENT) continue;
        MPI_Datatype type = types[m->type];
        int room = kind == 1 ? ELEMENTS_MAX : m->count;
        switch (m->receipt) {
        case RECEIVED: DO(MPI_Recv(incoming[i], room, type, source, tag, g->comm, &status)); break;
        case PROBED:
            if (choose(2)) DO(MPI_Probe(source, tag, g->comm, &status));
            else
                while (!flag) DO(MPI_Iprobe(source, tag, g->comm, &flag, &status));
            DO(MPI_Get_count(&status, type, &there));
            DO(MPI_Recv(incoming[i], there, type, status.MPI_SOURCE, status.MPI_TAG, g->comm, &status));
            break;
        default:
            if (choose(2)) DO(MPI_Mprobe(source, tag, g->comm, &message, &status));
            else
                while (!flag) DO(MPI_Improbe(source, tag, g->comm, &flag, &message, &status));
            if (choose(2)) DO(MPI_Mrecv(incoming[i], room, type, &message, &status));
            else {
                MPI_Request request;
                DO(MPI_Imrecv(incoming[i], room, type, &message, &request));
                DO(MPI_Wait(&request, &status));
            }
        }
        if (kind == 1) {
            int got;
            DO(MPI_Get_count(&status, type, &got));
            sum += hash(incoming[i], (size_t)got * type_bytes[m->type]) * (uint64_t)(status.MPI_SOURCE + 1);
        } else {
            add_status(&status, type);
            add(hash(incoming[i], (size_t)m->count * type_bytes[m->type]));
        }
    }
    complete(open, requests, statuses);
    for (int k = 0; k < receives; k++) {
        const Message *m = &all[of[k]];
        if (kind == 1) {
            int got;
            DO(MPI_Get_count(&statuses[k], types[m->type], &got));
            sum += hash(incoming[of[k]], (size_t)got * type_bytes[m->type]) * (uint64_t)(statuses[k].MPI_SOURCE + 1);
        } else {
            add_status(&statuses[k], types[m->type]);
            add(hash(incoming[of[k]], sizeof incoming[0]));
        }
    }
    add(sum);
    for (int k = 0; k < open; k++)
        if (persistent[k]) DO(MPI_Request_free(&requests[k]));
}

/* A collective operation that may be under way. */
enum { COUNT_MAX = 300, OPERATIONS_MAX = 3 };

typedef struct {
    int out[RANKS_MAX * RANKS_MAX * COUNT_MAX], in[RANKS_MAX * RANKS_MAX * COUNT_MAX], counts[RANKS_MAX], displs[RANKS_MAX];
    int bytes[RANKS_MAX];
    MPI_Datatype types[RANKS_MAX];
    MPI_Request request;
    int form, is_persistent;
} Collective;

static Collective operations[OPERATIONS_MAX];

#ifdef HAVE_MPI_4
enum { FORMS = 3 };
#define CALL(name, lower, ...)                                                                                           \
    DO(c->form == 0   ? MPI_##name(__VA_ARGS__)                                                                          \
       : c->form == 1 ? MPI_I##lower(__VA_ARGS__, &c->request)                                                           \
                      : MPI_##name##_init(__VA_ARGS__, MPI_INFO_NULL, &c->request))
#else
enum { FORMS = 2 };
#define CALL(name, lower, ...) DO(c->form == 0 ? MPI_##name(__VA_ARGS__) : MPI_I##lower(__VA_ARGS__, &c->request))
#endif

/* Begins an operation, or makes a persistent one. */
static void begin_collective(const Group *g, Collective *c, int form) {
    int kind = draw(17), count = draw(4) ? draw(20) : draw(COUNT_MAX), in_place = draw(3) == 0 && !g->is_inter;
    int least = g->size < g->peers ? g->size : g->peers, where = draw(least), side = draw(2), root = where;
    int is_root = g->rank == where, n = g->peers, total = g->is_inter ? g->size * g->peers : g->size;
    MPI_Op op = draw(2) ? MPI_SUM : MPI_BXOR;
    uint64_t step = next(&plan);
    /* Open MPI 5.0.11 hangs in MPI_Ialltoallw in place if a pair exchanges nothing. */
    if ((kind == 13 || kind == 14) && form > 0) in_place = 0;
    *c = (Collective){.request = MPI_REQUEST_NULL, .form = form};
    c->is_persistent = form == 2;
    memset(c->in, 0xee, sizeof c->in);
    for (int i = 0; i < RANKS_MAX * RANKS_MAX * COUNT_MAX; i++) c->out[i] = (int)(step + (uint64_t)(g->rank * 7919 + i * 31));
    if (in_place) memcpy(c->in, c->out, sizeof c->in);
    if (g->is_inter) {
        is_root = g->side == side && g->rank == where;
        root = g->side != side ? where : is_root ? MPI_ROOT : MPI_PROC_NULL;
        if (kind == 11 || kind == 12) kind = 0;
    }
    for (int i = 0, at = 0; i < n; i++) {
        c->counts[i] = count % (i + 3);
        c->displs[i] = at;
        c->bytes[i] = at * (int)sizeof(int);
        c->types[i] = MPI_INT;
        at += c->counts[i] + 1;
    }
    /* The part of this rank among those of its peers: the same on all of them. */
    int mine = count % (g->rank + 3);
    void *given = in_place ? MPI_IN_PLACE : (void *)c->out;
    switch (kind) {
    case 0: CALL(Barrier, barrier, g->comm); break;
    case 1:
        if (is_root) memcpy(c->in, c->out, sizeof c->in);
        CALL(Bcast, bcast, c->in, count, MPI_INT, root, g->comm);
        break;
    case 2:
        CALL(Scatter, scatter, c->out, count, MPI_INT, in_place && is_root ? MPI_IN_PLACE : (void *)c->in, count, MPI_INT, root,
             g->comm);
        break;
    case 3:
        CALL(Scatterv, scatterv, c->out, c->counts, c->displs, MPI_INT, c->in, mine, MPI_INT, root, g->comm);
        break;
    case 4:
        CALL(Gather, gather, in_place && is_root ? MPI_IN_PLACE : (void *)c->out, count, MPI_INT, c->in, count, MPI_INT, root,
             g->comm);
        break;
    case 5:
        CALL(Gatherv, gatherv, c->out, mine, MPI_INT, c->in, c->counts, c->displs, MPI_INT, root, g->comm);
        break;
    case 6:
        CALL(Reduce, reduce, in_place && is_root ? MPI_IN_PLACE : (void *)c->out, c->in, count, MPI_INT, op, root, g->comm);
        break;
    case 7: CALL(Allgather, allgather, given, count, MPI_INT, c->in, count, MPI_INT, g->comm); break;
    case 8: CALL(Allgatherv, allgatherv, given, mine, MPI_INT, c->in, c->counts, c->displs, MPI_INT, g->comm); break;
    case 9: CALL(Alltoall, alltoall, given, count, MPI_INT, c->in, count, MPI_INT, g->comm); break;
    case 10: CALL(Allreduce, allreduce, given, c->in, count, MPI_INT, op, g->comm); break;
    case 11: CALL(Scan, scan, given, c->in, count, MPI_INT, op, g->comm); break;
    case 12: CALL(Exscan, exscan, given, c->in, count, MPI_INT, op, g->comm); break;
    case 13:
    case 14: {
        /* Each pair exchanges as many as both ranks say. */
        for (int i = 0; i < n; i++) c->counts[i] = count % (g->rank + i + 3);
        for (int i = 0, at = 0; i < n; at += c->counts[i++]) (c->displs[i] = at, c->bytes[i] = at * (int)sizeof(int));
        if (kind == 13) {
            CALL(Alltoallv, alltoallv, given, c->counts, c->displs, MPI_INT, c->in, c->counts, c->displs, MPI_INT, g->comm);
        } else {
            CALL(Alltoallw, alltoallw, given, c->counts, c->bytes, c->types, c->in, c->counts, c->bytes, c->types, g->comm);
        }
        break;
    }
    case 15: {
        for (int i = 0; i < g->size; i++) c->counts[i] = g->is_inter ? total / g->size * (count % 5) : count % (i + 3);
        CALL(Reduce_scatter, reduce_scatter, given, c->in, c->counts, MPI_INT, op, g->comm);
        break;
    }
    default:
        CALL(Reduce_scatter_block, reduce_scatter_block, given, c->in, g->is_inter ? total / g->size * (count % 5) : count % 40, MPI_INT,
             op, g->comm);
    }
    if (form == 2) {
        /* The arrays of the call are the program's again. */
        for (int i = 0; i < RANKS_MAX; i++) (c->counts[i] = 1 << 28, c->displs[i] = 1 << 28, c->bytes[i] = 1 << 28);
    }
}

/* Collective operations, of which some are under way at once, and persistent ones are started in an order of each rank's own. */
static void collectives(const Group *g) {
    MPI_Request requests[2 * MESSAGES_MAX];
    MPI_Status statuses[2 * MESSAGES_MAX];
    int count = 1 + draw(OPERATIONS_MAX), form = draw(FORMS), first = choose(count);
    for (int i = 0; i < count; i++) begin_collective(g, &operations[i], form);
    if (form == 2 && choose(2)) {
        for (int i = 0; i < count; i++) requests[i] = operations[i].request;
        DO(MPI_Startall(count, requests));
    } else if (form == 2) {
        for (int i = 0; i < count; i++) DO(MPI_Start(&operations[(first + i) % count].request));
    }
    for (int i = 0; i < count; i++) requests[i] = operations[i].request;
    complete(count, requests, statuses);
    for (int i = 0; i < count; i++) {
        add(hash(operations[i].in, sizeof operations[i].in));
        add(hash(operations[i].out, sizeof operations[i].out));
        if (operations[i].is_persistent) DO(MPI_Request_free(&operations[i].request));
    }
}

/* Messages to the neighbours in a ring, sent and received in one call. */
static void exchange(const Group *g) {
    int count = draw_count(), type = draw(5), tag = draw(3), kind = draw(HAVE_ISENDRECV ? 4 : 2), here = g->rank;
    int least = g->size < g->peers ? g->size : g->peers, shift = 1 + draw(3), is_in = here < least;
    int to = is_in ? (here + shift) % least : MPI_PROC_NULL, from = is_in ? (here - shift % least + least) % least : MPI_PROC_NULL;
    MPI_Status status;
    fill_bytes(outgoing[0], (size_t)count * type_bytes[type], next(&plan) + (uint64_t)(g->rank + 17 * g->side));
    memset(incoming[0], 0xee, sizeof incoming[0]);
    sent += is_in;
    if (kind % 2) memcpy(incoming[0], outgoing[0], sizeof incoming[0]);
    switch (kind) {
    case 0:
        DO(MPI_Sendrecv(outgoing[0], count, types[type], to, tag, incoming[0], count, types[type], from, tag, g->comm, &status));
        break;
    case 1: DO(MPI_Sendrecv_replace(incoming[0], count, types[type], to, tag, from, tag, g->comm, &status)); break;
#if HAVE_ISENDRECV
    case 2:
    case 3: {
        MPI_Request request;
        if (kind == 2)
            DO(MPI_Isendrecv(outgoing[0], count, types[type], to, tag, incoming[0], count, types[type], from, tag, g->comm, &request));
        else DO(MPI_Isendrecv_replace(incoming[0], count, types[type], to, tag, from, tag, g->comm, &request));
        DO(MPI_Wait(&request, &status));
    }
#endif
    }
    if (is_in && kind < 2) add_status(&status, types[type]);
    add(hash(incoming[0], sizeof incoming[0]));
}

#ifdef HAVE_MPI_4
/* Partitioned messages around a ring. */
static void partitioned(const Group *g) {
    int parts = 1 + draw(5), count = draw(50), rounds = 1 + draw(3), to = (g->rank + 1) % g->size, from = (g->rank + g->size - 1) % g->size;
    MPI_Request requests[2];
    uint64_t step = next(&plan);
    DO(MPI_Psend_init(outgoing[0], parts, count, MPI_INT, to, 4, g->comm, MPI_INFO_NULL, &requests[0]));
    DO(MPI_Precv_init(incoming[0], parts, count, MPI_INT, from, 4, g->comm, MPI_INFO_NULL, &requests[1]));
    for (int round = 0; round < rounds; round++) {
        int first = choose(parts);
        memset(incoming[0], 0xee, sizeof incoming[0]);
        fill_bytes(outgoing[0], (size_t)parts * (size_t)count * sizeof(int), step + (uint64_t)(round + 5 * g->rank));
        DO(MPI_Startall(2, requests));
        for (int part = 0; part < parts; part++) DO(MPI_Pready((first + part) % parts, requests[0]));
        DO(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        add(hash(incoming[0], sizeof incoming[0]));
        sent++;
    }
    for (int i = 0; i < 2; i++) DO(MPI_Request_free(&requests[i]));
}
#endif

/* A receive for which there is no message, and a generalized request. */
static int query(void *is_cancelled, MPI_Status *status) {
    DO(MPI_Status_set_elements(status, MPI_INT, 3));
    DO(MPI_Status_set_cancelled(status, *(int *)is_cancelled));
    status->MPI_SOURCE = 5;
    status->MPI_TAG = 6;
    return MPI_SUCCESS;
}
static int ignore(void *state) { return (void)state, MPI_SUCCESS; }
static int ignore_cancel(void *state, int complete) { return (void)state, (void)complete, MPI_SUCCESS; }

static void cancelled(const Group *g) {
    MPI_Request request;
    MPI_Status status;
    int flag, source = draw(2) ? MPI_ANY_SOURCE : draw(g->peers), is_generalized = draw(2), is_cancelled = draw(2);
    if (is_generalized) {
        DO(MPI_Grequest_start(query, ignore, ignore_cancel, &is_cancelled, &request));
        if (is_cancelled) DO(MPI_Cancel(&request));
        DO(MPI_Grequest_complete(request));
    } else {
        DO(MPI_Irecv(incoming[0], 10, MPI_INT, source, 77, g->comm, &request));
        DO(MPI_Cancel(&request));
    }
    DO(MPI_Wait(&request, &status));
    DO(MPI_Test_cancelled(&status, &flag));
    add((uint64_t)flag + 2);
    if (is_generalized) add_status(&status, MPI_INT);
}

/* Calls that fail: their errors are returned, or a handler is called, which may jump. */
static jmp_buf back;
static int handled, jumps;

static void handler(MPI_Comm *comm, int *code, ...) {
    int class;
    (void)comm;
    DO(MPI_Error_class(*code, &class));
    handled += class;
    if (jumps) longjmp(back, 1);
}

static int wrong_call(const Group *g, int call) {
    MPI_Request request;
    MPI_Status status;
    int flag, bad = g->peers + 5;
    switch (call) {
    case 0: return MPI_Send(outgoing[0], 1, MPI_INT, bad, 0, g->comm);
    case 1: return MPI_Send(outgoing[0], 1000, MPI_INT, 0, -7, g->comm);
    case 2: return MPI_Isend(outgoing[0], -1, MPI_INT, 0, 0, g->comm, &request);
    case 3: return MPI_Irecv(incoming[0], 1, MPI_INT, bad, 0, g->comm, &request);
    case 4: return MPI_Recv(incoming[0], 1, MPI_DATATYPE_NULL, 0, 0, g->comm, &status);
    case 5: return MPI_Sendrecv(outgoing[0], 1, MPI_INT, bad, 0, incoming[0], 1, MPI_INT, 0, 0, g->comm, &status);
    case 6: return MPI_Iprobe(bad, 0, g->comm, &flag, &status);
    case 7: return MPI_Bcast(outgoing[0], -1, MPI_INT, 0, g->comm);
    case 8: return MPI_Ssend_init(outgoing[0], 1, MPI_INT, bad, 0, g->comm, &request);
    default: return MPI_Alltoallv(outgoing[0], NULL, NULL, MPI_INT, incoming[0], NULL, NULL, MPI_INT, g->comm);
    }
}

static void errors(const Group *g) {
    MPI_Errhandler errhandler;
    int call = draw(10), way = draw(3), class;
    handled = 0;
    jumps = way == 2;
    if (way == 0) DO(MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN));
    else {
        DO(MPI_Comm_create_errhandler(handler, &errhandler));
        DO(MPI_Comm_set_errhandler(g->comm, errhandler));
        DO(MPI_Errhandler_free(&errhandler));
    }
    if (!setjmp(back)) {
        DO(MPI_Error_class(wrong_call(g, call), &class));
        add((uint64_t)class);
    }
    DO(MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_ARE_FATAL));
    add((uint64_t)handled);
}

/* A communicator of the program's. */
static Group make_group(void) {
    MPI_Comm comm, half;
    Group group;
    int kind = draw(6), color = draw(2), low = draw(ranks), side = rank % 2, other = 1; /* `other`: the first rank of the second group */
    switch (ranks == 1 && kind > 2 ? 0 : kind) {
    case 0: DO(MPI_Comm_dup(MPI_COMM_WORLD, &comm)); break;
    case 1: DO(MPI_Comm_split(MPI_COMM_WORLD, (rank + color) % 2, -rank, &comm)); break;
    case 2: DO(MPI_Comm_split(MPI_COMM_WORLD, rank <= low, rank, &comm)); break;
    case 3: {
        MPI_Request request;
        DO(MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request));
        DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
        break;
    }
    case 4:
        other = low % (ranks - 1) + 1;
        side = rank >= other;
        /* fall through */
    default:
        DO(MPI_Comm_split(MPI_COMM_WORLD, side, rank, &half));
        DO(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, side ? 0 : other, 9, &comm));
        DO(MPI_Comm_free(&half));
    }
    group = group_of(comm);
    group.side = side;
    return group;
}

static void run(uint64_t seed, int number, int steps_max) {
    plan = seed * 1000003 + (uint64_t)number;
    own = plan ^ (uint64_t)(rank + 1) << 40;
    digest = 0;
    make_types();
    Group world = group_of(MPI_COMM_WORLD), made = make_group();
    int steps = 1 + draw(20);
    for (int step = 0; step < steps && step < steps_max; step++) {
        const Group *g = draw(3) ? &made : &world;
        switch (draw(9)) {
        case 0:
        case 1:
        case 2: messages(g); break;
        case 3:
        case 4: collectives(g); break;
        case 5: exchange(g); break;
        case 6: cancelled(g); break;
        case 7: errors(&made); break;
        default:
#ifdef HAVE_MPI_4
            if (!g->is_inter) partitioned(g);
#endif
            break;
        }
    }
    DO(MPI_Comm_free(&made.comm));
    free_types();
    uint64_t mixed = digest * (uint64_t)(2 * rank + 1), all = 0;
    DO(MPI_Reduce(&mixed, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD));
    if (rank == 0) printf("program %d: %016llx\n", number, (unsigned long long)all);
    fflush(stdout);
}

int main(int argc, char **argv) {
    int level;
    if (argc < 5) { fprintf(stderr, "usage: random SEED FIRST COUNT STEPS [multiple]\n"); return 2; }
    DO(MPI_Init_thread(&argc, &argv, argc > 5 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level));
    DO(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    DO(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    CHECK(ranks <= RANKS_MAX);
    void *buffer = malloc(BUFFER_BYTES);
    DO(MPI_Buffer_attach(buffer, BUFFER_BYTES));
    int first = atoi(argv[2]), count = atoi(argv[3]), size;
    for (int number = first; number < first + count; number++) run(strtoull(argv[1], NULL, 10), number, atoi(argv[4]));
    DO(MPI_Buffer_detach(&buffer, &size));
    printf("rank %d sent %ld\n", rank, sent);
    DO(MPI_Finalize());
    return 0;
}
