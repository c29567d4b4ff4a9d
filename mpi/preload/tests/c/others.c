/* Calls that are passed on and not logged; and partitioned messages, if the MPI has them. */
#include "check.h"

static void windows(void) {
    int shared[2] = {value(rank, 0), 0}, got = -1, next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, *base;
    MPI_Win win;
    MPI_Aint size, at, theirs;
    int unit;
    DO(MPI_Win_create(shared, sizeof shared, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    DO(MPI_Win_fence(0, win));
    DO(MPI_Put(&rank, 1, MPI_INT, next, 1, 1, MPI_INT, win));
    DO(MPI_Win_fence(0, win));
    CHECK(shared[1] == before);
    DO(MPI_Win_free(&win));
    DO(MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    *base = value(rank, 3);
    DO(MPI_Win_fence(0, win));
    DO(MPI_Get(&got, 1, MPI_INT, next, 0, 1, MPI_INT, win));
    DO(MPI_Win_fence(0, win));
    CHECK(got == value(next, 3));
    DO(MPI_Win_free(&win));
    DO(MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    *base = value(rank, 4);
    DO(MPI_Win_fence(0, win));
    DO(MPI_Win_shared_query(win, next, &size, &unit, &base));
    CHECK(*base == value(next, 4));
    DO(MPI_Win_fence(0, win));
    DO(MPI_Win_free(&win));
    DO(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    DO(MPI_Win_attach(win, shared, sizeof shared));
    DO(MPI_Get_address(shared, &at));
    DO(MPI_Sendrecv(&at, 1, MPI_AINT, before, 0, &theirs, 1, MPI_AINT, next, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    DO(MPI_Win_fence(0, win));
    DO(MPI_Get(&got, 1, MPI_INT, next, theirs, 1, MPI_INT, win));
    DO(MPI_Win_fence(0, win));
    CHECK(got == value(next, 0));
    DO(MPI_Win_detach(win, shared));
    DO(MPI_Win_free(&win));
}

static void files(const char *path) {
    MPI_File file;
    int got = -1;
    DO(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    int mine = value(rank, 9);
    DO(MPI_File_write_at(file, rank * (MPI_Offset)sizeof(int), &mine, 1, MPI_INT, MPI_STATUS_IGNORE));
    DO(MPI_File_sync(file));
    DO(MPI_Barrier(MPI_COMM_WORLD));
    DO(MPI_File_sync(file));
    DO(MPI_File_read_at(file, (ranks - 1 - rank) * (MPI_Offset)sizeof(int), &got, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(got == value(ranks - 1 - rank, 9));
    DO(MPI_File_close(&file));
}

#ifdef HAVE_MPI_4
static void partitioned(void) {
    enum { PARTS = 4, LENGTH = 25 };
    static int out[PARTS * LENGTH], in[PARTS * LENGTH];
    MPI_Request requests[2];
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, list[] = {2, 3}, flag;
    DO(MPI_Psend_init(out, PARTS, LENGTH, MPI_INT, next, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
    DO(MPI_Precv_init(in, PARTS, LENGTH, MPI_INT, before, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]));
    for (int round = 0; round < 3; round++) {
        memset(in, 0, sizeof in);
        DO(MPI_Startall(2, requests));
        fill(out, PARTS * LENGTH, rank + round);
        DO(MPI_Pready(0, requests[0]));
        DO(MPI_Pready_range(1, 1, requests[0]));
        DO(MPI_Pready_list(2, list, requests[0]));
        do DO(MPI_Parrived(requests[1], 3, &flag)); while (!flag);
        DO(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        CHECK(holds(in, PARTS * LENGTH, before + round));
    }
    DO(MPI_Request_free(&requests[0]));
    DO(MPI_Request_free(&requests[1]));
}

/* Two pairs with one tag, which MPI pairs when they are made: the sender starts the second one first. */
static void partitioned_pairs(void) {
    static int out[2][10], in[2][10];
    MPI_Request sends[2], receives[2];
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (int pair = 0; pair < 2; pair++) {
        DO(MPI_Psend_init(out[pair], 1, 10, MPI_INT, next, 6, MPI_COMM_WORLD, MPI_INFO_NULL, &sends[pair]));
        DO(MPI_Precv_init(in[pair], 1, 10, MPI_INT, before, 6, MPI_COMM_WORLD, MPI_INFO_NULL, &receives[pair]));
    }
    for (int pair = 1; pair >= 0; pair--) {
        DO(MPI_Start(&sends[pair]));
        fill(out[pair], 10, rank + pair);
        DO(MPI_Pready(0, sends[pair]));
    }
    for (int pair = 0; pair < 2; pair++) {
        DO(MPI_Start(&receives[pair]));
        DO(MPI_Wait(&receives[pair], MPI_STATUS_IGNORE));
        CHECK(holds(in[pair], 10, before + pair));
    }
    DO(MPI_Waitall(2, sends, MPI_STATUSES_IGNORE));
    for (int pair = 0; pair < 2; pair++) {
        DO(MPI_Request_free(&sends[pair]));
        DO(MPI_Request_free(&receives[pair]));
    }
}
#endif

#ifdef HAVE_SESSIONS
static void sessions(void) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    int got = -1, next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    DO(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    DO(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
    DO(MPI_Comm_create_from_group(group, "counterfoil.test", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    DO(MPI_Sendrecv(&rank, 1, MPI_INT, next, 0, &got, 1, MPI_INT, before, 0, comm, MPI_STATUS_IGNORE));
    CHECK(got == before);
    DO(MPI_Comm_free(&comm));
    DO(MPI_Group_free(&group));
    DO(MPI_Session_finalize(&session));
}
#endif

int main(int argc, char **argv) {
    begin(&argc, &argv);
    if (argc != 2) { fprintf(stderr, "usage: others FILE\n"); MPI_Abort(MPI_COMM_WORLD, 2); }
    windows();
    files(argv[1]);
#ifdef HAVE_MPI_4
    partitioned();
    partitioned_pairs();
#endif
#ifdef HAVE_SESSIONS
    sessions();
#endif
    return end("others");
}
