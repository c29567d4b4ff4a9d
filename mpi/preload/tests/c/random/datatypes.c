/* Datatypes of messages, and their elements in memory. */
#include "random.h"

Layout layouts[TYPES];
unsigned char outgoing[MESSAGES_MAX][BUFFER_BYTES], incoming[MESSAGES_MAX][BUFFER_BYTES];

static MPI_Datatype make_type(int kind) {
    MPI_Datatype made, part;
    int lengths[] = {2, 1}, sizes[] = {4, 5}, parts[] = {2, 3}, starts[] = {1, 1};
    MPI_Aint displs[] = {12, 0};
    MPI_Datatype members[] = {MPI_INT, MPI_DOUBLE};
    switch (kind) {
    case 0: return MPI_BYTE;
    case 1: return MPI_INT;
    case 2: return MPI_DOUBLE;
    case 3: DO(MPI_Type_vector(2, 1, 2, MPI_INT, &made)); break; /* a gap in the middle */
    case 4: DO(MPI_Type_contiguous(2, MPI_INT, &made)); break;
    case 5: DO(MPI_Type_create_hvector(3, 1, 20, MPI_SHORT, &made)); break;
    case 6: DO(MPI_Type_create_hindexed(2, lengths, displs, MPI_INT, &made)); break; /* the second block comes first */
    case 7: DO(MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &made)); break;
    case 8: DO(MPI_Type_create_resized(MPI_INT, -4, 12, &made)); break;
    case 9: DO(MPI_Type_vector(2, 1, -3, MPI_INT, &made)); break; /* the lower bound is negative */
    case 10:
        displs[0] = 16;
        DO(MPI_Type_create_struct(2, lengths, displs, members, &made)); /* two integers after a number */
        break;
    case 11:
        DO(MPI_Type_vector(2, 1, 2, MPI_SHORT, &part));
        DO(MPI_Type_create_hvector(2, 2, 24, part, &made));
        DO(MPI_Type_free(&part));
        break;
    default:
        DO(MPI_Type_create_struct(2, lengths, displs, members, &part));
        DO(MPI_Type_create_resized(part, 0, 32, &made));
        DO(MPI_Type_free(&part));
        part = made;
        DO(MPI_Type_contiguous(2, part, &made));
        DO(MPI_Type_free(&part));
    }
    DO(MPI_Type_commit(&made));
    return made;
}

enum { NAMED = 3 };

void make_types(void) {
    for (int i = 0; i < TYPES; i++) {
        MPI_Aint lower, extent, low, true_extent;
        Layout *layout = &layouts[i];
        layout->type = make_type(i);
        DO(MPI_Type_size(layout->type, &layout->size));
        DO(MPI_Type_get_extent(layout->type, &lower, &extent));
        DO(MPI_Type_get_true_extent(layout->type, &low, &true_extent));
        *layout = (Layout){layout->type, layout->size, low, low + true_extent, extent};
        CHECK(extent <= EXTENT_MAX && low >= -MARGIN / 2 && layout->high <= EXTENT_MAX && layout->high - extent <= MARGIN / 2);
    }
}

void free_types(void) {
    for (int i = NAMED; i < TYPES; i++) DO(MPI_Type_free(&layouts[i].type));
}

int draw_count(void) {
    static const int counts[] = {0, 0, 1, 2, 7, 30, 64, 65, 257, 1000, ELEMENTS_MAX};
    return counts[draw(sizeof counts / sizeof *counts)];
}

/* Memory of elements, and some bytes on both sides. */
static size_t memory(unsigned char **start, const unsigned char *buf, int count, const Layout *layout) {
    long low = layout->low, high = count ? (count - 1) * layout->extent + layout->high : low;
    *start = (unsigned char *)buf + low - 16;
    return (size_t)(high - low) + 32;
}

void fill_elements(unsigned char *buf, int count, const Layout *layout, uint64_t seed) {
    unsigned char *start;
    size_t len = memory(&start, buf, count, layout);
    for (size_t i = 0; i < len; i++) start[i] = (unsigned char)(seed * 31 + i * 7 + (i >> 8) * 13);
}

void clear_elements(unsigned char *buf, int count, const Layout *layout) {
    unsigned char *start;
    size_t len = memory(&start, buf, count, layout);
    memset(start, 0xee, len);
}

void copy_elements(unsigned char *to, const unsigned char *from, int count, const Layout *layout) {
    unsigned char *start, *other;
    size_t len = memory(&start, to, count, layout);
    memory(&other, from, count, layout);
    memcpy(start, other, len);
}

uint64_t hash_elements(const unsigned char *buf, int count, const Layout *layout) {
    unsigned char *start;
    size_t len = memory(&start, buf, count, layout);
    return hash(start, len);
}

void add_status(const MPI_Status *status, MPI_Datatype type) {
    int count;
    DO(MPI_Get_count(status, type, &count));
    add(status->MPI_SOURCE + 1000003u * (unsigned)status->MPI_TAG);
    add((unsigned)count);
}
