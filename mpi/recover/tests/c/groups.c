/* Group arithmetic: each result as a list of ranks in MPI_COMM_WORLD. */
#include "check.h"

static MPI_Group world;

static void show(const char *what, MPI_Group group) {
    int size, at, places[16], ranks[16], len = 0;
    char list[16 * 12] = "";
    DO(MPI_Group_size(group, &size));
    DO(MPI_Group_rank(group, &at));
    for (int i = 0; i < size; i++) places[i] = i;
    if (size > 0) DO(MPI_Group_translate_ranks(group, size, places, world, ranks));
    for (int i = 0; i < size; i++) len += sprintf(list + len, " %d", ranks[i]);
    /* In one call: MPICH doesn't buffer what a program prints. */
    printf("rank %d: %s:%s; %d of %d\n", rank, what, list, at == MPI_UNDEFINED ? -1 : at, size);
}

static const char *compare(MPI_Group a, MPI_Group b) {
    int result;
    DO(MPI_Group_compare(a, b, &result));
    return result == MPI_IDENT ? "ident" : result == MPI_SIMILAR ? "similar" : result == MPI_UNEQUAL ? "unequal" : "?";
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    DO(MPI_Comm_group(MPI_COMM_WORLD, &world));
    int two[] = {ranks - 1, 0}, one[] = {0}, same[] = {0, ranks - 1};
    int ranges[][3] = {{0, ranks - 1, 2}}, back[][3] = {{ranks - 1, 0, -1}};
    MPI_Group ends, first, others, even, odd, reversed, sorted, made;
    DO(MPI_Group_incl(world, 2, two, &ends));
    DO(MPI_Group_incl(world, 2, same, &sorted));
    DO(MPI_Group_incl(world, 1, one, &first));
    DO(MPI_Group_excl(world, 2, two, &others));
    DO(MPI_Group_range_incl(world, 1, ranges, &even));
    DO(MPI_Group_range_excl(world, 1, ranges, &odd));
    DO(MPI_Group_range_incl(world, 1, back, &reversed));
    show("world", world), show("ends", ends), show("first", first), show("others", others);
    show("even", even), show("odd", odd), show("reversed", reversed);
    printf("rank %d: %s %s %s %s\n", rank, compare(ends, ends), compare(ends, sorted), compare(ends, even), compare(world, reversed));
    DO(MPI_Group_union(odd, ends, &made));
    show("union", made);
    DO(MPI_Group_free(&made));
    CHECK(made == MPI_GROUP_NULL);
    DO(MPI_Group_intersection(reversed, even, &made));
    show("intersection", made);
    DO(MPI_Group_free(&made));
    DO(MPI_Group_difference(reversed, even, &made));
    show("difference", made);
    DO(MPI_Group_free(&made));
    DO(MPI_Group_difference(even, world, &made));
    printf("rank %d: empty %d\n", rank, made == MPI_GROUP_EMPTY);
    show("empty", made);
    DO(MPI_Group_incl(world, 0, one, &made));
    printf("rank %d: empty %d\n", rank, made == MPI_GROUP_EMPTY);
    int asked[] = {0, MPI_PROC_NULL, 1}, given[3];
    DO(MPI_Group_translate_ranks(ends, 2, asked, odd, given));
    printf("rank %d: translated %d %d\n", rank, given[0] == MPI_UNDEFINED ? -1 : given[0], given[1] == MPI_PROC_NULL);
    CHECK(MPI_Group_f2c(MPI_Group_c2f(even)) == even && MPI_Group_f2c(MPI_Group_c2f(MPI_GROUP_EMPTY)) == MPI_GROUP_EMPTY);
    MPI_Comm comm;
    int relation, sum = 0;
    DO(MPI_Comm_create(MPI_COMM_WORLD, reversed, &comm));
    DO(MPI_Comm_compare(comm, MPI_COMM_WORLD, &relation));
    DO(MPI_Scan(&rank, &sum, 1, MPI_INT, MPI_SUM, comm));
    printf("rank %d: similar %d, sum %d\n", rank, relation == MPI_SIMILAR, sum);
    DO(MPI_Comm_group(comm, &made));
    printf("rank %d: %s\n", rank, compare(made, reversed));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int wrong[] = {ranks}, twice[] = {1, 1}, codes[4], class;
    codes[0] = MPI_Group_incl(world, 1, wrong, &made);
    codes[1] = MPI_Group_excl(world, 1, wrong, &made);
    codes[2] = MPI_Group_size(MPI_GROUP_NULL, &sum);
    codes[3] = MPI_Group_free(&first);
    (void)twice;
    for (int i = 0; i < 4; i++) {
        DO(MPI_Error_class(codes[i], &class));
        printf("rank %d: error %d: %d\n", rank, i, class == MPI_ERR_RANK ? 1 : class == MPI_ERR_GROUP ? 2 : class == MPI_SUCCESS ? 0 : 9);
    }
    DO(MPI_Comm_free(&comm));
    return end("groups");
}
