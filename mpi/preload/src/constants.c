/* What mpi.h has as macros that only a C compiler can read. */
#include <mpi.h>

void *const counterfoil_in_place = MPI_IN_PLACE;
void *const counterfoil_bottom = MPI_BOTTOM;
const int counterfoil_root = MPI_ROOT;
const int counterfoil_combiner_named = MPI_COMBINER_NAMED;
const MPI_Datatype counterfoil_packed = MPI_PACKED;

/* MPI_Get_count asks for the datatype's size and checks its arguments; Open MPI keeps the bytes in the status. */
size_t counterfoil_bytes(const MPI_Status *status) {
#ifdef OPEN_MPI
    return status->_ucount;
#else
    int count = 0;
    PMPI_Get_count(status, MPI_BYTE, &count);
    return count < 0 ? 0 : (size_t)count;
#endif
}
