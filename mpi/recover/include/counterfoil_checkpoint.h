/* Checkpoints of an MPI program under `counterfoil run --recover`.
 *
 * Copy this file beside the program; nothing is linked. Without Counterfoil the calls do nothing.
 *
 *     int step = 0;
 *     ... MPI_Init, communicators, datatypes, persistent requests, memory ...
 *     counterfoil_protect(0, &step, sizeof step);
 *     counterfoil_protect(1, field, bytes);
 *     counterfoil_restarted();                 // here the memory may become that of a checkpoint
 *     for (; step < steps; step++) {
 *         if (step % 100 == 0) counterfoil_checkpoint();
 *         ...
 *     }
 *
 * A process that replaces a killed one begins at main, and goes on in counterfoil_restarted from the last checkpoint of
 * its rank. Ranks take checkpoints on their own: they needn't agree on when. Messages that a checkpoint covers are no
 * longer kept by their senders. */
#ifndef COUNTERFOIL_CHECKPOINT_H
#define COUNTERFOIL_CHECKPOINT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma weak counterfoil_protect
#pragma weak counterfoil_restarted
#pragma weak counterfoil_checkpoint

/* Names memory that checkpoints save: `bytes` bytes at `memory`. A second call with an id replaces the first. Returns 0.
 * The ids and lengths are the same in each process of a rank. The memory has no pointers and no handles of MPI: those
 * are a process's own. */
int counterfoil_protect(int id, void *memory, size_t bytes);

/* Says that the program is set up: it has made its communicators, datatypes and persistent requests, and named its
 * memory. Called once, by all ranks that take checkpoints. Returns 1 if the memory is now that of a checkpoint. */
int counterfoil_restarted(void);

/* Takes a checkpoint of this rank, and returns when it is on disk: 0, or 1 if it can't be taken, with a line on standard
 * error that says why; the one before stays. No request may be pending, and no communicator or persistent request may
 * exist that was made after counterfoil_restarted. Groups, datatypes, operations and attributes that were made since are
 * not restored: the program makes them again when it needs them. */
int counterfoil_checkpoint(void);

/* What is called without Counterfoil. */
static inline int counterfoil_protect_(int id, void *memory, size_t bytes) {
    return counterfoil_protect ? counterfoil_protect(id, memory, bytes) : 0;
}
static inline int counterfoil_restarted_(void) { return counterfoil_restarted ? counterfoil_restarted() : 0; }
static inline int counterfoil_checkpoint_(void) { return counterfoil_checkpoint ? counterfoil_checkpoint() : 0; }

#define counterfoil_protect(id, memory, bytes) counterfoil_protect_(id, memory, bytes)
#define counterfoil_restarted() counterfoil_restarted_()
#define counterfoil_checkpoint() counterfoil_checkpoint_()

#ifdef __cplusplus
}
#endif
#endif
