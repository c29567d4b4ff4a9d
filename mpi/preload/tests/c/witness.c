/* Independent witness of a program's messages. It counts the messages and bytes that a rank sends to each rank, and hashes received
 * messages. It shares no code with the library: it is loaded before it, sees the program's calls, and writes its observations to
 * WITNESS_DIR/witness-RANK at MPI_Finalize:
 *
 *     sent TO MESSAGES BYTES PASSED PASSED_BYTES     the last two count while MPI_Pcontrol(0) is in effect
 *     received FROM COMMUNICATOR TAG BYTES HASH      in matching order; HASH is ? if the bytes couldn't be seen
 *
 * Ranks are those in MPI_COMM_WORLD; this process numbers communicators by itself. Messages are matched in the order in which receives
 * are posted, so each receive gets a ticket when it is posted. */
#include "witness.h"

#define SEND(name)                                                                                                       \
    int MPI_##name(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm) {                    \
        int code = NEXT(name)(buf, count, type, dest, tag, comm);                                                        \
        if (!code) LOCKED(count_send(count, type, dest, comm));                                                          \
        return code;                                                                                                     \
    }
SEND(Send) SEND(Bsend) SEND(Ssend) SEND(Rsend)

#define ISEND(name)                                                                                                      \
    int MPI_##name(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request) { \
        int code = NEXT(name)(buf, count, type, dest, tag, comm, request);                                               \
        if (!code) LOCKED(count_send(count, type, dest, comm));                                                          \
        return code;                                                                                                     \
    }
ISEND(Isend) ISEND(Ibsend) ISEND(Issend) ISEND(Irsend)

#define SEND_INIT(name)                                                                                                  \
    int MPI_##name(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request) { \
        int code = NEXT(name)(buf, count, type, dest, tag, comm, request);                                               \
        if (!code) LOCKED(add(*request, (Request){.kind = SENDS, .send = {count, type, dest, comm}}));                   \
        return code;                                                                                                     \
    }
SEND_INIT(Send_init) SEND_INIT(Bsend_init) SEND_INIT(Ssend_init) SEND_INIT(Rsend_init)

int MPI_Recv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status) {
    MPI_Status ours;
    Receive receive;
    LOCKED(receive = posted(buf, count, type, source, tag, comm));
    if (status == MPI_STATUS_IGNORE) status = &ours;
    int code = NEXT(Recv)(buf, count, type, source, tag, comm, status);
    LOCKED(received(&receive, code, status); forget(&receive));
    return code;
}

int MPI_Irecv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request) {
    int code = NEXT(Irecv)(buf, count, type, source, tag, comm, request);
    if (!code) LOCKED(add_receive(*request, posted(buf, count, type, source, tag, comm)));
    return code;
}

static void add_persistent(MPI_Request handle, Receive receive) { add(handle, (Request){.kind = RECEIVES, .receive = receive}); }

int MPI_Recv_init(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request) {
    int code = NEXT(Recv_init)(buf, count, type, source, tag, comm, request);
    if (!code) LOCKED(add_persistent(*request, posted(buf, count, type, source, tag, comm)));
    return code;
}

#ifdef HAVE_MPI_4
int MPI_Psend_init(const void *buf, int parts, MPI_Count count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Info info,
                   MPI_Request *request) {
    int code = NEXT(Psend_init)(buf, parts, count, type, dest, tag, comm, info, request);
    if (!code) LOCKED(add(*request, (Request){.kind = SENDS, .send = {count * parts, type, dest, comm}}));
    return code;
}

int MPI_Precv_init(void *buf, int parts, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Info info,
                   MPI_Request *request) {
    int code = NEXT(Precv_init)(buf, parts, count, type, source, tag, comm, info, request);
    if (!code) {
        pthread_mutex_lock(&lock);
        Receive receive = posted(buf, count * parts, type, source, tag, comm);
        receive.partitioned = ++pairs;
        add_persistent(*request, receive);
        pthread_mutex_unlock(&lock);
    }
    return code;
}

int MPI_Isendrecv(const void *out, int outs, MPI_Datatype out_type, int dest, int out_tag, void *in, int ins, MPI_Datatype in_type,
                  int source, int in_tag, MPI_Comm comm, MPI_Request *request) {
    int code = NEXT(Isendrecv)(out, outs, out_type, dest, out_tag, in, ins, in_type, source, in_tag, comm, request);
    if (!code)
        LOCKED(count_send(outs, out_type, dest, comm); add_receive(*request, posted(in, ins, in_type, source, in_tag, comm)));
    return code;
}

int MPI_Isendrecv_replace(void *buf, int count, MPI_Datatype type, int dest, int out_tag, int source, int in_tag, MPI_Comm comm,
                          MPI_Request *request) {
    int code = NEXT(Isendrecv_replace)(buf, count, type, dest, out_tag, source, in_tag, comm, request);
    if (!code) LOCKED(count_send(count, type, dest, comm); add_receive(*request, posted(buf, count, type, source, in_tag, comm)));
    return code;
}
#endif

int MPI_Sendrecv(const void *out, int outs, MPI_Datatype out_type, int dest, int out_tag, void *in, int ins, MPI_Datatype in_type,
                 int source, int in_tag, MPI_Comm comm, MPI_Status *status) {
    MPI_Status ours;
    Receive receive;
    LOCKED(receive = posted(in, ins, in_type, source, in_tag, comm));
    if (status == MPI_STATUS_IGNORE) status = &ours;
    int code = NEXT(Sendrecv)(out, outs, out_type, dest, out_tag, in, ins, in_type, source, in_tag, comm, status);
    LOCKED(if (!code) count_send(outs, out_type, dest, comm); received(&receive, code, status); forget(&receive));
    return code;
}

int MPI_Sendrecv_replace(void *buf, int count, MPI_Datatype type, int dest, int out_tag, int source, int in_tag, MPI_Comm comm,
                         MPI_Status *status) {
    MPI_Status ours;
    Receive receive;
    LOCKED(receive = posted(buf, count, type, source, in_tag, comm));
    if (status == MPI_STATUS_IGNORE) status = &ours;
    int code = NEXT(Sendrecv_replace)(buf, count, type, dest, out_tag, source, in_tag, comm, status);
    LOCKED(if (!code) count_send(count, type, dest, comm); received(&receive, code, status); forget(&receive));
    return code;
}

static void matched(MPI_Message message, MPI_Comm comm) {
    if (message == MPI_MESSAGE_NULL || message == MPI_MESSAGE_NO_PROC) return;
    GROW(messages, message_count);
    messages[message_count++] = (Message){message, number_of(comm), tickets++};
}

int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status) {
    int code = NEXT(Mprobe)(source, tag, comm, message, status);
    if (!code) LOCKED(matched(*message, comm));
    return code;
}

int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status) {
    int code = NEXT(Improbe)(source, tag, comm, flag, message, status);
    if (!code && *flag) LOCKED(matched(*message, comm));
    return code;
}

/* Records the receive of a matched message; its ticket is that of the match. */
static int claimed(MPI_Message message, void *buf, int count, MPI_Datatype type, Receive *receive) {
    for (size_t i = 0; i < message_count; i++)
        if (messages[i].handle == message) {
            MPI_Comm comm = comms[messages[i].comm].handle;
            *receive = posted(buf, count, type, MPI_ANY_SOURCE, MPI_ANY_TAG, comm == MPI_COMM_NULL ? MPI_COMM_SELF : comm);
            receive->comm = messages[i].comm;
            receive->ticket = messages[i].ticket;
            messages[i] = messages[--message_count];
            return 1;
        }
    return 0;
}

int MPI_Mrecv(void *buf, int count, MPI_Datatype type, MPI_Message *message, MPI_Status *status) {
    MPI_Status ours;
    Receive receive;
    int is_known;
    LOCKED(is_known = claimed(*message, buf, count, type, &receive));
    if (status == MPI_STATUS_IGNORE) status = &ours;
    int code = NEXT(Mrecv)(buf, count, type, message, status);
    if (is_known) LOCKED(received(&receive, code, status); forget(&receive));
    return code;
}

int MPI_Imrecv(void *buf, int count, MPI_Datatype type, MPI_Message *message, MPI_Request *request) {
    Receive receive;
    int is_known;
    LOCKED(is_known = claimed(*message, buf, count, type, &receive));
    int code = NEXT(Imrecv)(buf, count, type, message, request);
    if (is_known && !code) LOCKED(add_receive(*request, receive));
    return code;
}

static void started(MPI_Request handle) {
    Request *request = find(handle);
    if (!request) return;
    request->active = 1;
    request->receive.ticket = tickets++;
    if (request->kind == SENDS) count_send(request->send.count, request->send.type, request->send.dest, request->send.comm);
}

int MPI_Start(MPI_Request *request) {
    int code = NEXT(Start)(request);
    if (!code) LOCKED(started(*request));
    return code;
}

int MPI_Startall(int count, MPI_Request list[]) {
    int code = NEXT(Startall)(count, list);
    for (int i = 0; !code && i < count; i++) LOCKED(started(list[i]));
    return code;
}

static Request *take_all(int count, MPI_Request list[]) {
    Request *held = malloc(sizeof *held * (count + 1));
    for (int i = 0; i < count; i++) LOCKED(held[i] = take(list[i]));
    return held;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    MPI_Status ours;
    Request held;
    LOCKED(held = take(*request));
    if (status == MPI_STATUS_IGNORE) status = &ours;
    int code = NEXT(Wait)(request, status);
    LOCKED(settle(&held, 1, code, status));
    return code;
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    MPI_Status ours;
    Request held;
    LOCKED(held = take(*request));
    if (status == MPI_STATUS_IGNORE) status = &ours;
    int code = NEXT(Test)(request, flag, status);
    LOCKED(settle(&held, code || *flag, code, status));
    return code;
}

int MPI_Waitany(int count, MPI_Request list[], int *index, MPI_Status *status) {
    MPI_Status ours;
    Request *held = take_all(count, list);
    if (status == MPI_STATUS_IGNORE) status = &ours;
    int code = NEXT(Waitany)(count, list, index, status);
    for (int i = 0; i < count; i++) LOCKED(settle(&held[i], i == *index, code, status));
    free(held);
    return code;
}

int MPI_Testany(int count, MPI_Request list[], int *index, int *flag, MPI_Status *status) {
    MPI_Status ours;
    Request *held = take_all(count, list);
    if (status == MPI_STATUS_IGNORE) status = &ours;
    int code = NEXT(Testany)(count, list, index, flag, status);
    for (int i = 0; i < count; i++) LOCKED(settle(&held[i], *flag && i == *index, code, status));
    free(held);
    return code;
}

/* Code of one of several operations, by the call's code; and whether it has ended, as it may not have if another one failed. */
static int each(int code, const MPI_Status *status) { return code == MPI_ERR_IN_STATUS ? status->MPI_ERROR : code; }
static int has_ended(int code, const MPI_Status *status) { return each(code, status) != MPI_ERR_PENDING; }

int MPI_Waitall(int count, MPI_Request list[], MPI_Status statuses[]) {
    Request *held = take_all(count, list);
    MPI_Status *ours = malloc(sizeof *ours * (count + 1));
    if (statuses == MPI_STATUSES_IGNORE) statuses = ours;
    int code = NEXT(Waitall)(count, list, statuses);
    for (int i = 0; i < count; i++) LOCKED(settle(&held[i], has_ended(code, &statuses[i]), each(code, &statuses[i]), &statuses[i]));
    free(ours);
    free(held);
    return code;
}

int MPI_Testall(int count, MPI_Request list[], int *flag, MPI_Status statuses[]) {
    Request *held = take_all(count, list);
    MPI_Status *ours = malloc(sizeof *ours * (count + 1));
    if (statuses == MPI_STATUSES_IGNORE) statuses = ours;
    int code = NEXT(Testall)(count, list, flag, statuses);
    for (int i = 0; i < count; i++) LOCKED(settle(&held[i], code || *flag, *flag ? each(code, &statuses[i]) : code, &statuses[i]));
    free(ours);
    free(held);
    return code;
}

#define SOME(name)                                                                                                       \
    int MPI_##name(int count, MPI_Request list[], int *ended, int indices[], MPI_Status statuses[]) {                    \
        Request *held = take_all(count, list);                                                                           \
        MPI_Status *ours = malloc(sizeof *ours * (count + 1));                                                           \
        if (statuses == MPI_STATUSES_IGNORE) statuses = ours;                                                            \
        int code = NEXT(name)(count, list, ended, indices, statuses);                                                    \
        for (int i = 0; *ended != MPI_UNDEFINED && i < *ended; i++) {                                                    \
            LOCKED(settle(&held[indices[i]], 1, each(code, &statuses[i]), &statuses[i]));                                \
            held[indices[i]].kind = FREE;                                                                                \
        }                                                                                                                \
        for (int i = 0; i < count; i++) LOCKED(settle(&held[i], 0, 0, NULL));                                            \
        free(ours);                                                                                                      \
        free(held);                                                                                                      \
        return code;                                                                                                     \
    }
SOME(Waitsome) SOME(Testsome)

/* A receive whose request is freed while it is pending still takes a message, but its end can't be observed. */
int MPI_Request_free(MPI_Request *request) {
    pthread_mutex_lock(&lock);
    Request held = take(*request), *found = find(*request);
    if (found) found->kind = FREE;
    if (held.kind == ONCE || held.kind == RECEIVES) {
        Receive *receive = &held.receive;
        int from = world_of(receive->comm, receive->source);
        MPI_Count size;
        PMPI_Type_size_x(receive->type, &size);
        if (from >= 0 && receive->tag >= 0)
            note((Receipt){receive->ticket, 0, receive->count * size, from, receive->comm, receive->tag, 0});
    }
    pthread_mutex_unlock(&lock);
    return NEXT(Request_free)(request);
}

static void gone(MPI_Comm handle) {
    for (int i = 0; i < comm_count; i++)
        if (comms[i].handle == handle) comms[i].handle = MPI_COMM_NULL;
}

int MPI_Comm_free(MPI_Comm *comm) {
    LOCKED(gone(*comm));
    return NEXT(Comm_free)(comm);
}

int MPI_Comm_disconnect(MPI_Comm *comm) {
    LOCKED(gone(*comm));
    return NEXT(Comm_disconnect)(comm);
}

int MPI_Pcontrol(const int level, ...) {
    if (level == 0 || level == 1) is_passing = !level;
    return NEXT(Pcontrol)(level);
}

int MPI_Finalize(void) {
    write_report(getenv("WITNESS_DIR"));
    return NEXT(Finalize)();
}
