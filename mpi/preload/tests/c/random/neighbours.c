/* Collective operations with the neighbours of a grid or graph. */
#include "collective.h"

/* Numbers from one rank to another: both say as many. Across the border of a grid, nothing is sent, but the call has a part for it. */
static int count_of(int from, int to, int count) { return from == MPI_PROC_NULL || to == MPI_PROC_NULL ? 1 : count % (from + to + 3); }

void call_neighbours(const Group *g, Collective *c) {
    int kind = draw(5), count = draw(60), mine = count % (g->rank + 3), at = 0;
    for (int i = 0; i < g->outs; at += c->counts[i++]) {
        c->counts[i] = count_of(g->rank, g->destinations[i], count);
        (c->displs[i] = at, c->addresses[i] = at * c->stride * (int)sizeof(int));
    }
    at = 0;
    for (int i = 0; i < g->ins; at += c->in_counts[i++] + 1) {
        int from = g->sources[i];
        c->in_counts[i] = kind == 1 ? from == MPI_PROC_NULL ? 1 : count % (from + 3) : count_of(from, g->rank, count);
        (c->in_displs[i] = at, c->in_addresses[i] = at * c->in_stride * (int)sizeof(int));
    }
    switch (kind) {
    case 0:
        contribute(c, 0, count);
        CALL(Neighbor_allgather, neighbor_allgather, c->out, count, c->given, c->in, count, c->taken, g->comm);
        break;
    case 1:
        contribute(c, 0, mine);
        CALL(Neighbor_allgatherv, neighbor_allgatherv, c->out, mine, c->given, c->in, c->in_counts, c->in_displs, c->taken, g->comm);
        break;
    case 2:
        contribute(c, 0, count * g->outs);
        CALL(Neighbor_alltoall, neighbor_alltoall, c->out, count, c->given, c->in, count, c->taken, g->comm);
        break;
    case 3:
        for (int i = 0; i < g->outs; i++) contribute(c, c->displs[i], c->counts[i]);
        CALL(Neighbor_alltoallv, neighbor_alltoallv, c->out, c->counts, c->displs, c->given, c->in, c->in_counts, c->in_displs, c->taken,
             g->comm);
        break;
    default:
        for (int i = 0; i < g->outs; i++) contribute(c, c->displs[i], c->counts[i]);
        CALL(Neighbor_alltoallw, neighbor_alltoallw, c->out, c->counts, c->addresses, c->types, c->in, c->in_counts, c->in_addresses,
             c->in_types, g->comm);
    }
}
