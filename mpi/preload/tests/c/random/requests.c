/* Requests: ways to wait for them, persistent ones, and those that end by MPI_Cancel. */
#include "random.h"

/* Persistent requests that are never started: waits skip them. */
enum { IDLE = 2, MIXED_MAX = 3 * MESSAGES_MAX + IDLE };
static MPI_Request idle[IDLE];
static int idle_number;
int are_of_session, ignores_statuses;

MPI_Status *wanted(MPI_Status *status) { return ignores_statuses ? MPI_STATUS_IGNORE : status; }
static MPI_Status *all_wanted(MPI_Status *statuses) { return ignores_statuses ? MPI_STATUSES_IGNORE : statuses; }

void make_idle(void) {
    DO(MPI_Send_init(&idle_number, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &idle[0]));
    DO(MPI_Recv_init(&idle_number, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_SELF, &idle[1]));
}

void free_idle(void) {
    for (int i = 0; i < IDLE; i++) DO(MPI_Request_free(&idle[i]));
}

/* Waits until `left` of the requests have ended. */
static void complete_mixed(int count, MPI_Request *requests, MPI_Status *statuses, int left) {
    int index, flag = 0, ended, indices[MIXED_MAX];
    MPI_Status some[MIXED_MAX] = {{0}};
    /* MPI_Request_get_status of a persistent request leaves the next call an empty status in MPICH. */
    switch (choose(IS_MPICH ? 9 : 10)) {
    case 0: DO(MPI_Waitall(count, requests, all_wanted(statuses))); break;
    case 1:
        for (int i = 0; i < count; i++) DO(MPI_Wait(&requests[i], wanted(&statuses[i])));
        break;
    case 2:
        for (int i = count - 1; i >= 0; i--) DO(MPI_Wait(&requests[i], wanted(&statuses[i])));
        break;
    case 3:
        for (; left > 0; left--) {
            DO(MPI_Waitany(count, requests, &index, wanted(&some[0])));
            statuses[index] = some[0];
        }
        DO(MPI_Waitany(count, requests, &index, wanted(&some[0])));
        CHECK(index == MPI_UNDEFINED);
        break;
    case 4:
        while (left > 0) {
            DO(MPI_Waitsome(count, requests, &ended, indices, all_wanted(some)));
            for (int i = 0; i < ended; i++) statuses[indices[i]] = some[i];
            left -= ended;
        }
        DO(MPI_Waitsome(count, requests, &ended, indices, all_wanted(some)));
        CHECK(ended == MPI_UNDEFINED);
        break;
    case 5:
        while (!flag) DO(MPI_Testall(count, requests, &flag, all_wanted(statuses)));
        break;
    case 6:
        while (left > 0) {
            DO(MPI_Testany(count, requests, &index, &flag, wanted(&some[0])));
            if (flag && index != MPI_UNDEFINED) (statuses[index] = some[0], left--);
        }
        break;
    case 7:
        while (left > 0) {
            DO(MPI_Testsome(count, requests, &ended, indices, all_wanted(some)));
            for (int i = 0; i < ended; i++) statuses[indices[i]] = some[i];
            left -= ended;
        }
        break;
    case 8:
        for (int i = 0; i < count; i++)
            for (flag = 0; !flag;) DO(MPI_Test(&requests[i], &flag, wanted(&statuses[i])));
        break;
    default:
        for (int i = 0; i < count; i++) {
            if (requests[i] == MPI_REQUEST_NULL) continue;
            for (flag = 0; !flag;) DO(MPI_Request_get_status(requests[i], &flag, wanted(&some[0])));
            DO(MPI_Wait(&requests[i], wanted(&statuses[i])));
            if (choose(2)) statuses[i] = some[0];
        }
    }
}

/* Mixes null requests and inactive ones with the active ones. */
void complete(int count, MPI_Request *requests, MPI_Status *statuses) {
    MPI_Request mixed[MIXED_MAX];
    MPI_Status ended[MIXED_MAX] = {{0}};
    int of[MIXED_MAX], total = 0, left = 0, idles = 0, mixes = choose(2);
    for (int i = 0; i < count; i++) {
        if (mixes && choose(4) == 0) {
            of[total] = -1;
            mixed[total++] = idles < IDLE && choose(2) && !are_of_session ? idle[idles++] : MPI_REQUEST_NULL;
        }
        left += requests[i] != MPI_REQUEST_NULL;
        of[total] = i;
        mixed[total++] = requests[i];
    }
    complete_mixed(total, mixed, ended, left);
    for (int i = 0; i < total; i++) {
        if (of[i] < 0) continue;
        requests[of[i]] = mixed[i];
        statuses[of[i]] = ended[i];
    }
}

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

void cancelled(const Group *g) {
    MPI_Request request;
    MPI_Status status;
    int flag, source = draw(2) ? MPI_ANY_SOURCE : draw(g->peers), is_generalized = draw(2), is_cancelled = draw(2), is_persistent = draw(2);
    if (is_generalized) {
        DO(MPI_Grequest_start(query, ignore, ignore_cancel, &is_cancelled, &request));
        if (is_cancelled) DO(MPI_Cancel(&request));
        DO(MPI_Grequest_complete(request));
    } else if (is_persistent) {
        DO(MPI_Recv_init(incoming[0], 10, MPI_INT, source, CANCELLED_TAG, g->comm, &request));
        DO(MPI_Start(&request));
        DO(MPI_Cancel(&request));
    } else {
        DO(MPI_Irecv(incoming[0], 10, MPI_INT, source, CANCELLED_TAG, g->comm, &request));
        DO(MPI_Cancel(&request));
    }
    DO(MPI_Wait(&request, &status));
    DO(MPI_Test_cancelled(&status, &flag));
    add((uint64_t)flag + 2);
    if (is_generalized) add_status(&status, MPI_INT);
    if (request != MPI_REQUEST_NULL) DO(MPI_Request_free(&request));
}

/* Persistent messages around a ring, each with a tag of its own, started in an order of each rank's own. */
void persistent(const Group *g) {
    MPI_Request requests[2 * MESSAGES_MAX];
    MPI_Status statuses[2 * MESSAGES_MAX];
    int count = 1 + draw(5), rounds = 1 + draw(3), types[5], counts[5], modes[5];
    Ring at = ring(g, draw(3));
    uint64_t step = draw_seed();
    ignores_statuses = draw(4) == 0;
    for (int i = 0; i < count; i++) {
        (types[i] = draw(TYPES), counts[i] = draw_count(types[i]), modes[i] = draw(4));
        MPI_Datatype type = layouts[types[i]].type;
        /* From the second start on, Open MPI 4.1.4 sends what has come to stand in the memory of the first copy. */
        if (IS_OPEN_MPI_4 && modes[i] == BUFFERED && rounds > 1) modes[i] = STANDARD;
        send_init(modes[i], outgoing[i] + MARGIN, counts[i], type, at.to, PERSISTENT_TAG + i, g->comm, &requests[count + i]);
        DO(MPI_Recv_init(incoming[i] + MARGIN, counts[i], type, at.from, PERSISTENT_TAG + i, g->comm, &requests[i]));
    }
    for (int round = 0; round < rounds; round++) {
        int first = choose(count);
        for (int i = 0; i < count; i++) {
            const Layout *layout = &layouts[types[i]];
            clear_elements(incoming[i] + MARGIN, counts[i], layout);
            fill_elements(outgoing[i] + MARGIN, counts[i], layout, step + (uint64_t)(7 * round + 31 * i + 1000 * rank));
        }
        DO(MPI_Startall(count, requests));
        /* Ready sends find their receives. */
        DO(MPI_Barrier(g->comm));
        for (int i = 0; i < count; i++)
            note_sent(g, at.to, PERSISTENT_TAG + i, outgoing[i] + MARGIN, counts[i], layouts[types[i]].type);
        if (choose(2)) DO(MPI_Startall(count, requests + count));
        else
            for (int i = 0; i < count; i++) DO(MPI_Start(&requests[count + (first + i) % count]));
        /* A request of MPI_PROC_NULL may never end in MPI_Testany of MPICH. */
        if (IS_MPICH && at.from == MPI_PROC_NULL) DO(MPI_Waitall(2 * count, requests, statuses));
        else complete(2 * count, requests, statuses);
        for (int i = 0; i < count; i++) {
            if (at.from != MPI_PROC_NULL && !ignores_statuses) add_status(&statuses[i], layouts[types[i]].type);
            add(hash_elements(incoming[i] + MARGIN, counts[i], &layouts[types[i]]));
        }
    }
    for (int i = 0; i < 2 * count; i++) DO(MPI_Request_free(&requests[i]));
}
