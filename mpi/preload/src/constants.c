/* What mpi.h has as macros that only a C compiler can read. */
#include <stddef.h>

#include <mpi.h>

void *const counterfoil_in_place = MPI_IN_PLACE;
void *const counterfoil_bottom = MPI_BOTTOM;
const int counterfoil_root = MPI_ROOT;
const MPI_Errhandler counterfoil_errhandler_null = MPI_ERRHANDLER_NULL;
const int counterfoil_combiner_named = MPI_COMBINER_NAMED;
const MPI_Datatype counterfoil_packed = MPI_PACKED;

/* MPI_Get_count asks for the datatype's size and checks its arguments; Open MPI keeps the bytes in the status. */
#ifdef OPEN_MPI
const ptrdiff_t counterfoil_bytes_at = offsetof(MPI_Status, _ucount);
#else
const ptrdiff_t counterfoil_bytes_at = -1;
#endif

size_t counterfoil_bytes(const MPI_Status *status) {
    int count = 0;
    PMPI_Get_count(status, MPI_BYTE, &count);
    return count < 0 ? 0 : (size_t)count;
}
