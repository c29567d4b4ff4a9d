/* Communicators of a program, by each call that makes one. */
#include "random.h"

/* Reads the neighbours of a grid or graph, in the order of MPI. */
static void find_neighbours(Group *g) {
    int topology, count, weighted, weights[2][NEIGHBOURS_MAX], dims[3], periods[3], place[3];
    DO(MPI_Topo_test(g->comm, &topology));
    g->has_neighbours = 1;
    switch (topology) {
    case MPI_CART:
        DO(MPI_Cartdim_get(g->comm, &count));
        DO(MPI_Cart_get(g->comm, count, dims, periods, place));
        for (int i = 0; i < count; i++) g->has_twins |= dims[i] <= 2 && periods[i];
        for (int i = 0; i < count; i++) DO(MPI_Cart_shift(g->comm, i, 1, &g->sources[2 * i], &g->sources[2 * i + 1]));
        g->ins = g->outs = 2 * count;
        memcpy(g->destinations, g->sources, sizeof g->sources);
        break;
    case MPI_GRAPH:
        DO(MPI_Graph_neighbors_count(g->comm, g->rank, &g->ins));
        DO(MPI_Graph_neighbors(g->comm, g->rank, g->ins, g->sources));
        g->outs = g->ins;
        memcpy(g->destinations, g->sources, sizeof g->sources);
        break;
    case MPI_DIST_GRAPH:
        DO(MPI_Dist_graph_neighbors_count(g->comm, &g->ins, &g->outs, &weighted));
        DO(MPI_Dist_graph_neighbors(g->comm, g->ins, g->sources, weights[0], g->outs, g->destinations, weights[1]));
        break;
    default: g->has_neighbours = 0;
    }
    CHECK(g->ins <= NEIGHBOURS_MAX && g->outs <= NEIGHBOURS_MAX);
}

Group group_of(MPI_Comm comm, MPI_Group world) {
    Group g = {.comm = comm};
    if (comm == MPI_COMM_NULL) return g;
    MPI_Group peers, own = MPI_GROUP_NULL;
    int all[RANKS_MAX];
    DO(MPI_Comm_rank(comm, &g.rank));
    DO(MPI_Comm_size(comm, &g.size));
    DO(MPI_Comm_test_inter(comm, &g.is_inter));
    g.peers = g.size;
    if (g.is_inter) DO(MPI_Comm_remote_size(comm, &g.peers));
    g.least = g.size < g.peers ? g.size : g.peers;
    for (int i = 0; i < g.peers; i++) all[i] = i;
    DO(g.is_inter ? MPI_Comm_remote_group(comm, &peers) : MPI_Comm_group(comm, &peers));
    if (world == MPI_GROUP_NULL) {
        DO(MPI_Comm_group(MPI_COMM_WORLD, &own));
        world = own;
    }
    DO(MPI_Group_translate_ranks(peers, g.peers, all, world, g.world));
    DO(MPI_Group_free(&peers));
    if (own != MPI_GROUP_NULL) DO(MPI_Group_free(&own));
    g.positions = calloc(RANKS_MAX, sizeof *g.positions);
    return g;
}

void free_group(Group *g) {
    if (g->comm != MPI_COMM_NULL) DO(MPI_Comm_free(&g->comm));
    free(g->positions);
}

/* Ranks of `parent` in descending order, without the lowest `left_out`. */
static MPI_Comm of_group(const Group *parent, int left_out, int by_members) {
    MPI_Group all, some;
    MPI_Comm comm = MPI_COMM_NULL;
    int range[1][3] = {{parent->size - 1, left_out, -1}};
    DO(MPI_Comm_group(parent->comm, &all));
    DO(MPI_Group_range_incl(all, 1, range, &some));
    if (!by_members) DO(MPI_Comm_create(parent->comm, some, &comm));
    else if (parent->rank >= left_out) DO(MPI_Comm_create_group(parent->comm, some, 3, &comm));
    DO(MPI_Group_free(&some));
    DO(MPI_Group_free(&all));
    /* Open MPI 4.1 can hang later if some ranks are in this call while others already make another communicator. */
    DO(MPI_Barrier(parent->comm));
    return comm;
}

/* Between the ranks of each side. `other`: the first rank of the second one. */
static MPI_Comm between(const Group *parent, int side, int other) {
    MPI_Comm half, comm;
    DO(MPI_Comm_split(parent->comm, side, parent->rank, &half));
    DO(MPI_Intercomm_create(half, 0, parent->comm, side ? 0 : other, 9, &comm));
    DO(MPI_Comm_free(&half));
    return comm;
}

/* A grid of all ranks, or of all but the last one; in `part`, those of its lines, planes or itself. */
static MPI_Comm grid(const Group *parent, int is_part) {
    MPI_Comm comm, part;
    int count = 1 + draw(3), nodes = parent->size - (draw(3) == 0 && parent->size > 1), dims[3] = {0}, periods[3], remain[3] = {0};
    for (int i = 0; i < count; i++) (periods[i] = draw(2), remain[i] = draw(2));
    remain[draw(count)] = 1;
    DO(MPI_Dims_create(nodes, count, dims));
    DO(MPI_Cart_create(parent->comm, count, dims, periods, 0, &comm));
    if (!is_part || comm == MPI_COMM_NULL) return comm;
    DO(MPI_Cart_sub(comm, remain, &part));
    DO(MPI_Comm_free(&comm));
    return part;
}

/* A graph in which each pair is joined or not. `is_joined` has the edges from each rank: both directions, for MPI_Graph_create. */
static MPI_Comm graph(const Group *parent, int kind) {
    MPI_Comm comm;
    int n = parent->size, here = parent->rank, is_joined[RANKS_MAX][RANKS_MAX];
    /* Open MPI 4's MPI_Dist_graph_create may hang after some number of non-blocking collectives (graphs.c). */
    if (IS_OPEN_MPI_4 && kind == 2) kind = 1;
    int index[RANKS_MAX], edges[RANKS_MAX * RANKS_MAX], into[RANKS_MAX], out[RANKS_MAX], at = 0, ins = 0, outs = 0;
    for (int i = 0; i < RANKS_MAX; i++)
        for (int j = 0; j < RANKS_MAX; j++) is_joined[i][j] = draw(2) && (i != j || draw(2));
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++)
            if (is_joined[i < j ? i : j][i < j ? j : i]) edges[at++] = j;
        index[i] = at;
        if (is_joined[i][here]) into[ins++] = i;
        if (is_joined[here][i]) out[outs++] = i;
    }
    if (kind == 0) DO(MPI_Graph_create(parent->comm, n, index, edges, 0, &comm));
    else if (kind == 1)
        DO(MPI_Dist_graph_create_adjacent(parent->comm, ins, into, MPI_UNWEIGHTED, outs, out, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm));
    else DO(MPI_Dist_graph_create(parent->comm, 1, &here, &outs, out, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm));
    return comm;
}

Group make_group(const Group *parent) {
    MPI_Comm comm, inter;
    MPI_Request request;
    int kind = draw(18), color = draw(2), low = draw(parent->size), r = parent->rank, n = parent->size;
    int side = r % 2, other = 1, is_divided = draw(2), has_topology;
    if (is_divided && n > 1) {
        other = low % (n - 1) + 1;
        side = r >= other;
    }
    if (n == 1 && (kind == 4 || kind == 5)) kind = 0;
    /* In Open MPI 5.0.11, a topology that is made of another one says that it is of that kind, and crashes. */
    if (parent->is_topology && kind >= 12) kind = 0;
    has_topology = kind >= 12;
    switch (kind) {
    case 0: DO(MPI_Comm_dup(parent->comm, &comm)); break;
    case 1: DO(MPI_Comm_split(parent->comm, (r + color) % 2, -r, &comm)); break;
    case 2: DO(MPI_Comm_split(parent->comm, r <= low, r, &comm)); break;
    case 3:
        DO(MPI_Comm_idup(parent->comm, &comm, &request));
        DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
        break;
    case 4: comm = between(parent, side, other); break;
    case 5:
        inter = between(parent, side, other);
        DO(MPI_Intercomm_merge(inter, side == color, &comm));
        DO(MPI_Comm_free(&inter));
        break;
    case 6: comm = of_group(parent, low, 0); break;
    case 7: comm = of_group(parent, low, 1); break;
    case 8: DO(MPI_Comm_split_type(parent->comm, MPI_COMM_TYPE_SHARED, -r, MPI_INFO_NULL, &comm)); break;
    case 9: DO(MPI_Comm_dup_with_info(parent->comm, MPI_INFO_NULL, &comm)); break;
    case 10:
#ifdef HAVE_MPI_4
        DO(MPI_Comm_idup_with_info(parent->comm, MPI_INFO_NULL, &comm, &request));
        DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
        break;
#endif
    case 11: DO(MPI_Comm_split(parent->comm, r == low ? MPI_UNDEFINED : color, r, &comm)); break;
    case 12:
    case 13: comm = grid(parent, 0); break;
    case 14: comm = grid(parent, 1); break;
    case 15: comm = graph(parent, 0); break;
    case 16: comm = graph(parent, 1); break;
    default:
        /* MPI doesn't define the order of a rank's neighbours. */
        has_topology = 0;
        comm = graph(parent, 2);
    }
    Group made = group_of(comm, MPI_GROUP_NULL);
    made.side = side;
    made.is_topology = kind >= 12;
    /* In Open MPI 4.1.4 and 5.0.11, MPI_Comm_create_group makes a grid of a grid, but without its dimensions. */
    if (has_topology && comm != MPI_COMM_NULL) find_neighbours(&made);
    return made;
}

#ifdef HAVE_SESSIONS
static MPI_Session session;

/* The group of some ranks of MPI_COMM_WORLD, in their order or its reverse, as the session knows them. */
static MPI_Group of_session(MPI_Group all, int first, int last) {
    MPI_Group some;
    int range[1][3] = {{first, last, first <= last ? 1 : -1}};
    DO(MPI_Group_range_incl(all, 1, range, &some));
    return some;
}

Group make_session_group(const Group *world, int number) {
    static const char *const levels[] = {"SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"};
    char name[64];
    MPI_Info info;
    MPI_Group all, own, remote;
    MPI_Comm comm = MPI_COMM_NULL;
    int r = world->rank, n = world->size, low = draw(n), is_inter = n > 1 && draw(3) == 0, other = n > 1 ? low % (n - 1) + 1 : 0;
    snprintf(name, sizeof name, "MPI_THREAD_%s", levels[draw(4)]);
    DO(MPI_Info_create(&info));
    DO(MPI_Info_set(info, "thread_level", name));
    DO(MPI_Session_init(info, MPI_ERRORS_ARE_FATAL, &session));
    DO(MPI_Info_free(&info));
    DO(MPI_Group_from_session_pset(session, "mpi://WORLD", &all));
    snprintf(name, sizeof name, "counterfoil.random.%d", number);
    if (is_inter) {
        own = of_session(all, r < other ? 0 : other, r < other ? other - 1 : n - 1);
        remote = of_session(all, r < other ? other : 0, r < other ? n - 1 : other - 1);
        DO(MPI_Intercomm_create_from_groups(own, 0, remote, 0, name, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm));
        DO(MPI_Group_free(&remote));
    } else {
        own = of_session(all, n - 1, low);
        if (r >= low) DO(MPI_Comm_create_from_group(own, name, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm));
    }
    DO(MPI_Group_free(&own));
    Group made = group_of(comm, all);
    DO(MPI_Group_free(&all));
    made.side = r >= other;
    made.is_of_session = 1;
    return made;
}

void end_session(void) { DO(MPI_Session_finalize(&session)); }
#endif
