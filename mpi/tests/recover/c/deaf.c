/* Makes one process deaf to what the launcher tells of failures, as Open MPI 5.0.11 sometimes is under load. Preloaded; COUNTERFOIL_DEAF is the
 * number of the process in MPI_COMM_WORLD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*registered_fn)(int status, size_t number, void *data);
typedef int (*register_fn)(int *codes, size_t code_count, void *infos, size_t info_count, void *handler,
                           registered_fn registered, void *data);

/* Stands before the function of libpmix, and for the deaf process registers nothing. */
int PMIx_Register_event_handler(int *codes, size_t code_count, void *infos, size_t info_count, void *handler,
                                registered_fn registered, void *data) {
    static size_t number = 100;
    const char *process = getenv("PMIX_RANK"), *deaf = getenv("COUNTERFOIL_DEAF");
    if (!process || !deaf || strcmp(process, deaf) != 0) {
        register_fn next = (register_fn)dlsym(RTLD_NEXT, "PMIx_Register_event_handler");
        return next(codes, code_count, infos, info_count, handler, registered, data);
    }
    if (number == 100 && write(STDOUT_FILENO, "a process is deaf\n", 18) < 0) {
        abort();
    }
    number++;
    if (!registered) {
        return (int)number;
    }
    registered(0, number, data);
    return 0;
}
