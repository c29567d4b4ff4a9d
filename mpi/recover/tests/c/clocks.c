/* A program that sends the times of all its clocks, also of some that it waits for. */
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>

#include "check.h"

enum { STEPS = 30, TIMES = 16 };

static const double WAIT = 2e-3;

static double of_timespec(struct timespec time) { return time.tv_sec + time.tv_nsec / 1e9; }

static double of_timeval(struct timeval time) { return time.tv_sec + time.tv_usec / 1e6; }

static double day(void) {
    struct timeval now;
    CHECK(gettimeofday(&now, NULL) == 0);
    return of_timeval(now);
}

static double system_clock(clockid_t clock) {
    struct timespec now;
    CHECK(clock_gettime(clock, &now) == 0);
    return of_timespec(now);
}

/* Waits with one clock, from its reading after those of the others, and returns what they show then. */
static void read_all(double *values, int step) {
    double begin = day(), wtime = MPI_Wtime(), steady = system_clock(CLOCK_MONOTONIC);
    if (step % 3 == 0)
        while (day() < begin + WAIT) continue;
    else if (step % 3 == 1)
        for (double last = MPI_Wtime(); MPI_Wtime() < last + WAIT;) continue;
    else
        while (system_clock(CLOCK_MONOTONIC) < steady + WAIT) continue;
    /* The clock of the day may be set back meanwhile, and these two not. */
    if (step % 3 > 0) CHECK(system_clock(CLOCK_MONOTONIC) >= steady + WAIT * 0.9 && MPI_Wtime() >= wtime + WAIT * 0.9);
    struct timespec utc;
    CHECK(timespec_get(&utc, TIME_UTC) == TIME_UTC);
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    struct tms ticks;
    clock_t elapsed = times(&ticks);
    double all[TIMES] = {
        day(), MPI_Wtime(), system_clock(CLOCK_MONOTONIC), system_clock(CLOCK_REALTIME), system_clock(CLOCK_MONOTONIC_RAW),
        system_clock(CLOCK_BOOTTIME), system_clock(CLOCK_PROCESS_CPUTIME_ID), system_clock(CLOCK_THREAD_CPUTIME_ID),
        of_timespec(utc), of_timeval(usage.ru_utime), of_timeval(usage.ru_stime), time(NULL), clock(), elapsed,
        ticks.tms_utime, ticks.tms_stime,
    };
    memcpy(values, all, sizeof all);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    double sent[TIMES], received[TIMES], before[TIMES] = {0};
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    for (int step = 0; step < STEPS; step++) {
        read_all(sent, step);
        DO(MPI_Sendrecv(sent, TIMES, MPI_DOUBLE, next, step, received, TIMES, MPI_DOUBLE, previous, step, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
        /* No clock goes back when a process is replaced. */
        for (int i = 0; i < TIMES; i++) {
            CHECK(received[i] >= before[i] || (i >= 6 && i != 8 && i != 11 && i != 13));
            before[i] = received[i];
        }
    }
    if (rank == 0) printf("clocks: %d steps\n", STEPS);
    DO(MPI_Finalize());
    return 0;
}
