/* What mpi.h has as macros that only a C compiler can read. */
#include <mpi.h>

void *const counterfoil_in_place = MPI_IN_PLACE;
void *const counterfoil_bottom = MPI_BOTTOM;
const int counterfoil_root = MPI_ROOT;
const int counterfoil_combiner_named = MPI_COMBINER_NAMED;
const MPI_Datatype counterfoil_packed = MPI_PACKED;
