/* The first example of the crate: messages are claimed, acknowledged, replayed, covered by a checkpoint and collected. */
#include <counterfoil.h>
#include <stdio.h>
#include <string.h>

#define CHECK(call)                                                                                    \
    do {                                                                                               \
        counterfoil_result result = (call);                                                            \
        if (result != COUNTERFOIL_RESULT_OK) {                                                         \
            fprintf(stderr, "%s: %s %s\n", #call, counterfoil_strerror(result), counterfoil_error_message()); \
            return 1;                                                                                  \
        }                                                                                              \
    } while (0)

enum { ME = 0, PEER = 1, MESSAGES = 10000, BYTES = 1024 };

int main(void) {
    counterfoil_options *options = counterfoil_options_new(ME, 2);
    counterfoil_log *log;
    CHECK(counterfoil_log_create(options, &log));
    counterfoil_options_free(options);

    /* Claim, write straight into the log, commit. The prefix is the caller's own, for example a header. */
    for (uint64_t i = 0; i < MESSAGES; i++) {
        uint8_t *prefix, *payload;
        CHECK(counterfoil_log_try_claim(log, PEER, sizeof i, BYTES, &prefix, &payload));
        memcpy(prefix, &i, sizeof i);
        memset(payload, (int)i, BYTES);
        CHECK(counterfoil_log_commit(log, NULL));
    }

    /* The peer acknowledges messages, in its first epoch. */
    CHECK(counterfoil_log_acknowledge(log, PEER, 9000, COUNTERFOIL_EPOCH_FIRST));

    /* The peer died and was replaced: send it everything again, in order. */
    counterfoil_cursor *cursor;
    counterfoil_record record;
    counterfoil_result result;
    uint64_t replayed = 0;
    CHECK(counterfoil_cursor_open(log, PEER, COUNTERFOIL_SSN_FIRST, &cursor));
    while ((result = counterfoil_cursor_next(cursor, &record)) == COUNTERFOIL_RESULT_OK) {
        replayed++;
        if (record.ssn != replayed || record.payload_len != BYTES || record.payload[BYTES - 1] != (uint8_t)(record.ssn - 1))
            return 1;
    }
    counterfoil_cursor_free(cursor);
    if (result != COUNTERFOIL_RESULT_END || replayed != MESSAGES) return 1;

    /* The peer's checkpoint covers most of them: free those. */
    size_t chunks;
    CHECK(counterfoil_log_receiver_covered(log, PEER, 2, 8000));
    CHECK(counterfoil_log_collect(log, &chunks));
    result = counterfoil_cursor_open(log, PEER, COUNTERFOIL_SSN_FIRST, &cursor);
    printf("replayed %d messages, freed %s chunks; then: %s\n", (int)replayed, chunks > 100 ? "many" : "few",
           counterfoil_strerror(result));
    counterfoil_log_free(log);
    return 0;
}
