//! The program in most tests: sends messages around a ring and then ends in one of many ways.

use super::sandbox::{Sandbox, mpi_available};

const RING: &str = r#"
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void around(char *out, char *in, int rank, int ranks) {
    MPI_Sendrecv(out, 1000, MPI_CHAR, (rank + 1) % ranks, 1, in, 1000, MPI_CHAR, (rank + ranks - 1) % ranks, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Sends ten messages of a thousand bytes around a ring; then does what the first argument says, before or after a barrier. */
int main(int argc, char **argv) {
    int rank, ranks;
    char out[1000], in[1000];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    memset(out, 'a' + rank, sizeof out);
    for (int i = 0; i < 10; i++) around(out, in, rank, ranks);
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "echo") && rank == 0) {
        char line[100];
        if (fgets(line, sizeof line, stdin)) printf("read %s", line);
        fprintf(stderr, "to standard error\n");
    }
    if (!strcmp(what, "gather")) {
        char *all = malloc(1000 * ranks);
        MPI_Allgather(out, 1000, MPI_CHAR, all, 1000, MPI_CHAR, MPI_COMM_WORLD);
        free(all);
    }
    if (!strcmp(what, "abort") && rank == 1) MPI_Abort(MPI_COMM_WORLD, 7);
    if (!strcmp(what, "abort")) pause();
    if (!strcmp(what, "long")) {
        for (double begun = MPI_Wtime(); MPI_Wtime() < begun + 0.5;) around(out, in, rank, ranks);
        _exit(9);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (!strcmp(what, "_exit")) _exit(9);
    if (!strcmp(what, "die") && rank == 1) raise(SIGKILL);
    if (!strcmp(what, "die")) while (1) pause();
    if (!strcmp(what, "wait")) { printf("waits\n"); fflush(stdout); while (1) pause(); }
    if (!strcmp(what, "fork")) {
        pid_t child = fork();
        if (child == 0) { exit(0); }
        waitpid(child, NULL, 0);
        if (system("true") != 0) return 1;
    }
    if (!strcmp(what, "remove")) {
        if (rank == 0 && system("rm -rf logs")) return 1;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return !strcmp(what, "code") ? 5 : 0;
}
"#;

/// Creates a sandbox with the program, if there is an MPI.
pub(crate) fn sandbox() -> Option<Sandbox> {
    mpi_available().then(|| {
        let sandbox = Sandbox::new();
        sandbox.compile("ring", RING);
        sandbox
    })
}
