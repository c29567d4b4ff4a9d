/* A session of MPI_THREAD_MULTIPLE in a program whose MPI_Init has a lower level: a thread on the session's communicator, and the main thread on MPI_COMM_WORLD.
 *
 * session_threads after     every rank begins the session after MPI_Init
 * session_threads before    before it
 * session_threads alone     rank 0 alone, for messages to itself
 */
#include <pthread.h>

#include "check.h"

enum { ROUNDS = 600, MAKE_EVERY = 30 };

static void exchange(MPI_Comm comm) {
    int own, size;
    DO(MPI_Comm_rank(comm, &own));
    DO(MPI_Comm_size(comm, &size));
    int next = (own + 1) % size, before = (own + size - 1) % size;
    for (int round = 0; round < ROUNDS; round++) {
        int out = value(own, round), in = -1;
        MPI_Request requests[2];
        DO(MPI_Irecv(&in, 1, MPI_INT, before, round % 7, comm, &requests[0]));
        DO(MPI_Isend(&out, 1, MPI_INT, next, round % 7, comm, &requests[1]));
        DO(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        CHECK(in == value(before, round));
        if (round % MAKE_EVERY == 0) {
            MPI_Comm made;
            DO(MPI_Comm_dup(comm, &made));
            DO(MPI_Barrier(made));
            DO(MPI_Comm_free(&made));
        }
    }
}

static void *exchange_on(void *comm) {
    exchange(*(MPI_Comm *)comm);
    return NULL;
}

static MPI_Session session;

static void begin_session(void) {
    MPI_Info info;
    DO(MPI_Info_create(&info));
    DO(MPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE"));
    DO(MPI_Session_init(info, MPI_ERRORS_RETURN, &session));
    DO(MPI_Info_free(&info));
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "after";
    int is_alone = strcmp(how, "alone") == 0;
    if (strcmp(how, "before") == 0) begin_session();
    begin(&argc, &argv);
    if (strcmp(how, "before") != 0 && (!is_alone || rank == 0)) begin_session();
    if (is_alone && rank != 0) {
        exchange(MPI_COMM_WORLD);
    } else {
        MPI_Group group;
        MPI_Comm comm;
        pthread_t thread;
        DO(MPI_Group_from_session_pset(session, is_alone ? "mpi://SELF" : "mpi://WORLD", &group));
        DO(MPI_Comm_create_from_group(group, "counterfoil.session_threads", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
        CHECK(pthread_create(&thread, NULL, exchange_on, &comm) == 0);
        exchange(MPI_COMM_WORLD);
        CHECK(pthread_join(thread, NULL) == 0);
        DO(MPI_Comm_free(&comm));
        DO(MPI_Group_free(&group));
        DO(MPI_Session_finalize(&session));
    }
    return end("session_threads");
}
