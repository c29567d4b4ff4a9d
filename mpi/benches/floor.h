/* Memory of a floor's log: FLOOR_BYTES of it in each process, of which FLOOR_PREFAULT bytes are committed at the start; default all.
 *
 * FLOOR_DIR: folder on a memory file system for it; without one it is anonymous, in large pages. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { ALIGN = 16 };

static char *at, *end;

static void fail(const char *what) {
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void reserve(void) {
    const char *bytes = getenv("FLOOR_BYTES"), *prefault = getenv("FLOOR_PREFAULT"), *dir = getenv("FLOOR_DIR");
    size_t len = bytes ? strtoull(bytes, NULL, 10) : 0, ready = prefault ? strtoull(prefault, NULL, 10) : len;
    int file = -1, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (dir) {
        char name[4096];
        snprintf(name, sizeof name, "%s/floor.%d", dir, (int)getpid());
        file = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (file < 0 || unlink(name) || ftruncate(file, (off_t)len)) fail(name);
        flags = MAP_SHARED;
    }
    at = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, file, 0);
    if (at == MAP_FAILED) fail("mmap");
    madvise(at, len, MADV_HUGEPAGE);
    if (ready && madvise(at, ready, MADV_POPULATE_WRITE)) fail("MADV_POPULATE_WRITE");
    end = at + len;
}

/* Takes the next bytes of the log for a record. */
static char *claim(size_t len) {
    char *record = at;
    at += (len + ALIGN - 1) / ALIGN * ALIGN;
    if (at > end) {
        errno = ENOMEM;
        fail("FLOOR_BYTES are used up");
    }
    return record;
}
