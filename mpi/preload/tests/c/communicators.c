/* Communicators made by every call, each used for a message and a collective operation. With an argument: at two thread levels. */
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#ifdef HAVE_SHRINK
#include <mpi-ext.h>
#endif

static int freed;

static int copies(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag) {
    (void)comm, (void)key, (void)extra;
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int deletes(MPI_Comm comm, int key, void *what, void *extra) {
    (void)comm, (void)key, (void)what, (void)extra;
    freed++;
    return MPI_SUCCESS;
}

/* A message around the communicator, with the same tag on every communicator, and a sum over its ranks. */
static void use(MPI_Comm comm) {
    if (comm == MPI_COMM_NULL) return;
    int r, n, got = -1, sum;
    DO(MPI_Comm_rank(comm, &r));
    DO(MPI_Comm_size(comm, &n));
    int mine = value(r, n), next = (r + 1) % n, before = (r + n - 1) % n;
    MPI_Status status;
    DO(MPI_Sendrecv(&mine, 1, MPI_INT, next, 7, &got, 1, MPI_INT, before, 7, comm, &status));
    CHECK(got == value(before, n) && status.MPI_SOURCE == before);
    DO(MPI_Allreduce(&r, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == n * (n - 1) / 2);
}

static void drop(MPI_Comm *comm) {
    if (*comm != MPI_COMM_NULL) DO(MPI_Comm_free(comm));
    CHECK(*comm == MPI_COMM_NULL);
}

/* Between the even and the odd ranks. */
static void between(void) {
    MPI_Comm half, inter, merged;
    MPI_Request request;
    DO(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half));
    DO(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &inter));
    int there, r, got, sum, theirs = 0;
    DO(MPI_Comm_remote_size(inter, &there));
    DO(MPI_Comm_rank(inter, &r));
    if (r < there) {
        int mine = value(rank, 1);
        DO(MPI_Isend(&mine, 1, MPI_INT, r, 7, inter, &request));
        DO(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 7, inter, MPI_STATUS_IGNORE));
        CHECK(got == value(rank % 2 ? rank - 1 : rank + 1, 1));
        DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    DO(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, inter));
    for (int i = 1 - rank % 2; i < ranks; i += 2) theirs += i;
    CHECK(sum == theirs);
    /* Rank 0 broadcasts to the odd ranks. */
    int number = rank == 0 ? 4711 : 0, root = rank == 0 ? MPI_ROOT : rank % 2 ? 0 : MPI_PROC_NULL;
    DO(MPI_Bcast(&number, 1, MPI_INT, root, inter));
    CHECK(number == 4711 || (rank % 2 == 0 && rank > 0));
    DO(MPI_Intercomm_merge(inter, rank % 2, &merged));
    use(merged);
    drop(&merged);
    drop(&inter);
    drop(&half);
}

/* Memory of `count` numbers that ends where the process has no more. */
static int *tight(int count) {
    size_t page = sysconf(_SC_PAGESIZE), bytes = count * sizeof(int), pages = (bytes + page - 1) / page * page;
    char *memory = mmap(NULL, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && munmap(memory + pages, page) == 0);
    return (int *)(memory + pages - bytes);
}

/* Groups of different sizes: rank 0, and the others. Counts are those of the own group. */
static void unequal_groups(void) {
    MPI_Comm group, inter;
    int is_other = rank > 0, own, there, expected = 1;
    DO(MPI_Comm_split(MPI_COMM_WORLD, is_other, rank, &group));
    DO(MPI_Intercomm_create(group, 0, MPI_COMM_WORLD, is_other ? 0 : 1, 6, &inter));
    DO(MPI_Comm_size(inter, &own));
    DO(MPI_Comm_remote_size(inter, &there));
    int total = 4 * own * there, *out = tight(total), *counts = tight(own), *in = malloc(total * sizeof *in);
    for (int i = 0; i < total; i++) out[i] = rank + 1;
    for (int i = 0; i < own; i++) counts[i] = total / own;
    for (int i = 2; !is_other && i <= ranks; i++) expected += i - (i == 2);
    for (int block = 0; block < 2; block++) {
        if (block) DO(MPI_Reduce_scatter_block(out, in, total / own, MPI_INT, MPI_SUM, inter));
        else DO(MPI_Reduce_scatter(out, in, counts, MPI_INT, MPI_SUM, inter));
        for (int i = 0; i < total / own; i++) CHECK(in[i] == expected);
    }
    free(in);
    drop(&inter);
    drop(&group);
}

#ifdef HAVE_SESSIONS
static void inter_from_groups(void) {
    MPI_Group world, mine, theirs;
    MPI_Comm inter;
    int parity = rank % 2, range[1][3] = {{parity, ranks - 1, 2}}, other[1][3] = {{1 - parity, ranks - 1, 2}}, got = -1;
    DO(MPI_Comm_group(MPI_COMM_WORLD, &world));
    DO(MPI_Group_range_incl(world, 1, range, &mine));
    DO(MPI_Group_range_incl(world, 1, other, &theirs));
    DO(MPI_Intercomm_create_from_groups(mine, 0, theirs, 0, "counterfoil.inter", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &inter));
    DO(MPI_Sendrecv(&rank, 1, MPI_INT, rank / 2, 0, &got, 1, MPI_INT, rank / 2, 0, inter, MPI_STATUS_IGNORE));
    CHECK(got == (rank ^ 1));
    drop(&inter);
    DO(MPI_Group_free(&mine));
    DO(MPI_Group_free(&theirs));
    DO(MPI_Group_free(&world));
}
#endif

/* With an argument: even ranks at MPI_THREAD_MULTIPLE, odd ones at MPI_THREAD_SINGLE. */
static void begin_mixed(int *argc, char ***argv) {
    const char *number = getenv("OMPI_COMM_WORLD_RANK");
    int is_even = number == NULL || atoi(number) % 2 == 0;
    begin_at(is_even ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, argc, argv);
}

int main(int argc, char **argv) {
    if (argc > 1) begin_mixed(&argc, &argv);
    else begin(&argc, &argv);
    unequal_groups();
#ifdef HAVE_SESSIONS
    inter_from_groups();
#endif
    MPI_Comm made, other;
    MPI_Request request;
    MPI_Group world, some;
    use(MPI_COMM_WORLD);
    use(MPI_COMM_SELF);
    int key, flag;
    void *found;
    DO(MPI_Comm_create_keyval(copies, deletes, &key, NULL));
    DO(MPI_Comm_set_attr(MPI_COMM_WORLD, key, (void *)41));
    DO(MPI_Comm_dup(MPI_COMM_WORLD, &made));
    DO(MPI_Comm_get_attr(made, key, &found, &flag));
    CHECK(flag && found == (void *)42 && freed == 0);
    use(made);
    drop(&made);
    CHECK(freed == 1);
    DO(MPI_Comm_delete_attr(MPI_COMM_WORLD, key));
    DO(MPI_Comm_free_keyval(&key));
    CHECK(freed == 2);
    DO(MPI_Comm_dup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, &made));
    use(made);
    DO(MPI_Comm_idup(made, &other, &request));
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
    use(other);
    drop(&other);
    DO(MPI_Comm_idup(MPI_COMM_SELF, &other, &request));
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
    use(other);
    drop(&other);
#ifdef HAVE_MPI_4
    DO(MPI_Comm_idup_with_info(made, MPI_INFO_NULL, &other, &request));
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
    use(other);
    drop(&other);
#endif
    drop(&made);
#ifdef HAVE_SHRINK
    DO(MPIX_Comm_shrink(MPI_COMM_WORLD, &made));
    DO(MPI_Comm_set_name(made, "survivors"));
    use(made);
    drop(&made);
    /* Without other members that MPI would have to tell. */
    DO(MPI_Comm_dup(MPI_COMM_SELF, &made));
    DO(MPIX_Comm_revoke(made));
    drop(&made);
#endif
    DO(MPI_Comm_set_name(MPI_COMM_WORLD, "all"));
    /* Groups of ranks modulo three, so that they interleave; the last rank is left out. */
    DO(MPI_Comm_split(MPI_COMM_WORLD, rank == ranks - 1 ? MPI_UNDEFINED : rank % 3, -rank, &made));
    CHECK((made == MPI_COMM_NULL) == (rank == ranks - 1));
    use(made);
    if (made != MPI_COMM_NULL) {
        DO(MPI_Comm_dup(made, &other));
        use(other);
        drop(&other);
    }
    drop(&made);
    DO(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made));
    use(made);
    drop(&made);
    DO(MPI_Comm_group(MPI_COMM_WORLD, &world));
    int first[1][3] = {{ranks - 1, 0, -1}};
    DO(MPI_Group_range_incl(world, 1, first, &some));
    DO(MPI_Comm_create(MPI_COMM_WORLD, some, &made));
    use(made);
    drop(&made);
    /* Open MPI 4.1 can hang later if some ranks are in this call while others already make another communicator. */
    DO(MPI_Barrier(MPI_COMM_WORLD));
    int half[1][3] = {{0, (ranks - 1) / 2, 1}};
    DO(MPI_Group_free(&some));
    DO(MPI_Group_range_incl(world, 1, half, &some));
    if (rank <= (ranks - 1) / 2) {
        DO(MPI_Comm_create_group(MPI_COMM_WORLD, some, 3, &made));
        use(made);
        drop(&made);
    }
    DO(MPI_Barrier(MPI_COMM_WORLD));
    DO(MPI_Group_free(&some));
    DO(MPI_Group_free(&world));
    int dims[] = {2, ranks / 2}, periods[] = {1, 0}, keep[] = {0, 1};
    if (ranks % 2 == 0) {
        DO(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &made));
        use(made);
        DO(MPI_Cart_sub(made, keep, &other));
        use(other);
        drop(&other);
        drop(&made);
    }
    int *index = malloc(ranks * sizeof(int)), *edges = malloc(ranks * sizeof(int));
    for (int i = 0; i < ranks; i++) { index[i] = i + 1; edges[i] = (i + 1) % ranks; }
    DO(MPI_Graph_create(MPI_COMM_WORLD, ranks, index, edges, 0, &made));
    use(made);
    drop(&made);
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, degree = 1, got;
    DO(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &before, MPI_UNWEIGHTED, 1, &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made));
    use(made);
    DO(MPI_Neighbor_alltoall(&rank, 1, MPI_INT, &got, 1, MPI_INT, made));
    CHECK(got == before);
    drop(&made);
    DO(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, &degree, &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made));
    use(made);
    drop(&made);
    DO(MPI_Comm_dup(MPI_COMM_WORLD, &made));
    DO(MPI_Comm_disconnect(&made));
    CHECK(made == MPI_COMM_NULL);
    if (ranks > 1) between();
    free(index);
    free(edges);
    /* Many in turn, so that handles are reused. */
    for (int i = 0; i < 50; i++) {
        DO(MPI_Comm_split(MPI_COMM_WORLD, i % 2 ? rank / 2 : rank % 2, rank, &made));
        use(made);
        drop(&made);
    }
    return end("communicators");
}
