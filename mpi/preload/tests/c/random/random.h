/* What the parts of the random programs share: generators, the digest, communicators, datatypes, requests. */
#ifndef RANDOM_H
#define RANDOM_H

#include <limits.h>
#include <stdint.h>

#include "check.h"

enum {
    RANKS_MAX = 8,
    MESSAGES_MAX = 12,
    ELEMENTS_MAX = 3000,
    THREADS_MAX = 4,
    NEIGHBOURS_MAX = 8,
    TYPES = 14,
    /* Bytes of a buffer on each side of its elements, also of those with a negative lower bound. */
    MARGIN = 64,
    EXTENT_MAX = 80,
    BUFFER_BYTES = ELEMENTS_MAX * EXTENT_MAX + 2 * MARGIN
};

/* What MPICH and Open MPI 4 can't do, the programs leave out there. */
#ifdef MPICH_VERSION
enum { IS_MPICH = 1 };
#else
enum { IS_MPICH = 0 };
#endif
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION < 5
enum { IS_OPEN_MPI_4 = 1 };
#else
enum { IS_OPEN_MPI_4 = 0 };
#endif

/* Tags, of which the first three are those of named receives. A tag with wildcards is used with them alone. */
enum {
    NAMED_TAGS = 3,
    PARTITIONED_TAG = 4,
    ANY_SOURCE_TAG = 10,
    EXCHANGE_TAG = 11,
    ERROR_TAG = 12,
    HUGE_TAG = 13,
    TRUNCATED_TAG = 14,
    PERSISTENT_TAG = 30,
    THREAD_TAG = 40,
    /* Several threads send on this one, so the order of its messages is not that of the plan. */
    SHARED_TAG = 60,
    CANCELLED_TAG = 77,
    TAGS_MAX = 80
};

/* main.c: generators (SplitMix64). A number below `bound` that all ranks draw; one of this rank's own. */
uint64_t next(uint64_t *state);
uint64_t draw_seed(void);
int draw(int bound);
int choose(int bound);

/* What this rank has received. */
void add(uint64_t value);
/* Hash of the witness: see witness.h. */
uint64_t hash(const void *bytes, size_t len);

/* Level of thread support that was asked for; true in a job whose programs have error handlers of their own. */
extern int level, has_handlers;

/* communicators.c: a communicator of a program. */
typedef struct {
    /* MPI_COMM_NULL if this rank isn't a member. */
    MPI_Comm comm;
    int rank, size, peers, is_inter;
    /* Of an intercommunicator: which of the two groups is the own one. */
    int side;
    /* Size of the smaller group. */
    int least;
    /* Made from the groups of a session. */
    int is_of_session;
    /* Rank in MPI_COMM_WORLD of each peer. */
    int world[RANKS_MAX];
    /* Neighbours of a topology, MPI_PROC_NULL beyond the border of a grid, in which two neighbours of a rank may be the same one. */
    int is_topology, has_neighbours, has_twins, ins, outs, sources[NEIGHBOURS_MAX], destinations[NEIGHBOURS_MAX];
    /* Messages sent, by peer and tag. */
    long (*positions)[TAGS_MAX];
} Group;

/* `world`: the group of all ranks, of the same session as the communicator; MPI_GROUP_NULL for that of MPI_COMM_WORLD. */
Group group_of(MPI_Comm comm, MPI_Group world);
Group make_group(const Group *parent);
/* Begins a session of any thread level, and makes a communicator of groups of its ranks. The communicator is freed before the session ends. */
Group make_session_group(const Group *world, int number);
void end_session(void);
void free_group(Group *group);

/* sent.c: what this rank has sent. Notes a message that is sent now; the position of a message in its stream counts from 1. */
void note_sent(const Group *g, int to, int tag, const void *buf, int count, MPI_Datatype type);
void note_sent_at(const Group *g, int to, int tag, long position, const void *buf, int count, MPI_Datatype type);
void note_contribution(const void *bytes, size_t len);
void print_sent(void);

/* datatypes.c: elements of a message. */
typedef struct {
    MPI_Datatype type;
    int size;
    /* Offset of the first byte of an element, of the end of its last one, and of the next element. */
    long low, high, extent;
} Layout;

/* Types that the programs use by name. */
enum { INTEGER = 1, SPREAD_INTEGER = 8, EMPTY = 13 };

/* `dense[i]`: a type without gaps; `dense_counts[i]` of its elements have the signature of one of `layouts[i]`. */
extern Layout layouts[TYPES], dense[TYPES];
extern int dense_counts[TYPES];
extern unsigned char outgoing[MESSAGES_MAX][BUFFER_BYTES], incoming[MESSAGES_MAX][BUFFER_BYTES];

void make_types(void);
void free_types(void);
/* Number of elements: of those without bytes, there may be INT_MAX. */
int draw_count(int type);
void fill_elements(unsigned char *buf, int count, const Layout *layout, uint64_t seed);
/* The memory of elements, with some bytes on both sides. */
void clear_elements(unsigned char *buf, int count, const Layout *layout);
void copy_elements(unsigned char *to, const unsigned char *from, int count, const Layout *layout);
uint64_t hash_elements(const unsigned char *buf, int count, const Layout *layout);
void add_status(const MPI_Status *status, MPI_Datatype type);

/* How a call names elements: by their address, by a datatype that has it (MPI_BOTTOM), or packed (MPI_PACKED). */
enum { BY_ADDRESS, BY_TYPE, PACKED, NAMES };
typedef struct { void *buf; int count; MPI_Datatype type; } Named;
/* `packed`: memory for packed elements. The caller packs what it sends, and unpacks what it has received. */
Named name_elements(int name, unsigned char *buf, int count, const Layout *layout, unsigned char *packed);
/* Packs elements of `len` bytes. */
void pack_elements(const void *buf, int count, MPI_Datatype type, void *packed, int len);
void unpack_elements(unsigned char *buf, int count, const Layout *layout, const unsigned char *packed);
/* Elements of BY_TYPE have a datatype of their own, which may be freed while a message is under way. */
void free_named(int name, Named *named);

/* requests.c: waits for active requests in one of MPI's ways; statuses are those of the requests. */
void make_idle(void);
void free_idle(void);
/* True if the requests of this step are a session's: MPI forbids others in the same call. */
extern int are_of_session;
/* True if the calls of this step get no statuses; those that complete() returns are all zero then. */
extern int ignores_statuses;
/* The argument of a call for a status. */
MPI_Status *wanted(MPI_Status *status);
void complete(int count, MPI_Request *requests, MPI_Status *statuses);
void cancelled(const Group *g);
void persistent(const Group *g);

/* The ring of a communicator's ranks, or of two groups': MPI_PROC_NULL for those that have no peer. */
typedef struct { int to, from; } Ring;
Ring ring(const Group *g, int shift);

/* Modes of sends. */
enum { STANDARD, SYNCHRONOUS, BUFFERED, READY };
/* Sends in a mode: blocking, immediate (`request` is not MPI_REQUEST_NULL afterwards) or as a persistent request that is not started. */
void send_blocking(int mode, const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm);
void send_immediate(int mode, const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request);
void send_init(int mode, const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request);

/* Steps. */
void messages(const Group *g);
void huge_message(const Group *g);
void exchange(const Group *g);
void no_process(const Group *g);
void partitioned(const Group *g);
void buffer_again(void);
void attach_buffer(void);
void detach_buffer(void);
void collectives(const Group *g);
void errors(const Group *g);
void truncated(const Group *g);
void make_thread_groups(void);
void free_thread_groups(void);
void threads(const Group *world);

#endif
