/* Collective operations, of which some are under way at once, and persistent ones are started in an order of each rank's own. */
#include "collective.h"

enum { OPERATIONS_MAX = 3, KINDS = 17, SUM_NUMBERS = 3 };

static Collective operations[OPERATIONS_MAX];

/* Operations of a program. The second isn't commutative: it composes functions x -> a x + b of pairs (a, b). */
static void lowest_bits(void *in, void *inout, int *count, MPI_Datatype *type) {
    int numbers = *type == MPI_2INT ? 2 * *count : *count;
    for (int i = 0; i < numbers; i++) ((unsigned *)inout)[i] = (((unsigned *)inout)[i] & ((unsigned *)in)[i]) | 1;
}

static void compose(void *in, void *inout, int *count, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < 2 * *count; i += 2) {
        unsigned a = ((unsigned *)in)[i], b = ((unsigned *)in)[i + 1], *of = (unsigned *)inout + i;
        of[1] = a * of[1] + b;
        of[0] = a * of[0];
    }
}

typedef struct { MPI_Op op; MPI_Datatype type; int numbers, is_own; } Reduction;

static Reduction draw_reduction(void) {
    Reduction r = {MPI_SUM, MPI_INT, 1, 0};
    switch (draw(7)) {
    case 0: r.op = MPI_BXOR; break;
    case 1: r.op = MPI_MAX; break;
    case 2: r = (Reduction){MPI_MINLOC, MPI_2INT, 2, 0}; break;
    case 3:
        DO(MPI_Op_create(lowest_bits, 1, &r.op));
        r.is_own = 1;
        break;
    case 4:
        r = (Reduction){MPI_OP_NULL, MPI_2INT, 2, 1};
        DO(MPI_Op_create(compose, 0, &r.op));
        break;
    }
    return r;
}

/* Writes the numbers that a start sends. */
static void fill_numbers(Collective *c) {
    for (int i = 0; i < NUMBERS_MAX; i++) c->out[i] = (int)(c->seed + (uint64_t)(rank * 7919 + i * 31));
    if (c->is_in_place) memcpy(c->in, c->out, sizeof c->in);
    else memset(c->in, 0xee, sizeof c->in);
}

void note_start(const Collective *c) {
    static int packed[NUMBERS_MAX];
    int length = 0, stride = c->is_in_place ? c->in_stride : c->stride;
    const int *from = c->is_in_place ? c->in : c->out;
    for (int i = 0; i < c->parts; i++)
        for (int k = 0; k < c->lengths[i]; k++) packed[length++] = from[(c->at[i] + k) * stride];
    note_contribution(packed, sizeof(int) * (size_t)length);
}

/* The root of an operation, as each rank names it. */
typedef struct { int root, is_root, is_other; } Root;

static Root root_of(const Group *g, int where, int side) {
    if (!g->is_inter) return (Root){where, g->rank == where, g->rank != where};
    int is_root = g->side == side && g->rank == where;
    return (Root){g->side != side ? where : is_root ? MPI_ROOT : MPI_PROC_NULL, is_root, g->side != side};
}

static void call_rooted(const Group *g, Collective *c, int kind, int count, Root at, Reduction by) {
    /* The part of this rank among those of its peers: the same on all of them. */
    int mine = count % (g->rank + 3), root = at.root;
    void *given = c->is_in_place ? MPI_IN_PLACE : (void *)c->out, *taken = c->is_in_place ? MPI_IN_PLACE : (void *)c->in;
    switch (kind) {
    case 1:
        /* The root's numbers are those that it broadcasts. */
        if (at.is_root) contribute(c, 0, count);
        if (at.is_root && !c->is_in_place) CALL(Bcast, bcast, c->out, count, c->given, root, g->comm);
        else CALL(Bcast, bcast, c->in, count, c->taken, root, g->comm);
        break;
    case 2:
        if (at.is_root) contribute(c, 0, count * g->peers);
        CALL(Scatter, scatter, c->is_in_place ? c->in : c->out, count, c->given, taken, count, c->taken, root, g->comm);
        break;
    case 3:
        for (int i = 0; i < g->peers && at.is_root; i++) contribute(c, c->displs[i], c->counts[i]);
        CALL(Scatterv, scatterv, c->is_in_place ? c->in : c->out, c->counts, c->displs, c->given, taken, mine, c->taken, root, g->comm);
        break;
    case 4:
        if (at.is_other) contribute(c, 0, count);
        CALL(Gather, gather, given, count, c->given, c->in, count, c->taken, root, g->comm);
        break;
    case 5:
        if (at.is_other) contribute(c, 0, mine);
        CALL(Gatherv, gatherv, given, mine, c->given, c->in, c->counts, c->displs, c->taken, root, g->comm);
        break;
    default:
        if (at.is_other) contribute(c, 0, count * by.numbers);
        CALL(Reduce, reduce, given, c->in, count, by.type, by.op, root, g->comm);
    }
}

static void call_all(const Group *g, Collective *c, int kind, int count, Reduction by) {
    int mine = count % (g->rank + 3), least = count % 5, n = g->peers;
    /* Of two groups, each receives as many numbers in all. */
    int block = g->is_inter ? g->peers * least : count % 40, total = 0;
    void *given = c->is_in_place ? MPI_IN_PLACE : (void *)c->out;
    switch (kind) {
    case 7:
        contribute(c, c->is_in_place ? g->rank * count : 0, count);
        CALL(Allgather, allgather, given, count, c->given, c->in, count, c->taken, g->comm);
        break;
    case 8:
        contribute(c, c->is_in_place ? c->displs[g->rank] : 0, mine);
        CALL(Allgatherv, allgatherv, given, mine, c->given, c->in, c->counts, c->displs, c->taken, g->comm);
        break;
    case 9:
        contribute(c, 0, count * n);
        CALL(Alltoall, alltoall, given, count, c->given, c->in, count, c->taken, g->comm);
        break;
    case 10:
        contribute(c, 0, count * by.numbers);
        CALL(Allreduce, allreduce, given, c->in, count, by.type, by.op, g->comm);
        break;
    case 11:
        contribute(c, 0, count * by.numbers);
        CALL(Scan, scan, given, c->in, count, by.type, by.op, g->comm);
        break;
    case 12:
        contribute(c, 0, count * by.numbers);
        CALL(Exscan, exscan, given, c->in, count, by.type, by.op, g->comm);
        break;
    case 13:
    case 14:
        /* Each pair exchanges as many as both ranks say. */
        for (int i = 0, at = 0; i < n; at += c->counts[i++]) {
            c->counts[i] = count % (g->rank + i + 3);
            (c->displs[i] = at, c->bytes[i] = at * c->stride * (int)sizeof(int), c->in_bytes[i] = at * c->in_stride * (int)sizeof(int));
            contribute(c, at, c->counts[i]);
        }
        if (kind == 13) {
            CALL(Alltoallv, alltoallv, given, c->counts, c->displs, c->given, c->in, c->counts, c->displs, c->taken, g->comm);
        } else {
            CALL(Alltoallw, alltoallw, given, c->counts, c->bytes, c->types, c->in, c->counts, c->in_bytes, c->in_types, g->comm);
        }
        break;
    case 15:
        for (int i = 0; i < g->size; total += c->counts[i++]) c->counts[i] = g->is_inter ? block : count % (i + 3);
        contribute(c, 0, total * by.numbers);
        if (c->is_in_place) c->defined = c->counts[g->rank] * by.numbers;
        CALL(Reduce_scatter, reduce_scatter, given, c->in, c->counts, by.type, by.op, g->comm);
        break;
    default:
        contribute(c, 0, block * g->size * by.numbers);
        if (c->is_in_place) c->defined = block * by.numbers;
        CALL(Reduce_scatter_block, reduce_scatter_block, given, c->in, block, by.type, by.op, g->comm);
    }
}

static int is_reduction(int kind) { return kind == 6 || (kind >= 10 && kind <= 12) || kind >= 15; }

/* Draws the elements of an operation's two buffers: without gaps for a reduction, and the same ones in place. */
static void draw_elements(Collective *c, int is_dense) {
    int given = draw(2) && !is_dense ? SPREAD_INTEGER : INTEGER, taken = draw(2) && !is_dense ? SPREAD_INTEGER : INTEGER;
    if (c->is_in_place) given = taken;
    (c->given = layouts[given].type, c->stride = (int)layouts[given].extent / (int)sizeof(int));
    (c->taken = layouts[taken].type, c->in_stride = (int)layouts[taken].extent / (int)sizeof(int));
    for (int i = 0; i < PARTS_MAX; i++) (c->types[i] = c->given, c->in_types[i] = c->taken);
}

static void call_barrier(const Group *g, Collective *c) { CALL(Barrier, barrier, g->comm); }

/* Begins an operation, or makes a persistent one. */
static void begin_collective(const Group *g, Collective *c, int form) {
    int has_neighbours = draw(2) && g->has_neighbours, kind = draw(KINDS), count = draw(4) ? draw(20) : draw(COUNT_MAX);
    int in_place = draw(3) == 0 && !g->is_inter, is_rooted = kind >= 1 && kind <= 6;
    Root root = root_of(g, draw(g->least), draw(2));
    /* In Open MPI 5.0.11, operations that don't block exchange the messages of two neighbours that are the same rank. */
    if (form > BLOCKING && g->has_twins) has_neighbours = 0;
    Reduction by = draw_reduction();
    /* Open MPI 5.0.11 hangs in MPI_Ialltoallw in place if a pair exchanges nothing. */
    if ((kind == 13 || kind == 14) && form > BLOCKING) in_place = 0;
    /* MPI has no scans between two groups. */
    if (g->is_inter && (kind == 11 || kind == 12)) kind = 0;
    /* Between two groups, MPI_Ibcast of MPICH brings nothing, except from a group's first rank. */
    if (IS_MPICH && g->is_inter && kind == 1 && form > BLOCKING) kind = 0;
    c->request = MPI_REQUEST_NULL;
    (c->form = form, c->parts = 0, c->defined = NUMBERS_MAX, c->seed = draw_seed());
    /* Of operations with a root, only its own part is in place. */
    c->is_in_place = in_place && !has_neighbours && (!is_rooted || root.is_root);
    draw_elements(c, !has_neighbours && is_reduction(kind));
    fill_numbers(c);
    for (int i = 0, at = 0; i < g->peers; i++) {
        c->counts[i] = count % (i + 3);
        c->displs[i] = at;
        at += c->counts[i] + 1;
    }
    if (has_neighbours) call_neighbours(g, c);
    else if (kind == 0) call_barrier(g, c);
    else if (is_rooted) call_rooted(g, c, kind, count, root, by);
    else call_all(g, c, kind, count, by);
    if (form == PERSISTENT) {
        /* The arrays of the call are the program's again. (Its datatypes aren't: Open MPI 5.0.11 crashes if they are freed.) */
        for (int i = 0; i < PARTS_MAX; i++) {
            c->counts[i] = c->displs[i] = c->bytes[i] = c->in_counts[i] = c->in_displs[i] = c->in_bytes[i] = 1 << 28;
            c->addresses[i] = c->in_addresses[i] = 1 << 28;
            c->types[i] = c->in_types[i] = MPI_DATATYPE_NULL;
        }
    }
    c->op = by.is_own ? by.op : MPI_OP_NULL;
}

/* Starts persistent operations in an order of this rank's own, and begins a sum somewhere among them: only operations that aren't persistent begin
 * in the same order on all ranks. Its request is the last one. */
static void start_persistent(const Group *g, int count, MPI_Request *requests, const int *out, int *in) {
    int first = choose(count), sum_at = choose(count + 1), starts_all = choose(2);
    for (int i = 0; i <= count; i++) {
        if (i == sum_at) DO(MPI_Iallreduce(out, in, SUM_NUMBERS, MPI_INT, MPI_SUM, g->comm, &requests[count]));
        if (starts_all && i == 0) DO(MPI_Startall(count, requests));
        else if (!starts_all && i < count) DO(MPI_Start(&requests[(first + i) % count]));
    }
}

void collectives(const Group *g) {
    MPI_Request requests[OPERATIONS_MAX + 1];
    MPI_Status statuses[OPERATIONS_MAX + 1];
    int count = 1 + draw(OPERATIONS_MAX), form = draw(FORMS), rounds = form == PERSISTENT ? 1 + draw(2) : 1;
    for (int i = 0; i < count; i++) begin_collective(g, &operations[i], form);
    for (int round = 0; round < rounds; round++) {
        int out[SUM_NUMBERS] = {rank, rank * rank, round}, in[SUM_NUMBERS] = {0};
        for (int i = 0; i < count; i++) {
            if (round > 0) {
                operations[i].seed += 77;
                fill_numbers(&operations[i]);
            }
            if (form == PERSISTENT) note_start(&operations[i]);
            requests[i] = operations[i].request;
        }
        if (form == PERSISTENT) {
            note_contribution(out, sizeof out);
            start_persistent(g, count, requests, out, in);
        }
        complete(form == PERSISTENT ? count + 1 : count, requests, statuses);
        add(hash(in, sizeof in));
        for (int i = 0; i < count; i++) {
            add(hash(operations[i].in, sizeof(int) * (size_t)operations[i].defined));
            add(hash(operations[i].out, sizeof operations[i].out));
        }
    }
    for (int i = 0; i < count; i++) {
        if (form == PERSISTENT) DO(MPI_Request_free(&operations[i].request));
        /* Not earlier: Open MPI 5.0.11 crashes if an operation is freed while a non-blocking call uses it. */
        if (operations[i].op != MPI_OP_NULL) DO(MPI_Op_free(&operations[i].op));
    }
}
