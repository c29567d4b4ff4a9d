/* Messages around a ring of ranks: exchanges, partitioned messages, and those from and to no process. */
#include "random.h"

#ifdef HAVE_MPI_4
enum { HAS_ISENDRECV = 1 };
#else
enum { HAS_ISENDRECV = 0 };
#endif

Ring ring(const Group *g, int shift) {
    if (g->rank >= g->least) return (Ring){MPI_PROC_NULL, MPI_PROC_NULL};
    shift %= g->least;
    return (Ring){(g->rank + shift) % g->least, (g->rank + g->least - shift) % g->least};
}

/* Sent and received in one call. */
void exchange(const Group *g) {
    int type = draw(TYPES), count = draw_count(type), tag = draw(NAMED_TAGS), kind = draw(HAS_ISENDRECV ? 4 : 2), wildcards = draw(4);
    int is_dense = draw(4) == 0 && kind % 2 == 0, in_count = is_dense ? count * dense_counts[type] : count;
    const Layout *layout = &layouts[type], *in_layout = is_dense ? &dense[type] : layout;
    Ring at = ring(g, draw(4));
    MPI_Status status;
    unsigned char *out = outgoing[0] + MARGIN, *in = incoming[0] + MARGIN;
    ignores_statuses = draw(4) == 0;
    fill_elements(out, count, layout, draw_seed() + (uint64_t)(g->rank + 17 * g->side));
    clear_elements(in, in_count, in_layout);
    if (wildcards > 1) tag = EXCHANGE_TAG;
    note_sent(g, at.to, tag, out, count, layout->type);
    if (kind % 2) copy_elements(in, out, count, layout);
    int source = wildcards > 1 && at.from != MPI_PROC_NULL ? MPI_ANY_SOURCE : at.from, in_tag = wildcards == 3 ? MPI_ANY_TAG : tag;
    if (wildcards == 3) DO(MPI_Barrier(g->comm));
    switch (kind) {
    case 0:
        DO(MPI_Sendrecv(out, count, layout->type, at.to, tag, in, in_count, in_layout->type, source, in_tag, g->comm, wanted(&status)));
        break;
    case 1: DO(MPI_Sendrecv_replace(in, count, layout->type, at.to, tag, source, in_tag, g->comm, wanted(&status))); break;
#ifdef HAVE_MPI_4
    default: {
        MPI_Request request;
        if (kind == 2)
            DO(MPI_Isendrecv(out, count, layout->type, at.to, tag, in, in_count, in_layout->type, source, in_tag, g->comm, &request));
        else DO(MPI_Isendrecv_replace(in, count, layout->type, at.to, tag, source, in_tag, g->comm, &request));
        DO(MPI_Wait(&request, wanted(&status)));
    }
#endif
    }
    if (at.from != MPI_PROC_NULL && kind < 2 && !ignores_statuses) add_status(&status, in_layout->type);
    add(hash_elements(in, in_count, in_layout));
    /* Later messages are not for a receive with wildcards. */
    if (wildcards > 1) DO(MPI_Barrier(g->comm));
}

/* What is sent to MPI_PROC_NULL is gone; what is received from it is empty. */
void no_process(const Group *g) {
    int none = MPI_PROC_NULL, count = 3 + draw(100), form = draw(3), mode = draw(4), kind = draw(6), flag = 0, buf[200] = {0}, in[200] = {0};
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status statuses[2], status;
    MPI_Message message;
    switch (form) {
    case 0: send_blocking(mode, buf, count, MPI_INT, none, 1, g->comm); break;
    case 1: send_immediate(mode, buf, count, MPI_INT, none, 1, g->comm, &requests[0]); break;
    default:
        send_init(mode, buf, count, MPI_INT, none, 1, g->comm, &requests[0]);
        DO(MPI_Start(&requests[0]));
    }
    switch (kind) {
    case 0: DO(MPI_Recv(in, count, MPI_INT, none, 1, g->comm, &status)); break;
    case 1: DO(MPI_Irecv(in, count, MPI_INT, none, 1, g->comm, &requests[1])); break;
    case 2:
        DO(MPI_Recv_init(in, count, MPI_INT, none, 1, g->comm, &requests[1]));
        DO(MPI_Start(&requests[1]));
        break;
    case 3:
        if (choose(2)) DO(MPI_Probe(none, 1, g->comm, &status));
        else
            while (!flag) DO(MPI_Iprobe(none, 1, g->comm, &flag, &status));
        break;
    case 4:
        if (choose(2)) DO(MPI_Mprobe(none, 1, g->comm, &message, &status));
        else
            while (!flag) DO(MPI_Improbe(none, 1, g->comm, &flag, &message, &status));
        CHECK(message == MPI_MESSAGE_NO_PROC);
        if (choose(2)) DO(MPI_Mrecv(in, count, MPI_INT, &message, &status));
        else {
            DO(MPI_Imrecv(in, count, MPI_INT, &message, &requests[1]));
            statuses[1] = status;
        }
        break;
    default: DO(MPI_Sendrecv(buf, count, MPI_INT, none, 1, in, count, MPI_INT, none, 1, g->comm, &status));
    }
    int is_received = requests[1] != MPI_REQUEST_NULL;
    complete(2, requests, statuses);
    add_status(is_received ? &statuses[1] : &status, MPI_INT);
    add(hash(in, sizeof in));
    for (int i = 0; i < 2; i++)
        if (requests[i] != MPI_REQUEST_NULL) DO(MPI_Request_free(&requests[i]));
}

/* Messages in parts; MPI has none between two groups. */
void partitioned(const Group *g) {
#ifdef HAVE_MPI_4
    if (g->is_inter) return;
    int parts = 1 + draw(5), count = draw(50), rounds = 1 + draw(3);
    Ring at = ring(g, 1);
    MPI_Request requests[2];
    MPI_Status statuses[2];
    uint64_t step = draw_seed();
    unsigned char *out = outgoing[0] + MARGIN, *in = incoming[0] + MARGIN;
    const Layout *layout = &layouts[INTEGER];
    DO(MPI_Psend_init(out, parts, count, MPI_INT, at.to, PARTITIONED_TAG, g->comm, MPI_INFO_NULL, &requests[0]));
    DO(MPI_Precv_init(in, parts, count, MPI_INT, at.from, PARTITIONED_TAG, g->comm, MPI_INFO_NULL, &requests[1]));
    for (int round = 0; round < rounds; round++) {
        int first = choose(parts);
        clear_elements(in, parts * count, layout);
        fill_elements(out, parts * count, layout, step + (uint64_t)(round + 5 * g->rank));
        note_sent_at(g, at.to, PARTITIONED_TAG, round + 1, out, parts * count, MPI_INT);
        DO(MPI_Startall(2, requests));
        for (int part = 0; part < parts; part++) DO(MPI_Pready((first + part) % parts, requests[0]));
        complete(2, requests, statuses);
        add(hash_elements(in, parts * count, layout));
    }
    for (int i = 0; i < 2; i++) DO(MPI_Request_free(&requests[i]));
#else
    (void)g;
#endif
}
