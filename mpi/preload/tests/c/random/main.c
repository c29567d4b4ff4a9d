/* Programs that a seed makes: `random SEED FIRST COUNT STEPS [LEVEL]` runs COUNT of them, from number FIRST on, each with at most STEPS steps,
 * and prints a digest of what each has received: data, statuses and error classes. The digest depends on the seed alone, so it is the same with
 * and without a library under the program, and at each LEVEL of thread support: single, funneled, serialized, multiple. At the end each rank
 * prints what it has sent (sent.c).
 *
 * All ranks draw the same plan, which begins anew at each step: ranks that aren't members of a communicator leave its steps out. What MPI leaves
 * to a rank, such as the order in which it waits, comes from a generator of its own. */
#include "random.h"

static uint64_t plan, own, digest;
int level, has_handlers;

uint64_t next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

uint64_t draw_seed(void) { return next(&plan); }
int draw(int bound) { return (int)(next(&plan) % (uint64_t)bound); }
int choose(int bound) { return (int)(next(&own) % (uint64_t)bound); }

void add(uint64_t value) {
    digest = (digest ^ value) * 0x100000001b3;
    digest ^= digest >> 29;
}

uint64_t hash(const void *bytes, size_t len) {
    uint64_t hash = len + 1, word;
    for (size_t at = 0; at < len; at += 8) {
        size_t now = len - at < 8 ? len - at : 8;
        word = 0;
        memcpy(&word, (const char *)bytes + at, now);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

/* Steps that MPICH can't take: it reads arrays that it was not given, hands the error of a wait to the handler of MPI_COMM_WORLD, and a request of
 * MPI_PROC_NULL may never end in MPI_Testany. */
static int is_left_out(int kind) { return IS_MPICH && (kind == 13 || kind == 14 || kind == 16 || kind == 18); }

static void take_step(int kind, const Group *g) {
    switch (is_left_out(kind) ? 0 : kind) {
    case 0:
    case 1:
    case 2:
    case 3: messages(g); break;
    case 4:
    case 5:
    case 6:
    case 7: collectives(g); break;
    case 8:
    case 9: exchange(g); break;
    case 10:
    case 11: cancelled(g); break;
    case 12: persistent(g); break;
    case 13:
    case 14: errors(g); break;
    case 15: huge_message(g); break;
    case 16: no_process(g); break;
    case 17: buffer_again(); break;
    case 18: truncated(g); break;
    default: partitioned(g);
    }
}

/* Sessions and error handlers of a program change what the library does in the rest of the process. So only some jobs (of 50 programs) have them:
 * every third one sessions, and every second one handlers. */
#ifdef HAVE_SESSIONS
static int has_sessions(int number) { return number / 50 % 3 == 2; }
#endif
static int may_handle(int number) { return number / 50 % 2; }

static void run(Group *world, uint64_t seed, int number, int steps_max) {
    uint64_t start = seed * 1000003 + (uint64_t)number;
    plan = start;
    own = plan ^ (uint64_t)(rank + 1) << 40;
    digest = 0;
    has_handlers = may_handle(number);
    make_types();
    Group made = make_group(world), derived = {.comm = MPI_COMM_NULL};
    if (draw(2) && made.comm != MPI_COMM_NULL && !made.is_inter) derived = make_group(&made);
#ifdef HAVE_SESSIONS
    /* Ranks that aren't members of `made` have drawn less: the plan begins anew, so that all draw the same. */
    plan = ~start;
    int has_session = has_sessions(number) && draw(3) == 0;
    if (has_session) {
        free_group(&derived);
        derived = make_session_group(world, number);
    }
#endif
    plan = next(&start);
    int steps = 1 + draw(20);
    for (int step = 0; step < steps && step < steps_max; step++) {
        plan = next(&start);
        const Group *groups[] = {world, &made, &made, &derived}, *g = groups[draw(4)];
        int kind = draw(21);
        (are_of_session = g->is_of_session, ignores_statuses = 0);
        if (kind == 20) threads(world);
        else if (g->comm != MPI_COMM_NULL) take_step(kind, g);
    }
    free_group(&derived);
#ifdef HAVE_SESSIONS
    if (has_session) end_session();
#endif
    free_group(&made);
    free_types();
    uint64_t mixed = digest * (uint64_t)(2 * rank + 1), all = 0;
    DO(MPI_Reduce(&mixed, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD));
    note_contribution(&mixed, rank == 0 ? 0 : sizeof mixed);
    if (rank == 0) printf("program %d: %016llx\n", number, (unsigned long long)all);
    fflush(stdout);
}

static int level_of(const char *name) {
    return !strcmp(name, "multiple")     ? MPI_THREAD_MULTIPLE
           : !strcmp(name, "serialized") ? MPI_THREAD_SERIALIZED
           : !strcmp(name, "funneled")   ? MPI_THREAD_FUNNELED
                                         : MPI_THREAD_SINGLE;
}

int main(int argc, char **argv) {
    int provided;
    if (argc < 5) { fprintf(stderr, "usage: random SEED FIRST COUNT STEPS [LEVEL]\n"); return 2; }
    level = argc > 5 ? level_of(argv[5]) : MPI_THREAD_SINGLE;
    DO(MPI_Init_thread(&argc, &argv, level, &provided));
    DO(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    DO(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    CHECK(ranks <= RANKS_MAX && provided >= level);
    Group world = group_of(MPI_COMM_WORLD, MPI_GROUP_NULL);
    make_thread_groups();
    make_idle();
    attach_buffer();
    /* In Open MPI 5.0.11, the first partitioned message waits until all ranks of MPI_COMM_WORLD have one. */
    make_types();
    partitioned(&world);
    free_types();
    int first = atoi(argv[2]), count = atoi(argv[3]);
    for (int number = first; number < first + count; number++) run(&world, strtoull(argv[1], NULL, 10), number, atoi(argv[4]));
    detach_buffer();
    free_idle();
    free_thread_groups();
    print_sent();
    DO(MPI_Finalize());
    return 0;
}
