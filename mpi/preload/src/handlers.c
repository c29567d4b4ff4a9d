/* Error handlers of the program. MPI calls this one in their place; `handlers.rs` says why. */
#include <stdarg.h>
#include <stddef.h>

#include <mpi.h>

typedef void Handler(MPI_Comm *, int *, ...);

/* Returns the program's handler of a communicator. */
Handler *counterfoil_handler_of(MPI_Comm comm);
/* Returns 1 if the error is handled when the program's call is about to return. */
int counterfoil_defer_error(Handler *handler, MPI_Comm comm, int code, char *message);

void counterfoil_handle_error(MPI_Comm *comm, int *code, ...) {
    Handler *handler = counterfoil_handler_of(*comm);
    char *message = NULL;
#ifdef OPEN_MPI
    /* The name of the call, or another text that stays. */
    va_list more;
    va_start(more, code);
    message = va_arg(more, char *);
    va_end(more);
#endif
    if (handler && !counterfoil_defer_error(handler, *comm, *code, message)) handler(comm, code, message, NULL);
}

/* Nothing of the library's is live here: the handler may throw, or jump. */
void counterfoil_call_handler(Handler *handler, MPI_Comm comm, int code, char *message) {
    handler(&comm, &code, message, NULL);
}
