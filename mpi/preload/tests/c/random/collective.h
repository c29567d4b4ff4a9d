/* A collective operation that may be under way. */
#ifndef COLLECTIVE_H
#define COLLECTIVE_H

#include "random.h"

enum { BLOCKING, IMMEDIATE, PERSISTENT };

enum { COUNT_MAX = 300, NUMBERS_MAX = RANKS_MAX * RANKS_MAX * COUNT_MAX, PARTS_MAX = 8 };

typedef struct {
    int out[NUMBERS_MAX], in[NUMBERS_MAX];
    int counts[PARTS_MAX], displs[PARTS_MAX], bytes[PARTS_MAX], in_counts[PARTS_MAX], in_displs[PARTS_MAX], in_bytes[PARTS_MAX];
    MPI_Aint addresses[PARTS_MAX], in_addresses[PARTS_MAX];
    MPI_Datatype types[PARTS_MAX], in_types[PARTS_MAX];
    /* Elements of the two buffers, and numbers from one to the next: integers, or those with gaps. */
    MPI_Datatype given, taken;
    int stride, in_stride;
    MPI_Request request;
    /* An operation of the program's, or MPI_OP_NULL. */
    MPI_Op op;
    int form, is_in_place;
    /* Numbers of `in`, from the first one on, that MPI defines. */
    int defined;
    uint64_t seed;
    /* This rank's contribution: parts of `out`, or in place of `in`, in elements. */
    int parts, at[PARTS_MAX], lengths[PARTS_MAX];
} Collective;

#ifdef HAVE_MPI_4
enum { FORMS = 3 };
#define CALL_PERSISTENT(name, ...) MPI_##name##_init(__VA_ARGS__, MPI_INFO_NULL, &c->request)
#else
enum { FORMS = 2 };
#define CALL_PERSISTENT(name, ...) MPI_ERR_OTHER
#endif

/* Makes a call in the form of `c`. Its contribution is known; the call may overwrite it. */
#define CALL(name, lower, ...)                                                                                           \
    do {                                                                                                                 \
        if (c->form < PERSISTENT) note_start(c);                                                                         \
        DO(c->form == BLOCKING    ? MPI_##name(__VA_ARGS__)                                                              \
           : c->form == IMMEDIATE ? MPI_I##lower(__VA_ARGS__, &c->request)                                               \
                                  : CALL_PERSISTENT(name, __VA_ARGS__));                                                 \
    } while (0)

/* Notes the contribution to an operation that starts now. */
void note_start(const Collective *c);

/* One more part of the contribution. */
static inline void contribute(Collective *c, int at, int length) {
    c->at[c->parts] = at;
    c->lengths[c->parts++] = length;
}

/* neighbours.c: calls an operation with the neighbours of a topology. */
void call_neighbours(const Group *g, Collective *c);

#endif
