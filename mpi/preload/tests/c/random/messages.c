/* Messages between ranks of a communicator, in all modes and forms, by named receives and wildcards. */
#include "random.h"

enum { ATTACHED_BYTES = 48 << 20, HUGE_BYTES = 4 << 20 };

void send_blocking(int mode, const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    switch (mode) {
    case SYNCHRONOUS: DO(MPI_Ssend(buf, count, type, to, tag, comm)); break;
    case BUFFERED: DO(MPI_Bsend(buf, count, type, to, tag, comm)); break;
    case READY: DO(MPI_Rsend(buf, count, type, to, tag, comm)); break;
    default: DO(MPI_Send(buf, count, type, to, tag, comm));
    }
}

void send_immediate(int mode, const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
    switch (mode) {
    case SYNCHRONOUS: DO(MPI_Issend(buf, count, type, to, tag, comm, request)); break;
    case BUFFERED: DO(MPI_Ibsend(buf, count, type, to, tag, comm, request)); break;
    case READY: DO(MPI_Irsend(buf, count, type, to, tag, comm, request)); break;
    default: DO(MPI_Isend(buf, count, type, to, tag, comm, request));
    }
}

void send_init(int mode, const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
    switch (mode) {
    case SYNCHRONOUS: DO(MPI_Ssend_init(buf, count, type, to, tag, comm, request)); break;
    case BUFFERED: DO(MPI_Bsend_init(buf, count, type, to, tag, comm, request)); break;
    case READY: DO(MPI_Rsend_init(buf, count, type, to, tag, comm, request)); break;
    default: DO(MPI_Send_init(buf, count, type, to, tag, comm, request));
    }
}

static void *attached;

void attach_buffer(void) {
    CHECK((attached = malloc(ATTACHED_BYTES)));
    DO(MPI_Buffer_attach(attached, ATTACHED_BYTES));
}

void detach_buffer(void) {
    int size;
    DO(MPI_Buffer_detach(&attached, &size));
    CHECK(size == ATTACHED_BYTES);
    free(attached);
}

/* The buffer of buffered sends is given back when they have ended, and attached again. */
void buffer_again(void) {
    detach_buffer();
    attach_buffer();
}

/* A message of a step. */
typedef struct {
    int from, to, tag, type, count, mode, form, receipt;
    /* How the send and the receive name the elements. The receive may have a type without gaps, and room for more. */
    int name, in_name, is_dense, spare;
} Message;

/* Receives of a message: posted before all sends, or after them. */
enum { POSTED, PERSISTENT, RECEIVED, PROBED, MATCHED };
/* Forms of a send: blocking if its receive is posted, immediate, persistent, and immediate with a request that is freed. */
enum { BLOCKING, IMMEDIATE, STARTED, FREED };
/* Receives of a step: named, from any source, with any tag. */
enum { NAMED, ANY_SOURCE, ANY_TAG };

static unsigned char packed_out[MESSAGES_MAX][BUFFER_BYTES], packed_in[MESSAGES_MAX][BUFFER_BYTES];

static void send_one(const Group *g, const Message *m, int i, MPI_Request *request, int *is_persistent) {
    const Layout *layout = &layouts[m->type];
    unsigned char *buf = outgoing[i] + MARGIN;
    Named out = name_elements(m->name, buf, m->count, layout, packed_out[i]);
    *request = MPI_REQUEST_NULL;
    note_sent(g, m->to, m->tag, buf, m->count, layout->type);
    if (m->name == PACKED) pack_elements(buf, m->count, layout->type, out.buf, out.count);
    if (m->form == STARTED) {
        *is_persistent = 1;
        send_init(m->mode, out.buf, out.count, out.type, m->to, m->tag, g->comm, request);
        DO(MPI_Start(request));
    } else if (m->form == BLOCKING && m->receipt <= PERSISTENT) {
        send_blocking(m->mode, out.buf, out.count, out.type, m->to, m->tag, g->comm);
    } else {
        send_immediate(m->mode, out.buf, out.count, out.type, m->to, m->tag, g->comm, request);
        if (m->form == FREED) DO(MPI_Request_free(request));
    }
    free_named(m->name, &out);
}

static Message draw_message(const Group *g, int kind, const Message *any) {
    Message m;
    (m.from = draw(g->least), m.to = draw(g->least), m.tag = draw(NAMED_TAGS), m.type = draw(TYPES));
    (m.mode = draw(4), m.form = draw(8), m.receipt = draw(6), m.name = draw(2) ? draw(NAMES) : 0);
    (m.in_name = draw(2) ? draw(NAMES) : 0, m.is_dense = draw(4) == 0, m.spare = draw(2) ? draw(50) : 0);
    /* Most are blocking, immediate or persistent. */
    m.form = m.form == 7 ? FREED : m.form % 3;
    /* Receives of a stream are posted in the order of its messages. */
    m.receipt = m.tag == 0 ? m.receipt % 2 : RECEIVED + m.receipt % 3;
    if (kind == ANY_SOURCE) {
        /* A blocking send may wait for a receive that another message has taken. */
        (m.tag = ANY_SOURCE_TAG, m.form = m.form == BLOCKING ? IMMEDIATE : m.form);
        /* Any of the receives may get it. */
        (m.type = any->type, m.in_name = any->in_name, m.is_dense = any->is_dense);
    }
    if (kind == ANY_TAG) m.receipt = RECEIVED;
    if (m.mode == READY && (kind == ANY_SOURCE || m.receipt > PERSISTENT)) m.mode = STANDARD;
    m.count = draw_count(m.type);
    m.spare = kind == ANY_SOURCE ? ELEMENTS_MAX : m.spare > ELEMENTS_MAX - m.count ? 0 : m.spare;
    return m;
}

/* Elements of a receive. */
static const Layout *layout_in(const Message *m) { return m->is_dense ? &dense[m->type] : &layouts[m->type]; }
static int count_in(const Message *m, int count) { return m->is_dense ? count * dense_counts[m->type] : count; }
static int room_of(const Message *m) { return count_in(m, m->spare == ELEMENTS_MAX ? ELEMENTS_MAX : m->count + m->spare); }

/* Receives message `i`, whose receive is posted after the sends. */
static void receive_one(const Group *g, const Message *m, int kind, int i, MPI_Status *status) {
    int source = kind == ANY_SOURCE ? MPI_ANY_SOURCE : m->from, tag = kind == ANY_TAG ? MPI_ANY_TAG : m->tag, flag = 0, there;
    const Layout *layout = layout_in(m);
    unsigned char *buf = incoming[i] + MARGIN;
    Named in = name_elements(m->in_name, buf, room_of(m), layout, packed_in[i]);
    MPI_Message message;
    MPI_Request request;
    switch (m->receipt) {
    case PROBED: {
        MPI_Status probed;
        if (choose(2)) DO(MPI_Probe(source, tag, g->comm, &probed));
        else
            while (!flag) DO(MPI_Iprobe(source, tag, g->comm, &flag, &probed));
        DO(MPI_Get_count(&probed, layout->type, &there));
        /* MPI counts no elements without bytes. */
        free_named(m->in_name, &in);
        in = name_elements(m->in_name, buf, layout->size == 0 ? m->count : there, layout, packed_in[i]);
        DO(MPI_Recv(in.buf, in.count, in.type, probed.MPI_SOURCE, probed.MPI_TAG, g->comm, wanted(status)));
        break;
    }
    case MATCHED:
        if (choose(2)) DO(MPI_Mprobe(source, tag, g->comm, &message, wanted(status)));
        else
            while (!flag) DO(MPI_Improbe(source, tag, g->comm, &flag, &message, wanted(status)));
        if (choose(2)) DO(MPI_Mrecv(in.buf, in.count, in.type, &message, wanted(status)));
        else {
            DO(MPI_Imrecv(in.buf, in.count, in.type, &message, &request));
            DO(MPI_Wait(&request, wanted(status)));
        }
        break;
    default: DO(MPI_Recv(in.buf, in.count, in.type, source, tag, g->comm, wanted(status)));
    }
    free_named(m->in_name, &in);
}

/* Message `i` has been received. Of messages from any source, the order is not that of the plan: `sum` has what was received of them. */
static void add_message(const Message *m, int kind, int i, const MPI_Status *status, uint64_t *sum) {
    const Layout *layout = layout_in(m);
    unsigned char *buf = incoming[i] + MARGIN;
    int got = count_in(m, m->count);
    if (kind == ANY_SOURCE) DO(MPI_Get_count(status, layout->type, &got));
    if (m->in_name == PACKED) unpack_elements(buf, got, layout, packed_in[i]);
    if (kind == ANY_SOURCE) {
        *sum += hash_elements(buf, got, layout) * (uint64_t)(status->MPI_SOURCE + 1);
    } else {
        if (!ignores_statuses) add_status(status, layout->type);
        add(hash_elements(buf, room_of(m), layout));
    }
}

void messages(const Group *g) {
    Message all[MESSAGES_MAX], any = {0};
    MPI_Request requests[2 * MESSAGES_MAX];
    MPI_Status statuses[2 * MESSAGES_MAX], status;
    int count = 1 + draw(MESSAGES_MAX), kind = draw(4), open = 0, persistent[2 * MESSAGES_MAX] = {0};
    int of[2 * MESSAGES_MAX] = {0}, is_any_freed = 0;
    uint64_t step = draw_seed(), sum = 0;
    (any.type = draw(TYPES), any.in_name = draw(NAMES), any.is_dense = draw(2));
    ignores_statuses = kind != ANY_SOURCE && draw(4) == 0;
    for (int i = 0; i < count; i++) {
        all[i] = draw_message(g, kind, &any);
        is_any_freed |= all[i].form == FREED;
    }
    /* Receives that are posted before the sends, in the order of the plan. */
    for (int i = 0; i < count; i++) {
        const Message *m = &all[i];
        int source = kind == ANY_SOURCE ? MPI_ANY_SOURCE : m->from;
        if (m->to != g->rank) continue;
        clear_elements(incoming[i] + MARGIN, room_of(m), layout_in(m));
        if (m->receipt > PERSISTENT) continue;
        Named in = name_elements(m->in_name, incoming[i] + MARGIN, room_of(m), layout_in(m), packed_in[i]);
        of[open] = i;
        if (m->receipt == PERSISTENT) {
            persistent[open] = 1;
            DO(MPI_Recv_init(in.buf, in.count, in.type, source, m->tag, g->comm, &requests[open]));
            DO(MPI_Start(&requests[open++]));
        } else {
            DO(MPI_Irecv(in.buf, in.count, in.type, source, m->tag, g->comm, &requests[open++]));
        }
        free_named(m->in_name, &in);
    }
    int receives = open;
    DO(MPI_Barrier(g->comm));
    for (int i = 0; i < count; i++) {
        const Message *m = &all[i];
        if (m->from != g->rank) continue;
        fill_elements(outgoing[i] + MARGIN, m->count, &layouts[m->type], step + (uint64_t)(i + 100 * g->side));
        send_one(g, m, i, &requests[open], &persistent[open]);
        open += requests[open] != MPI_REQUEST_NULL;
    }
    for (int i = 0; i < count; i++) {
        const Message *m = &all[i];
        if (m->to != g->rank || m->receipt <= PERSISTENT) continue;
        receive_one(g, m, kind, i, &status);
        add_message(m, kind, i, &status, &sum);
    }
    complete(open, requests, statuses);
    for (int k = 0; k < receives; k++) add_message(&all[of[k]], kind, of[k], &statuses[k], &sum);
    add(sum);
    for (int k = 0; k < open; k++)
        if (persistent[k]) DO(MPI_Request_free(&requests[k]));
    /* Buffers of sends without requests may be written again when their messages have been received. */
    if (is_any_freed) DO(MPI_Barrier(g->comm));
}

/* A message that is larger than a chunk of a log. */
void huge_message(const Group *g) {
    static unsigned char out[HUGE_BYTES], in[HUGE_BYTES];
    int from = draw(g->least), to = draw(g->least), type = 1 + draw(4), mode = draw(4), form = draw(3), receipt = draw(2);
    int bytes = (1 << 20) + draw(HUGE_BYTES - (1 << 20)), count = bytes / (int)layouts[type].extent - 1;
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status statuses[2];
    MPI_Datatype datatype = layouts[type].type;
    uint64_t step = draw_seed();
    if (to == g->rank) {
        memset(in, 0xee, sizeof in);
        if (receipt == POSTED) DO(MPI_Irecv(in, count, datatype, from, HUGE_TAG, g->comm, &requests[0]));
    }
    /* Without a posted receive, the send is neither ready nor blocking. */
    if (receipt != POSTED) (mode = mode == READY ? STANDARD : mode, form = form == BLOCKING ? IMMEDIATE : form);
    DO(MPI_Barrier(g->comm));
    if (from == g->rank) {
        for (size_t i = 0; i < sizeof out / 8; i++) memcpy(out + 8 * i, &(uint64_t){next(&step)}, 8);
        note_sent(g, to, HUGE_TAG, out, count, datatype);
        if (form == BLOCKING) send_blocking(mode, out, count, datatype, to, HUGE_TAG, g->comm);
        else if (form == IMMEDIATE) send_immediate(mode, out, count, datatype, to, HUGE_TAG, g->comm, &requests[1]);
        else {
            send_init(mode, out, count, datatype, to, HUGE_TAG, g->comm, &requests[1]);
            DO(MPI_Start(&requests[1]));
        }
    }
    if (to == g->rank) {
        if (receipt != POSTED) DO(MPI_Recv(in, count, datatype, from, HUGE_TAG, g->comm, &statuses[0]));
        complete(2, requests, receipt != POSTED ? (MPI_Status[2]){{0}} : statuses);
        add_status(&statuses[0], datatype);
        add(hash(in, sizeof in));
    } else {
        complete(2, requests, statuses);
    }
    if (requests[1] != MPI_REQUEST_NULL) DO(MPI_Request_free(&requests[1]));
}
