/* What mpi.h has as macros, and what stdio.h has. */
#include <stdio.h>

#include <mpi.h>

void *const counterfoil_recover_in_place = MPI_IN_PLACE;
const int counterfoil_recover_root = MPI_ROOT;
const MPI_Op counterfoil_recover_op_null = MPI_OP_NULL;

/* Returns 1 for the weights of no neighbours: a variable in MPICH. */
int counterfoil_recover_is_no_weights(const int *weights) { return weights == MPI_WEIGHTS_EMPTY; }

/* Returns 1 for a datatype of MPI's whose elements are in memory what they are in a message. */
int counterfoil_recover_is_plain(MPI_Datatype type) {
    const MPI_Datatype plain[] = {
        MPI_BYTE, MPI_INT, MPI_DOUBLE, MPI_FLOAT, MPI_CHAR, MPI_LONG, MPI_UNSIGNED, MPI_UNSIGNED_LONG, MPI_PACKED,
        MPI_LONG_LONG, MPI_UNSIGNED_LONG_LONG, MPI_SHORT, MPI_UNSIGNED_SHORT, MPI_SIGNED_CHAR, MPI_UNSIGNED_CHAR,
        MPI_INT8_T, MPI_INT16_T, MPI_INT32_T, MPI_INT64_T, MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T,
        MPI_LONG_DOUBLE, MPI_WCHAR, MPI_C_BOOL, MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_AINT, MPI_COUNT,
        MPI_OFFSET,
    };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (type == plain[i]) return 1;
    return 0;
}

/* Returns 1 for an attribute that the MPI itself sets on MPI_COMM_WORLD. */
int counterfoil_recover_is_predefined(int key) {
    return key == MPI_TAG_UB || key == MPI_HOST || key == MPI_IO || key == MPI_WTIME_IS_GLOBAL || key == MPI_APPNUM ||
           key == MPI_UNIVERSE_SIZE || key == MPI_LASTUSEDCODE;
}

/* Lets each line leave the process when it is complete, as on a terminal. */
void counterfoil_recover_buffer_lines(void) { setvbuf(stdout, NULL, _IOLBF, 0); }

/* Writes what the process has printed; 0 if some of it could not be written, now or before. */
int counterfoil_recover_has_printed(void) { return fflush(stdout) == 0 && !ferror(stdout); }

/* Writes what the process has buffered. */
void counterfoil_recover_flush(void) { fflush(NULL); }
