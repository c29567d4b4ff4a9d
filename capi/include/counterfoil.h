/* Counterfoil: a lock-free, sender-based message log.
 *
 * Made by cbindgen from capi/src; the tests of that crate compare them.
 *
 * A log is used by one thread at a time. Cursors may be read by others, each by one at a time. No function may be called from a
 * signal handler, or in a child that was forked while the log was open.
 *
 * A function returns COUNTERFOIL_RESULT_OK, or a number that says what failed; counterfoil_strerror has a sentence for
 * each number, and counterfoil_error_message the one of the last failure of this thread, with its names and values. Out
 * parameters are set only on COUNTERFOIL_RESULT_OK, unless their function says otherwise. */

#ifndef COUNTERFOIL_H
#define COUNTERFOIL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define COUNTERFOIL_VERSION_MAJOR 0
#define COUNTERFOIL_VERSION_MINOR 1
#define COUNTERFOIL_VERSION_PATCH 0
/* The number that counterfoil_version_number returns. */
#define COUNTERFOIL_VERSION_NUMBER \
    (COUNTERFOIL_VERSION_MAJOR * 1000000 + COUNTERFOIL_VERSION_MINOR * 1000 + COUNTERFOIL_VERSION_PATCH)

/* Sequence number of the first message of a channel, and epoch of a rank that has taken no checkpoint. */
#define COUNTERFOIL_SSN_FIRST 1
#define COUNTERFOIL_EPOCH_FIRST 1


// Result of a function.
//
// A number is never used again for something else.
enum counterfoil_result
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The function has done its work.
  COUNTERFOIL_RESULT_OK = 0,
  // There is no more: a cursor is at the end of what is committed, or no such entry exists.
  COUNTERFOIL_RESULT_END = 7000,
  // A pointer is null.
  COUNTERFOIL_RESULT_NULL_PARAMETER = 7001,
  // A parameter is none of the values that it can have.
  COUNTERFOIL_RESULT_INVALID_PARAMETER = 7002,
  // The library has a bug: the log can't be used any more.
  COUNTERFOIL_RESULT_PANIC = 7003,
  // An option is out of its limits.
  COUNTERFOIL_RESULT_OPTIONS = 7004,
  // A directory is missing, or not private, or a file in it is in the way or can't be used.
  COUNTERFOIL_RESULT_DIRECTORY = 7005,
  // The system has no memory left.
  COUNTERFOIL_RESULT_NO_MEMORY = 7006,
  // The memory budget is used up: acknowledge and collect, then try again.
  COUNTERFOIL_RESULT_FULL = 7007,
  // Records come faster than the disk takes them: try again.
  COUNTERFOIL_RESULT_SPILL_BEHIND = 7008,
  // The memory budget is used up, and the disk refuses writes.
  COUNTERFOIL_RESULT_DISK_REFUSED = 7009,
  // The record can never fit.
  COUNTERFOIL_RESULT_TOO_LONG = 7010,
  // The job has no such rank.
  COUNTERFOIL_RESULT_NO_SUCH_RANK = 7011,
  // The channel has used up its sequence numbers.
  COUNTERFOIL_RESULT_SSN_EXHAUSTED = 7012,
  // A claim is open: commit or abort it first.
  COUNTERFOIL_RESULT_CLAIM_OPEN = 7013,
  // No claim is open.
  COUNTERFOIL_RESULT_NO_CLAIM = 7014,
  // The acknowledgement is of a message that was never sent, or of an earlier epoch.
  COUNTERFOIL_RESULT_ACKNOWLEDGEMENT = 7015,
  // The records are no longer kept.
  COUNTERFOIL_RESULT_GONE = 7016,
  // Too many cursors of the channel are open.
  COUNTERFOIL_RESULT_TOO_MANY_CURSORS = 7017,
  // The store failed, or has damaged data.
  COUNTERFOIL_RESULT_STORE = 7018,
  // The log was freed, and the cursor has passed all its records.
  COUNTERFOIL_RESULT_ENDED = 7019,
  // The log has no store: set COUNTERFOIL_PATH_STORE.
  COUNTERFOIL_RESULT_NO_STORE = 7020,
  // The repeated message differs from the one on record.
  COUNTERFOIL_RESULT_DIVERGED = 7021,
  // The channel isn't rewound, or has been repeated to its end.
  COUNTERFOIL_RESULT_NOT_REWOUND = 7022,
  // The local log refuses the entry, or has a damaged one.
  COUNTERFOIL_RESULT_LOCAL_LOG = 7023,
  // The files of the log can't be removed.
  COUNTERFOIL_RESULT_DESTROY = 7024,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum counterfoil_result counterfoil_result;
#else
typedef uint32_t counterfoil_result;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// An option with a number.
enum counterfoil_option
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // A `counterfoil_tier`.
  COUNTERFOIL_OPTION_TIER = 0,
  // A `counterfoil_keep`.
  COUNTERFOIL_OPTION_KEEP = 1,
  // 1 to free all retained records, and retain nothing any more, once the memory budget is used up; default 0.
  COUNTERFOIL_OPTION_STOPS_LOGGING = 2,
  // Memory for records in bytes; default 64 MiB.
  COUNTERFOIL_OPTION_MEMORY_BYTES_MAX = 3,
  // Chunk size in bytes, a power of two from 4 KiB to 1 GiB; default 64 KiB.
  COUNTERFOIL_OPTION_CHUNK_BYTES = 4,
  // Memory to prefault at the start, in bytes; default 256 KiB.
  COUNTERFOIL_OPTION_PREFAULT_BYTES = 5,
  // Memory committed by a thread ahead of the writer, in bytes; default 0: no thread.
  COUNTERFOIL_OPTION_PREFAULT_AHEAD_BYTES = 6,
  // Memory for the local log in bytes; default 16 MiB.
  COUNTERFOIL_OPTION_LOCAL_BYTES_MAX = 7,
  // Open cursors on a channel: 1 to 64; default 8.
  COUNTERFOIL_OPTION_CURSORS_MAX = 8,
  // Bytes of a record's prefix and payload; default: limited by the memory only.
  COUNTERFOIL_OPTION_RECORD_BYTES_MAX = 9,
  // Bytes on disk; default 4 GiB.
  //
  // Needs `COUNTERFOIL_PATH_STORE`, as those below.
  COUNTERFOIL_OPTION_DISK_BYTES_MAX = 10,
  // Segment file size in bytes; default 16 MiB.
  COUNTERFOIL_OPTION_SEGMENT_BYTES = 11,
  // Store block size in bytes; default 256 KiB.
  COUNTERFOIL_OPTION_BLOCK_BYTES = 12,
  // 1 to compress blocks with lz4; default 0.
  COUNTERFOIL_OPTION_COMPRESS = 13,
  // Newest checkpoints to keep; default 1.
  COUNTERFOIL_OPTION_CHECKPOINTS_KEPT = 14,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum counterfoil_option counterfoil_option;
#else
typedef uint32_t counterfoil_option;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// An option with a path.
enum counterfoil_path
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Directory of mode 0700 for shared-memory files, as in `/dev/shm`.
  COUNTERFOIL_PATH_DIR = 0,
  // Directory for all ranks' stores, on a disk of this node.
  COUNTERFOIL_PATH_STORE = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum counterfoil_path counterfoil_path;
#else
typedef uint32_t counterfoil_path;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Storage of the log, for `COUNTERFOIL_OPTION_TIER`.
enum counterfoil_tier
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Process memory: lost with the process; default.
  COUNTERFOIL_TIER_VOLATILE = 0,
  // A private shared-memory file in `COUNTERFOIL_PATH_DIR`: committed records survive a `kill -9`.
  COUNTERFOIL_TIER_PROCESS_CRASH_SAFE = 1,
  // Memory for new records and a store in `COUNTERFOIL_PATH_STORE` for retained ones.
  COUNTERFOIL_TIER_NODE_LOCAL = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum counterfoil_tier counterfoil_tier;
#else
typedef uint32_t counterfoil_tier;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Retention of acknowledged messages, for `COUNTERFOIL_OPTION_KEEP`.
enum counterfoil_keep
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Until the acknowledgement: a dead receiver can't be replayed.
  COUNTERFOIL_KEEP_ACKED = 0,
  // Until a durable checkpoint of the receiver covers the message; default.
  COUNTERFOIL_KEEP_CHECKPOINT = 1,
  // All messages.
  COUNTERFOIL_KEEP_ALL = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum counterfoil_keep counterfoil_keep;
#else
typedef uint32_t counterfoil_keep;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A position in the messages to a peer.
//
// Made by `counterfoil_cursor_open`, freed by `counterfoil_cursor_free`. It may outlive its log, and be read in
// another thread.
typedef struct counterfoil_cursor counterfoil_cursor;

// A rank's log.
//
// Made by `counterfoil_log_create` or `counterfoil_log_open`, freed by `counterfoil_log_free`.
typedef struct counterfoil_log counterfoil_log;

// Limits and choices of a log.
//
// Made by `counterfoil_options_new`, freed by `counterfoil_options_free`.
typedef struct counterfoil_options counterfoil_options;

// A record, as it was committed.
typedef struct counterfoil_record {
  // Sequence number of the message.
  uint64_t ssn;
  // The caller's own bytes, such as a header.
  const uint8_t *prefix;
  size_t prefix_len;
  const uint8_t *payload;
  size_t payload_len;
} counterfoil_record;

// Result of `counterfoil_log_open`.
typedef struct counterfoil_recovered {
  // Channels with records in memory.
  uint32_t channels;
  // Epoch begun by the newest durable checkpoint; 0 without any.
  uint32_t checkpoint_epoch;
  // Local log entries.
  uint64_t local_entries;
} counterfoil_recovered;

// Memory and counters of a log.
typedef struct counterfoil_stats {
  // Committed messages.
  uint64_t messages_logged;
  // Appended record bytes, headers and pads included.
  uint64_t bytes_logged;
  // Chunk bytes in use.
  uint64_t used_bytes;
  // Bytes of memory in use or kept for reuse.
  uint64_t resident_bytes;
  // Memory budget in bytes.
  uint64_t max_bytes;
  // Memory freed in bytes because their records are on disk.
  uint64_t spilled_bytes;
  // Local log entries.
  uint64_t local_entries;
  // 1 if logging was stopped at the budget.
  uint32_t stopped_logging;
} counterfoil_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the message of this thread's last failure, with its names and values; empty if there was none.
//
// Valid until the next failure of this thread.
const char *counterfoil_error_message(void);

// Opens a cursor on the messages to `peer` from sequence number `from` on, for transmission and replay.
counterfoil_result counterfoil_cursor_open(struct counterfoil_log *log,
                                           uint32_t peer,
                                           uint64_t from,
                                           struct counterfoil_cursor **cursor);

// Returns the next record, and passes it; `COUNTERFOIL_RESULT_END` if nothing more is committed: more may come.
//
// The bytes are valid until the next call with this cursor.
counterfoil_result counterfoil_cursor_next(struct counterfoil_cursor *cursor, struct counterfoil_record *record);

// Frees a cursor.
//
// Null is ignored.
void counterfoil_cursor_free(struct counterfoil_cursor *cursor);

// Creates an empty log; refuses if files of one exist.
//
// `options` stays the caller's.
counterfoil_result counterfoil_log_create(struct counterfoil_options *options, struct counterfoil_log **log);

// Opens a dead process's log: its shared-memory file and its newest durable checkpoint.
//
// Creates missing parts. `recovered` may be null.
//
// The channels go on after the dead process's last record: `counterfoil_log_next_ssn`. A rank repeating its execution
// rewinds them, and repeats its messages.
counterfoil_result counterfoil_log_open(struct counterfoil_options *options,
                                        struct counterfoil_log **log,
                                        struct counterfoil_recovered *recovered);

// Closes and frees a log.
//
// Its files stay. An open claim is aborted. Null is ignored.
void counterfoil_log_free(struct counterfoil_log *log);

// Closes and frees a log, and removes its files.
//
// `log` is freed whatever the result.
counterfoil_result counterfoil_log_destroy(struct counterfoil_log *log);

// Returns the program's bytes from the checkpoint opened with the log; none without one.
//
// Valid until the log is freed.
counterfoil_result counterfoil_log_restored(struct counterfoil_log *log, const uint8_t **data, size_t *len);

// Reserves a record for `peer`: `prefix_len` bytes for the caller's use, such as a header, and `payload_len` bytes.
//
// The caller writes both where `prefix` and `payload` then point, and calls `counterfoil_log_commit` or
// `counterfoil_log_abort`, before any other function on this log. Either variable may be null.
//
// Never waits: `COUNTERFOIL_RESULT_FULL` and `COUNTERFOIL_RESULT_SPILL_BEHIND` ask to try again.
counterfoil_result counterfoil_log_try_claim(struct counterfoil_log *log,
                                             uint32_t peer,
                                             size_t prefix_len,
                                             size_t payload_len,
                                             uint8_t **prefix,
                                             uint8_t **payload);

// Commits the open claim: from now on it is a message.
//
// `ssn` gets its sequence number, and may be null.
counterfoil_result counterfoil_log_commit(struct counterfoil_log *log, uint64_t *ssn);

// Gives the open claim up: no message, and the next one has its sequence number.
counterfoil_result counterfoil_log_abort(struct counterfoil_log *log);

// Appends a message to `peer`: claim, copy and commit in one.
//
// Waits for the disk, if records come faster than it takes them, and never for acknowledgements:
// `COUNTERFOIL_RESULT_FULL`. `ssn` may be null.
counterfoil_result counterfoil_log_append(struct counterfoil_log *log,
                                          uint32_t peer,
                                          const uint8_t *prefix,
                                          size_t prefix_len,
                                          const uint8_t *payload,
                                          size_t payload_len,
                                          uint64_t *ssn);

// Returns the sequence number of the next message to `peer`: 1 before the first.
counterfoil_result counterfoil_log_next_ssn(struct counterfoil_log *log, uint32_t peer, uint64_t *ssn);

// Returns the lowest sequence number to `peer` that may still be kept.
counterfoil_result counterfoil_log_kept_from(struct counterfoil_log *log, uint32_t peer, uint64_t *ssn);

// Returns the last sequence number acknowledged by `peer`; 0 before the first.
counterfoil_result counterfoil_log_acked(struct counterfoil_log *log, uint32_t peer, uint64_t *ssn);

// Handles an acknowledgement from `peer`: it has received all messages up to `ssn`, the last one in its epoch `epoch`.
//
// They are released, or retained until covered by a checkpoint, depending on `COUNTERFOIL_OPTION_KEEP`.
counterfoil_result counterfoil_log_acknowledge(struct counterfoil_log *log,
                                               uint32_t peer,
                                               uint64_t ssn,
                                               uint32_t epoch);

// Handles a durable checkpoint of `peer`, beginning `epoch` and covering the messages up to `upto`: the next
// `counterfoil_log_collect` frees them.
counterfoil_result counterfoil_log_receiver_covered(struct counterfoil_log *log,
                                                    uint32_t peer,
                                                    uint32_t epoch,
                                                    uint64_t upto);

// Handles a rollback of `peer` to its state after receiving the messages up to `upto`.
counterfoil_result counterfoil_log_receiver_rolled_back(struct counterfoil_log *log, uint32_t peer, uint64_t upto);

// Frees the records no longer needed by any recovery.
//
// `chunks` gets the number of freed chunks, and may be null.
counterfoil_result counterfoil_log_collect(struct counterfoil_log *log, size_t *chunks);

// Writes a checkpoint beginning `epoch`, and waits until it survives a power cut: the kept records, the local log, and
// the program's bytes.
//
// Needs `COUNTERFOIL_PATH_STORE`. The previous checkpoint is unaffected by a failure.
counterfoil_result counterfoil_log_checkpoint(struct counterfoil_log *log,
                                              uint32_t epoch,
                                              const uint8_t *state,
                                              size_t len);

// Rewinds the channel to `peer` to the state after its message `last`: the next ones are to be repeated.
counterfoil_result counterfoil_log_rewind(struct counterfoil_log *log, uint32_t peer, uint64_t last);

// Repeats a message after a rewind: compares its payload with the one on record.
//
// `COUNTERFOIL_RESULT_NOT_REWOUND` when all are repeated: append from then on. `ssn` may be null.
counterfoil_result counterfoil_log_repeat(struct counterfoil_log *log,
                                          uint32_t peer,
                                          const uint8_t *payload,
                                          size_t payload_len,
                                          uint64_t *ssn);

// Appends an entry on this rank's own past to the local log: `kind` below 255 and `key` are the caller's.
counterfoil_result counterfoil_log_append_local(struct counterfoil_log *log,
                                                uint8_t kind,
                                                uint64_t key,
                                                const uint8_t *data,
                                                size_t len);

// Finds the oldest local log entry with this kind and key; `COUNTERFOIL_RESULT_END` if there is none.
//
// The bytes are valid until the next such call on the log.
counterfoil_result counterfoil_log_find_local(struct counterfoil_log *log,
                                              uint8_t kind,
                                              uint64_t key,
                                              const uint8_t **data,
                                              size_t *len);

// Returns memory and counters.
counterfoil_result counterfoil_log_stats(struct counterfoil_log *log, struct counterfoil_stats *stats);

// Returns the default options for a log of `rank`, in a job of `ranks`.
struct counterfoil_options *counterfoil_options_new(uint32_t rank, uint32_t ranks);

// Frees options.
//
// Null is ignored. Logs made with them are unaffected.
void counterfoil_options_free(struct counterfoil_options *options);

// Sets a numeric option: `option` is a `counterfoil_option`.
//
// Values are checked when a log is made, except choices, which are checked here.
counterfoil_result counterfoil_options_set(struct counterfoil_options *options, uint32_t option, uint64_t value);

// Sets a path option: `option` is a `counterfoil_path`.
//
// The path is copied.
counterfoil_result counterfoil_options_set_path(struct counterfoil_options *options,
                                                uint32_t option,
                                                const char *value);

// Sets the retention, the memory budget, and chunk sizes suiting both: `keep` is a `counterfoil_keep`.
counterfoil_result counterfoil_options_retain(struct counterfoil_options *options,
                                              uint32_t keep,
                                              size_t memory_bytes_max);

// Returns a sentence for a result; for a number that is none, one that says so.
//
// Static; not to be freed.
const char *counterfoil_strerror(uint32_t result);

// Returns the library version, as `0.1.0`.
//
// It may differ from the header's.
const char *counterfoil_version(void);

// Returns the library version as a number: `COUNTERFOIL_VERSION_NUMBER` of its header.
uint32_t counterfoil_version_number(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* COUNTERFOIL_H */
