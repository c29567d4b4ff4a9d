/* What Fortran programs pass to MPI, as C has it: handles, whose conversions are macros in MPICH, and constants. */
#include <mpi.h>

#ifdef OPEN_MPI
#define OWN(name) PMPI_##name
#else
#define OWN(name) MPI_##name
#endif

#define HANDLE(type, name)                                                                       \
    MPI_##type counterfoil_fortran_##name##_f2c(MPI_Fint number) { return OWN(type##_f2c)(number); }     \
    MPI_Fint counterfoil_fortran_##name##_c2f(MPI_##type handle) { return OWN(type##_c2f)(handle); }

HANDLE(Comm, comm)
HANDLE(Group, group)
HANDLE(Request, request)
HANDLE(Message, message)
HANDLE(Op, op)
HANDLE(Info, info)
HANDLE(Errhandler, errhandler)
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
HANDLE(Session, session)
#endif

MPI_Datatype counterfoil_fortran_datatype_f2c(MPI_Fint number) { return OWN(Type_f2c)(number); }
MPI_Fint counterfoil_fortran_datatype_c2f(MPI_Datatype handle) { return OWN(Type_c2f)(handle); }

void *counterfoil_fortran_in_place(void) { return MPI_IN_PLACE; }
/* Variables in MPICH. */
int *counterfoil_fortran_unweighted(void) { return MPI_UNWEIGHTED; }
int *counterfoil_fortran_weights_empty(void) { return MPI_WEIGHTS_EMPTY; }

_Static_assert(sizeof(MPI_Fint) == sizeof(int), "INTEGER of Fortran has the size of int");
