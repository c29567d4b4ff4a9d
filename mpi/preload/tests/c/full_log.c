/* More data than a small log holds, in cases (the first argument) in which no rank acknowledges unasked: run with a log of 1 MiB.
 *
 * Each message has 200 KiB. Every value that arrives is checked. */
#include "check.h"

#include <pthread.h>
#include <unistd.h>

enum { COUNT = 50 << 10, TIMES = 40 };

static int out[COUNT], in[8 * COUNT], parts[8][COUNT];

/* Repeated broadcasts of rank `root`. */
static void broadcast(MPI_Comm comm, int root, int times) {
    int me;
    MPI_Comm_rank(comm, &me);
    for (int i = 0; i < times; i++) {
        if (me == root) fill(out, COUNT, i);
        DO(MPI_Bcast(out, COUNT, MPI_INT, root, comm));
        CHECK(holds(out, COUNT, i));
    }
}

/* Other operations with a root, and scans. */
static void rooted(const char *what, MPI_Comm comm) {
    int me, size;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < TIMES; i++) {
        fill(out, COUNT, i + me);
        if (!strcmp(what, "gather")) {
            DO(MPI_Gather(out, COUNT, MPI_INT, in, COUNT, MPI_INT, 0, comm));
            for (int j = 0; me == 0 && j < size; j++) CHECK(holds(in + j * COUNT, COUNT, i + j));
        } else if (!strcmp(what, "reduce")) {
            DO(MPI_Reduce(out, in, COUNT, MPI_INT, MPI_MAX, 0, comm));
            CHECK(me || holds(in, COUNT, i + size - 1));
        } else if (!strcmp(what, "scan")) {
            DO(MPI_Scan(out, in, COUNT, MPI_INT, MPI_MAX, comm));
            CHECK(holds(in, COUNT, i + me));
        } else {
            for (int j = 0; me == 0 && j < size; j++) fill(in + j * COUNT / size, COUNT / size, i + j);
            DO(MPI_Scatter(in, COUNT / size, MPI_INT, out, COUNT / size, MPI_INT, 0, comm));
            CHECK(holds(out, COUNT / size, i + me));
        }
    }
}

/* Immediate broadcasts, each waited for. */
static void immediate(MPI_Comm comm) {
    MPI_Request request;
    for (int i = 0; i < TIMES; i++) {
        fill(out, COUNT, i);
        DO(MPI_Ibcast(out, COUNT, MPI_INT, 0, comm, &request));
        DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(holds(out, COUNT, i));
    }
}

/* Broadcasts on an intercommunicator, from the lower half. */
static void between(MPI_Comm half) {
    MPI_Comm inter;
    int low = rank < ranks / 2;
    DO(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? ranks / 2 : 0, 7, &inter));
    for (int i = 0; i < TIMES; i++) {
        int root = low ? rank == 0 ? MPI_ROOT : MPI_PROC_NULL : 0;
        fill(out, COUNT, low ? i : -1);
        DO(MPI_Bcast(out, COUNT, MPI_INT, root, inter));
        CHECK(holds(out, COUNT, i));
    }
    DO(MPI_Comm_free(&inter));
}

/* Rows and columns of a square in turn, so that no rank's contributions are all on one communicator. */
static void overlapping(void) {
    MPI_Comm row, column;
    int side = ranks == 4 ? 2 : 1;
    DO(MPI_Comm_split(MPI_COMM_WORLD, rank / side, rank, &row));
    DO(MPI_Comm_split(MPI_COMM_WORLD, rank % side, rank, &column));
    for (int i = 0; i < TIMES; i++) {
        broadcast(row, i % side, 1);
        broadcast(column, i / 2 % side, 1);
    }
    DO(MPI_Comm_free(&row));
    DO(MPI_Comm_free(&column));
}

/* Communicators that are freed while no rank knows that their operations have ended everywhere, followed by operations on another one. */
static void freed(MPI_Comm half) {
    MPI_Comm other;
    for (int i = 0; i < 4; i++) {
        DO(MPI_Comm_dup(half, &other));
        broadcast(other, 0, 4);
        DO(MPI_Comm_free(&other));
    }
    for (int i = 0; i < 20; i++) {
        fill(out, COUNT, i + rank);
        DO(MPI_Allreduce(out, in, COUNT, MPI_INT, MPI_MAX, half));
    }
}

/* Operations on separate communicators, which are freed at the end. */
static void many(MPI_Comm half) {
    MPI_Comm comms[TIMES];
    for (int i = 0; i < TIMES; i++) DO(MPI_Comm_dup(half, &comms[i]));
    for (int i = 0; i < TIMES; i++) broadcast(comms[i], 0, 1);
    for (int i = 0; i < TIMES; i++) DO(MPI_Comm_free(&comms[i]));
}

/* Messages of one rank to each other one in turn, fewer than the receivers acknowledge unasked. */
static void messages(void) {
    for (int i = 0; i < TIMES; i++) {
        fill(out, COUNT, i);
        for (int to = 1; rank == 0 && to < ranks; to++) DO(MPI_Send(out, COUNT, MPI_INT, to, i, MPI_COMM_WORLD));
        if (rank) DO(MPI_Recv(in, COUNT, MPI_INT, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(!rank || holds(in, COUNT, i));
    }
}

/* Messages of a rank to itself, and operations on a communicator of one rank. */
static void to_self(void) {
    for (int i = 0; i < TIMES; i++) {
        fill(out, COUNT, i);
        DO(MPI_Sendrecv(out, COUNT / 4, MPI_INT, 0, 0, in, COUNT / 4, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE));
        CHECK(holds(in, COUNT / 4, i));
        DO(MPI_Bcast(out, COUNT, MPI_INT, 0, MPI_COMM_SELF));
    }
}

/* Messages of a rank to itself before it receives any: no other rank can make room. */
static void alone(void) {
    MPI_Request requests[8];
    for (int i = 0; i < 8; i++) {
        fill(parts[i], COUNT, i);
        DO(MPI_Isend(parts[i], COUNT, MPI_INT, rank, i, MPI_COMM_WORLD, &requests[i]));
    }
    for (int i = 0; i < 8; i++) {
        DO(MPI_Recv(in, COUNT, MPI_INT, rank, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(holds(in, COUNT, i));
    }
    DO(MPI_Waitall(8, requests, MPI_STATUSES_IGNORE));
}

/* One rank computes, or probes for a message that is never sent, for longer than others wait before they test for a deadlock. */
static void slow(const char *what, MPI_Comm half) {
    double until = MPI_Wtime() + 14;
    int there = 0;
    for (int i = 0; rank == 1 && MPI_Wtime() < until; i++) {
        usleep(1000);
        if (!strcmp(what, "polls")) DO(MPI_Iprobe(MPI_ANY_SOURCE, 99, half, &there, MPI_STATUS_IGNORE));
        CHECK(!there);
    }
    for (int i = 0; rank == 0 && i < 8; i++) {
        MPI_Request request;
        fill(parts[i], COUNT, i);
        DO(MPI_Isend(parts[i], COUNT, MPI_INT, 1, i, MPI_COMM_WORLD, &request));
        DO(MPI_Request_free(&request));
    }
    for (int i = 0; rank == 1 && i < 8; i++) {
        DO(MPI_Recv(in, COUNT, MPI_INT, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(holds(in, COUNT, i));
    }
}

/* An operation that is larger than the log. */
static void huge(void) {
    if (rank == 0) fill(in, 8 * COUNT, 1);
    DO(MPI_Bcast(in, 8 * COUNT, MPI_INT, 0, MPI_COMM_WORLD));
    CHECK(holds(in, 8 * COUNT, 1));
}

/* One rank is done and waits in MPI_Finalize, while rank 0 still has more messages for the others than its log holds. */
static void done_early(void) {
    MPI_Comm some;
    broadcast(MPI_COMM_WORLD, 0, 4);
    DO(MPI_Comm_split(MPI_COMM_WORLD, rank == ranks - 1 ? MPI_UNDEFINED : 0, rank, &some));
    if (some == MPI_COMM_NULL) return;
    usleep(300000);
    broadcast(some, 0, TIMES);
    DO(MPI_Comm_free(&some));
}

/* Rank 1 receives the first of several messages only after the last: if the log doesn't hold all of them, this is a deadlock. */
static void backwards(const char *what) {
    MPI_Request requests[9];
    MPI_Comm half;
    DO(MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &half));
    for (int i = 0; i < 8; i++) fill(parts[i], COUNT, i);
    if (!strcmp(what, "backwards")) {
        for (int i = 0; rank == 0 && i < 8; i++)
            DO(MPI_Isend(parts[i], COUNT, MPI_INT, 1, i, MPI_COMM_WORLD, &requests[i]));
        if (rank == 0) DO(MPI_Send(&rank, 1, MPI_INT, 1, 8, MPI_COMM_WORLD));
        if (rank == 1) DO(MPI_Recv(in, 1, MPI_INT, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int i = 0; rank == 1 && i < 8; i++)
            DO(MPI_Irecv(parts[i], COUNT, MPI_INT, 0, i, MPI_COMM_WORLD, &requests[i]));
    } else if (rank < 2) {
        if (rank == 1) DO(MPI_Recv(in, 1, MPI_INT, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int i = 0; i < 8; i++) DO(MPI_Ibcast(parts[i], COUNT, MPI_INT, 0, half, &requests[i]));
        if (rank == 0) DO(MPI_Send(&rank, 1, MPI_INT, 1, 8, MPI_COMM_WORLD));
    }
    if (rank < 2) DO(MPI_Waitall(8, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < 8; i++) CHECK(holds(parts[i], COUNT, i));
    DO(MPI_Comm_free(&half));
}

/* Messages whose receives are all posted before, in both directions or from a rank to itself, and waited for together, or after something
 * else: the receiver makes no call that ends one of them alone. */
static void posted(const char *how) {
    static int got[TIMES][COUNT], sent[TIMES][COUNT];
    MPI_Request receives[TIMES], requests[TIMES];
    int is_persistent = !strcmp(how, "persistent"), is_any = !strcmp(how, "any-source"), is_self = !strcmp(how, "self");
    int peer = is_self ? rank : rank ^ 1, flag = 0;
    int sends = strcmp(how, "one-way") || rank % 2 == 0, takes = strcmp(how, "one-way") || rank % 2;
    for (int i = 0; i < TIMES; i++) {
        receives[i] = requests[i] = MPI_REQUEST_NULL;
        fill(sent[i], COUNT, i + rank);
        if (!takes) continue;
        if (is_persistent) DO(MPI_Recv_init(got[i], COUNT, MPI_INT, peer, i % 3, MPI_COMM_WORLD, &receives[i]));
        else DO(MPI_Irecv(got[i], COUNT, MPI_INT, is_any ? MPI_ANY_SOURCE : peer, i % 3, MPI_COMM_WORLD, &receives[i]));
    }
    if (is_persistent) DO(MPI_Startall(TIMES, receives));
    DO(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; sends && i < TIMES; i++) DO(MPI_Isend(sent[i], COUNT, MPI_INT, peer, i % 3, MPI_COMM_WORLD, &requests[i]));
    if (!strcmp(how, "last")) DO(MPI_Wait(&receives[TIMES - 1], MPI_STATUS_IGNORE));
    if (!strcmp(how, "barrier")) DO(MPI_Barrier(MPI_COMM_WORLD));
    while (!strcmp(how, "tests") && !flag) DO(MPI_Testall(TIMES, receives, &flag, MPI_STATUSES_IGNORE));
    DO(MPI_Waitall(TIMES, receives, MPI_STATUSES_IGNORE));
    DO(MPI_Waitall(TIMES, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; takes && i < TIMES; i++) CHECK(holds(got[i], COUNT, i + peer));
    for (int i = 0; is_persistent && i < TIMES; i++) DO(MPI_Request_free(&receives[i]));
}

/* Few long messages: their receives are the only calls between a barrier and the wait for all of them. */
static void posted_few(void) {
    enum { FEW = 8 };
    static int got[FEW][2 * COUNT], sent[FEW][2 * COUNT];
    MPI_Request requests[FEW];
    for (int i = 0; i < FEW; i++) fill(sent[i], 2 * COUNT, i);
    DO(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; rank == 1 && i < FEW; i++) DO(MPI_Irecv(got[i], 2 * COUNT, MPI_INT, 0, i, MPI_COMM_WORLD, &requests[i]));
    if (rank == 1) DO(MPI_Waitall(FEW, requests, MPI_STATUSES_IGNORE));
    if (rank == 0) usleep(100000);
    for (int i = 0; rank == 0 && i < FEW; i++) DO(MPI_Send(sent[i], 2 * COUNT, MPI_INT, 1, i, MPI_COMM_WORLD));
    for (int i = 0; rank == 1 && i < FEW; i++) CHECK(holds(got[i], 2 * COUNT, i));
}

static void *sends(void *unused) {
    MPI_Request requests[8];
    for (int i = 0; i < 8; i++) fill(parts[i], COUNT, i);
    for (int i = 0; i < TIMES; i += 8) {
        for (int j = 0; j < 8; j++) DO(MPI_Isend(parts[j], COUNT, MPI_INT, rank ^ 1, i + j, MPI_COMM_WORLD, &requests[j]));
        DO(MPI_Waitall(8, requests, MPI_STATUSES_IGNORE));
    }
    return unused;
}

static void *broadcasts(void *comm) {
    static int mine[COUNT];
    int me;
    MPI_Comm_rank(*(MPI_Comm *)comm, &me);
    for (int i = 0; i < TIMES; i++) {
        if (me == 0) fill(mine, COUNT, i);
        DO(MPI_Bcast(mine, COUNT, MPI_INT, 0, *(MPI_Comm *)comm));
        CHECK(holds(mine, COUNT, i));
    }
    return NULL;
}

/* Threads that send, receive and broadcast concurrently. */
static void threads(MPI_Comm comm) {
    pthread_t sender, broadcaster;
    CHECK(!pthread_create(&sender, NULL, sends, NULL) && !pthread_create(&broadcaster, NULL, broadcasts, &comm));
    for (int i = 0; i < TIMES; i++) {
        DO(MPI_Recv(in, COUNT, MPI_INT, rank ^ 1, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(holds(in, COUNT, i % 8));
    }
    CHECK(!pthread_join(sender, NULL) && !pthread_join(broadcaster, NULL));
}

/* Kind of send of a second thread; its peer receives while it waits for room itself. */
static const char *way;

static void *begins(void *unused) {
    MPI_Request requests[8];
    MPI_Comm world = MPI_COMM_WORLD;
    int to = rank ^ 1, is_started = !strcmp(way, "startall");
    for (int j = 0; is_started && j < 8; j++) DO(MPI_Send_init(parts[j], COUNT, MPI_INT, to, j, world, &requests[j]));
#ifdef HAVE_MPI_4
    int is_in_parts = !strcmp(way, "partitioned");
    for (int j = 0; is_in_parts && j < 8; j++)
        DO(MPI_Psend_init(parts[j], 2, COUNT / 2, MPI_INT, to, j, world, MPI_INFO_NULL, &requests[j]));
#endif
    for (int i = 0; i < TIMES; i += 8) {
        for (int j = 0; j < 8; j++) fill(parts[j], COUNT, i + j);
        if (is_started) DO(MPI_Startall(8, requests));
#ifdef HAVE_MPI_4
        for (int j = 0; j < 8; j++) {
            if (is_in_parts) {
                DO(MPI_Start(&requests[j]));
                DO(MPI_Pready_range(0, 1, requests[j]));
            } else if (!is_started) {
                DO(MPI_Isendrecv_replace(parts[j], COUNT, MPI_INT, to, j, MPI_PROC_NULL, 0, world, &requests[j]));
            }
        }
#endif
        DO(MPI_Waitall(8, requests, MPI_STATUSES_IGNORE));
    }
    for (int j = 0; j < 8; j++)
        if (requests[j] != MPI_REQUEST_NULL) DO(MPI_Request_free(&requests[j]));
    return unused;
}

static void two_threads(const char *what) {
    pthread_t sender;
    way = what;
    CHECK(!pthread_create(&sender, NULL, begins, NULL));
#ifdef HAVE_MPI_4
    static int into[8][COUNT];
    MPI_Request requests[8];
    int is_in_parts = !strcmp(way, "partitioned");
    for (int j = 0; is_in_parts && j < 8; j++)
        DO(MPI_Precv_init(into[j], 2, COUNT / 2, MPI_INT, rank ^ 1, j, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[j]));
    for (int i = 0; is_in_parts && i < TIMES; i++) {
        /* The messages arrive, and their sends complete, before this rank waits for any of them. */
        if (i % 8 == 0) DO(MPI_Startall(8, requests));
        if (i % 8 == 0) usleep(100000);
        DO(MPI_Wait(&requests[i % 8], MPI_STATUS_IGNORE));
        CHECK(holds(into[i % 8], COUNT, i));
    }
    for (int j = 0; is_in_parts && j < 8; j++) DO(MPI_Request_free(&requests[j]));
#endif
    for (int i = 0; strcmp(way, "partitioned") && i < TIMES; i++) {
        DO(MPI_Recv(in, COUNT, MPI_INT, rank ^ 1, i % 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(holds(in, COUNT, i));
    }
    CHECK(!pthread_join(sender, NULL));
}

/* Messages on communicators whose members have made different communicators before. */
static void numbers(MPI_Comm half) {
    MPI_Comm mine, inter, two, all;
    MPI_Group world, pair;
    int low = rank < ranks / 2, both[2] = {0, 1};
    if (low) DO(MPI_Comm_dup(half, &mine));
    else mine = half;
    DO(MPI_Intercomm_create(mine, 0, MPI_COMM_WORLD, low ? ranks / 2 : 0, 7, &inter));
    DO(MPI_Comm_group(MPI_COMM_WORLD, &world));
    DO(MPI_Group_incl(world, 2, both, &pair));
    if (rank < 2) DO(MPI_Comm_create_group(MPI_COMM_WORLD, pair, 3, &two));
    DO(MPI_Comm_dup(MPI_COMM_WORLD, &all));
    for (int i = 0; i < TIMES; i++) {
        MPI_Comm comm = i % 2 ? all : inter;
        int to = i % 2 ? rank + ranks / 2 : rank, from = rank - ranks / 2;
        fill(out, COUNT, i);
        if (low) DO(MPI_Send(out, COUNT, MPI_INT, to, 5, comm));
        else DO(MPI_Recv(in, COUNT, MPI_INT, from, 5, comm, MPI_STATUS_IGNORE));
        CHECK(low || holds(in, COUNT, i));
    }
    DO(MPI_Group_free(&world));
    DO(MPI_Group_free(&pair));
    DO(MPI_Comm_free(&inter));
    DO(MPI_Comm_free(&all));
    if (rank < 2) DO(MPI_Comm_free(&two));
    if (low) DO(MPI_Comm_free(&mine));
}

/* A message to itself that is received last: until then, those after it stay in the log, although they are received. */
static void held_back(void) {
    int first = rank, got = -1;
    MPI_Request request;
    DO(MPI_Isend(&first, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &request));
    for (int i = 0; i < TIMES; i++) {
        fill(out, COUNT, i);
        DO(MPI_Sendrecv(out, COUNT, MPI_INT, rank, 2, in, COUNT, MPI_INT, rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(holds(in, COUNT, i));
    }
    DO(MPI_Recv(&got, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(got == rank);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    /* Any case with MPI_THREAD_MULTIPLE. */
    int is_threaded = !strncmp(what, "threads-", 8);
    if (is_threaded) what += 8;
    int is_begun = !strcmp(what, "startall") || !strcmp(what, "replace") || !strcmp(what, "partitioned");
    int level, has_threads = is_begun || !strcmp(what, "threads") || !strcmp(what, "numbers") || is_threaded;
    MPI_Comm half, copy;
    DO(MPI_Init_thread(&argc, &argv, has_threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level));
    DO(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    DO(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    DO(MPI_Comm_split(MPI_COMM_WORLD, rank < ranks / 2, rank, &half));
    DO(MPI_Comm_dup(half, &copy));
    if (!strcmp(what, "world")) broadcast(MPI_COMM_WORLD, 0, TIMES);
    else if (!strcmp(what, "halves")) broadcast(half, 0, TIMES);
    else if (!strcmp(what, "dup")) broadcast(copy, 0, TIMES);
    else if (!strcmp(what, "between")) between(half);
    else if (!strcmp(what, "overlapping")) overlapping();
    else if (!strcmp(what, "freed")) freed(half);
    else if (!strcmp(what, "many")) many(half);
    else if (!strcmp(what, "immediate")) immediate(half);
    else if (!strcmp(what, "messages")) messages();
    else if (!strcmp(what, "itself")) to_self();
    else if (!strcmp(what, "held-back")) held_back();
    else if (!strcmp(what, "huge")) huge();
    else if (!strcmp(what, "alone")) alone();
    else if (!strcmp(what, "sleeps") || !strcmp(what, "polls")) slow(what, half);
    else if (!strcmp(what, "threads")) threads(copy);
    else if (!strcmp(what, "numbers")) numbers(half);
    else if (is_begun) two_threads(what);
    else if (!strcmp(what, "done-early")) done_early();
    else if (!strncmp(what, "backwards", 9)) backwards(what);
    else if (!strcmp(what, "posted-few")) posted_few();
    else if (!strncmp(what, "posted-", 7)) posted(what + 7);
    else rooted(what, half);
    DO(MPI_Comm_free(&copy));
    DO(MPI_Comm_free(&half));
    /* Not end(): its barrier would prove all operations ended. */
    if (rank == 0) printf("full_log: ok on %d ranks\n", ranks);
    DO(MPI_Finalize());
    return 0;
}
