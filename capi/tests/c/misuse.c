/* Wrong parameters, wrong order, full memory, a store: each has its result, and nothing is lost. */
#include <counterfoil.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(want, call)                                                                                  \
    do {                                                                                                    \
        counterfoil_result result_ = (call);                                                                \
        if (result_ != (want)) {                                                                            \
            fprintf(stderr, "line %d: %s is %u: %s %s\n", __LINE__, #call, (unsigned)result_,               \
                    counterfoil_strerror(result_), counterfoil_error_message());                            \
            exit(1);                                                                                        \
        }                                                                                                   \
    } while (0)
#define OK(call) EXPECT(COUNTERFOIL_RESULT_OK, call)
#define SAYS(text)                                                                             \
    do {                                                                                       \
        if (!strstr(counterfoil_error_message(), text)) {                                      \
            fprintf(stderr, "line %d: it says: %s\n", __LINE__, counterfoil_error_message());  \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

int main(int argc, char **argv) {
    counterfoil_log *log = NULL, *none = NULL;
    counterfoil_cursor *cursor, *cursors[9];
    counterfoil_record record;
    counterfoil_recovered recovered;
    counterfoil_stats stats;
    uint8_t *prefix, *payload, bytes[100] = {0};
    const uint8_t *data;
    size_t len, chunks;
    uint64_t ssn;
    if (argc != 2) return 2;
    if (counterfoil_version_number() != COUNTERFOIL_VERSION_NUMBER) return 3;

    counterfoil_options *options = counterfoil_options_new(0, 2);
    EXPECT(COUNTERFOIL_RESULT_NULL_PARAMETER, counterfoil_log_create(NULL, &log));
    SAYS("`options` is null");
    EXPECT(COUNTERFOIL_RESULT_NULL_PARAMETER, counterfoil_log_create(options, NULL));
    EXPECT(COUNTERFOIL_RESULT_INVALID_PARAMETER, counterfoil_options_set(options, 99, 1));
    EXPECT(COUNTERFOIL_RESULT_INVALID_PARAMETER, counterfoil_options_set(options, COUNTERFOIL_OPTION_TIER, 3));
    SAYS("`value` is 3");
    EXPECT(COUNTERFOIL_RESULT_NO_STORE, counterfoil_options_set(options, COUNTERFOIL_OPTION_COMPRESS, 1));
    EXPECT(COUNTERFOIL_RESULT_NULL_PARAMETER, counterfoil_options_set_path(options, COUNTERFOIL_PATH_DIR, NULL));
    OK(counterfoil_options_set(options, COUNTERFOIL_OPTION_CHUNK_BYTES, 12345));
    EXPECT(COUNTERFOIL_RESULT_OPTIONS, counterfoil_log_create(options, &log));
    SAYS("chunk_bytes");
    OK(counterfoil_options_set(options, COUNTERFOIL_OPTION_CHUNK_BYTES, 4096));
    OK(counterfoil_options_set(options, COUNTERFOIL_OPTION_MEMORY_BYTES_MAX, 64 * 4096));
    OK(counterfoil_options_set(options, COUNTERFOIL_OPTION_PREFAULT_BYTES, 4096));
    OK(counterfoil_options_set(options, COUNTERFOIL_OPTION_TIER, COUNTERFOIL_TIER_PROCESS_CRASH_SAFE));
    EXPECT(COUNTERFOIL_RESULT_OPTIONS, counterfoil_log_create(options, &log));
    OK(counterfoil_options_set_path(options, COUNTERFOIL_PATH_DIR, "/nonexistent/dir"));
    EXPECT(COUNTERFOIL_RESULT_DIRECTORY, counterfoil_log_create(options, &log));
    SAYS("/nonexistent/dir");
    OK(counterfoil_options_set_path(options, COUNTERFOIL_PATH_DIR, argv[1]));
    OK(counterfoil_options_set_path(options, COUNTERFOIL_PATH_STORE, argv[1]));
    OK(counterfoil_options_set(options, COUNTERFOIL_OPTION_COMPRESS, 1));
    OK(counterfoil_log_open(options, &log, &recovered));
    if (recovered.channels || recovered.checkpoint_epoch) return 12;
    OK(counterfoil_log_destroy(log));
    OK(counterfoil_log_create(options, &log));
    EXPECT(COUNTERFOIL_RESULT_DIRECTORY, counterfoil_log_create(options, &none));
    SAYS("log.0");

    /* Claims. */
    EXPECT(COUNTERFOIL_RESULT_NO_CLAIM, counterfoil_log_commit(log, NULL));
    EXPECT(COUNTERFOIL_RESULT_NO_CLAIM, counterfoil_log_abort(log));
    EXPECT(COUNTERFOIL_RESULT_NO_SUCH_RANK, counterfoil_log_try_claim(log, 2, 0, 10, NULL, &payload));
    EXPECT(COUNTERFOIL_RESULT_NO_SUCH_RANK, counterfoil_log_next_ssn(log, 2, &ssn));
    EXPECT(COUNTERFOIL_RESULT_NO_SUCH_RANK, counterfoil_log_rewind(log, 7, 0));
    EXPECT(COUNTERFOIL_RESULT_TOO_LONG, counterfoil_log_try_claim(log, 1, 0, 1 << 30, NULL, &payload));
    OK(counterfoil_log_try_claim(log, 1, 4, 10, &prefix, &payload));
    EXPECT(COUNTERFOIL_RESULT_CLAIM_OPEN, counterfoil_log_try_claim(log, 1, 4, 10, &prefix, &payload));
    EXPECT(COUNTERFOIL_RESULT_CLAIM_OPEN, counterfoil_log_next_ssn(log, 1, &ssn));
    OK(counterfoil_log_abort(log));
    OK(counterfoil_log_next_ssn(log, 1, &ssn));
    if (ssn != COUNTERFOIL_SSN_FIRST) return 4;
    OK(counterfoil_log_try_claim(log, 1, 4, 10, &prefix, &payload));
    memset(prefix, 1, 4);
    memset(payload, 2, 10);
    OK(counterfoil_log_commit(log, &ssn));
    EXPECT(COUNTERFOIL_RESULT_NULL_PARAMETER, counterfoil_log_append(log, 1, NULL, 1, bytes, 10, &ssn));
    OK(counterfoil_log_append(log, 1, NULL, 0, NULL, 0, &ssn));
    if (ssn != 2) return 5;
    EXPECT(COUNTERFOIL_RESULT_ACKNOWLEDGEMENT, counterfoil_log_acknowledge(log, 1, 7, COUNTERFOIL_EPOCH_FIRST));

    /* Full memory: nothing is lost, and a covered record makes room. */
    counterfoil_result full;
    while ((full = counterfoil_log_append(log, 1, NULL, 0, bytes, sizeof bytes, &ssn)) == COUNTERFOIL_RESULT_OK) {}
    EXPECT(COUNTERFOIL_RESULT_FULL, full);
    OK(counterfoil_log_acknowledge(log, 1, ssn, COUNTERFOIL_EPOCH_FIRST));
    EXPECT(COUNTERFOIL_RESULT_FULL, counterfoil_log_append(log, 1, NULL, 0, bytes, sizeof bytes, NULL));
    OK(counterfoil_cursor_open(log, 1, 1, &cursor));
    OK(counterfoil_cursor_next(cursor, &record));
    if (record.prefix_len != 4 || record.prefix[3] != 1 || record.payload_len != 10 || record.payload[9] != 2) return 6;
    counterfoil_cursor_free(cursor);
    OK(counterfoil_log_receiver_covered(log, 1, 2, ssn - 10));
    OK(counterfoil_log_collect(log, &chunks));
    if (!chunks) return 7;
    OK(counterfoil_log_append(log, 1, NULL, 0, bytes, sizeof bytes, &ssn));
    EXPECT(COUNTERFOIL_RESULT_GONE, counterfoil_cursor_open(log, 1, 1, &cursor));
    for (int i = 0; i < 8; i++) OK(counterfoil_cursor_open(log, 1, ssn, &cursors[i]));
    EXPECT(COUNTERFOIL_RESULT_TOO_MANY_CURSORS, counterfoil_cursor_open(log, 1, ssn, &cursors[8]));
    for (int i = 0; i < 8; i++) counterfoil_cursor_free(cursors[i]);

    /* The local log, a checkpoint, and a second life. */
    OK(counterfoil_log_append_local(log, 3, 42, (const uint8_t *)"outcome", 7));
    EXPECT(COUNTERFOIL_RESULT_LOCAL_LOG, counterfoil_log_append_local(log, 255, 0, NULL, 0));
    OK(counterfoil_log_checkpoint(log, 2, (const uint8_t *)"state", 5));
    OK(counterfoil_log_stats(log, &stats));
    if (stats.local_entries != 1 || stats.messages_logged != ssn || !stats.used_bytes) return 8;
    counterfoil_log_free(log);
    OK(counterfoil_log_open(options, &log, &recovered));
    if (recovered.checkpoint_epoch != 2 || recovered.local_entries != 1 || recovered.channels != 1) return 9;
    OK(counterfoil_log_restored(log, &data, &len));
    if (len != 5 || memcmp(data, "state", 5)) return 10;
    OK(counterfoil_log_find_local(log, 3, 42, &data, &len));
    if (len != 7 || memcmp(data, "outcome", 7)) return 11;
    EXPECT(COUNTERFOIL_RESULT_END, counterfoil_log_find_local(log, 3, 43, &data, &len));
    OK(counterfoil_log_rewind(log, 1, ssn - 1));
    EXPECT(COUNTERFOIL_RESULT_DIVERGED, counterfoil_log_repeat(log, 1, (const uint8_t *)"other", 5, NULL));
    OK(counterfoil_log_repeat(log, 1, bytes, sizeof bytes, NULL));
    EXPECT(COUNTERFOIL_RESULT_NOT_REWOUND, counterfoil_log_repeat(log, 1, bytes, sizeof bytes, NULL));

    /* A cursor outlives its log. */
    OK(counterfoil_cursor_open(log, 1, ssn, &cursor));
    OK(counterfoil_log_destroy(log));
    OK(counterfoil_cursor_next(cursor, &record));
    counterfoil_cursor_free(cursor);
    EXPECT(COUNTERFOIL_RESULT_NULL_PARAMETER, counterfoil_log_destroy(none));
    counterfoil_log_free(NULL);
    counterfoil_cursor_free(NULL);
    counterfoil_options_free(NULL);
    counterfoil_options_free(options);
    printf("every result as documented\n");
    return 0;
}
