/* Datatypes of messages, and their elements in memory. */
#include "random.h"

Layout layouts[TYPES], dense[TYPES];
int dense_counts[TYPES];
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
    case EMPTY: DO(MPI_Type_contiguous(0, MPI_INT, &made)); break;
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

/* A record of two integers and a number, without a gap. */
static MPI_Datatype make_record(void) {
    MPI_Datatype made, members[] = {MPI_INT, MPI_DOUBLE};
    int lengths[] = {2, 1};
    MPI_Aint displs[] = {0, 8};
    DO(MPI_Type_create_struct(2, lengths, displs, members, &made));
    DO(MPI_Type_commit(&made));
    return made;
}

static Layout layout_of(MPI_Datatype type) {
    MPI_Aint lower, extent, low, true_extent;
    int size;
    DO(MPI_Type_size(type, &size));
    DO(MPI_Type_get_extent(type, &lower, &extent));
    DO(MPI_Type_get_true_extent(type, &low, &true_extent));
    /* MPI says nothing of where the bytes of a type are that has none. */
    if (size == 0) low = true_extent = extent = 0;
    Layout layout = {type, size, low, low + true_extent, extent};
    CHECK(extent <= EXTENT_MAX && low >= -MARGIN / 2 && layout.high <= EXTENT_MAX && layout.high - extent <= MARGIN / 2);
    return layout;
}

enum { PREDEFINED = 3, RECORD = 10, TWO_RECORDS = 12 };

void make_types(void) {
    MPI_Datatype record = make_record();
    for (int i = 0; i < TYPES; i++) {
        MPI_Datatype number = i == 0 ? MPI_BYTE : i == 2 ? MPI_DOUBLE : i == 5 || i == 11 ? MPI_SHORT : MPI_INT;
        layouts[i] = layout_of(make_type(i));
        dense[i] = i == EMPTY ? layouts[i] : layout_of(i == RECORD || i == TWO_RECORDS ? record : number);
        dense_counts[i] = i == EMPTY ? 1 : layouts[i].size / dense[i].size;
    }
}

void free_types(void) {
    DO(MPI_Type_free(&dense[RECORD].type));
    for (int i = PREDEFINED; i < TYPES; i++) DO(MPI_Type_free(&layouts[i].type));
}

int draw_count(int type) {
    static const int counts[] = {0, 0, 1, 2, 7, 30, 64, 65, 257, 1000, ELEMENTS_MAX};
    int count = counts[draw(sizeof counts / sizeof *counts)];
    return type == EMPTY && count > 64 ? INT_MAX : count;
}

Named name_elements(int name, unsigned char *buf, int count, const Layout *layout, unsigned char *packed) {
    MPI_Datatype type;
    MPI_Aint address;
    switch (name) {
    case BY_TYPE:
        DO(MPI_Get_address(buf, &address));
        DO(MPI_Type_create_hindexed(1, &count, &address, layout->type, &type));
        DO(MPI_Type_commit(&type));
        return (Named){MPI_BOTTOM, 1, type};
    case PACKED: return (Named){packed, count * layout->size, MPI_PACKED};
    default: return (Named){buf, count, layout->type};
    }
}

void free_named(int name, Named *named) {
    if (name == BY_TYPE) DO(MPI_Type_free(&named->type));
}

void pack_elements(const void *buf, int count, MPI_Datatype type, void *packed, int len) {
    int at = 0;
    if (len == 0) return;
    DO(MPI_Pack(buf, count, type, packed, len, &at, MPI_COMM_SELF));
    CHECK(at == len);
}

void unpack_elements(unsigned char *buf, int count, const Layout *layout, const unsigned char *packed) {
    int at = 0;
    if (count * layout->size > 0) DO(MPI_Unpack(packed, count * layout->size, &at, buf, count, layout->type, MPI_COMM_SELF));
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
