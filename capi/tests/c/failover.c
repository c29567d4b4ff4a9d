/* Two processes, one of which keeps what it sends; either is killed, and its replacement goes on.
 *
 * failover DIR: starts a receiver and a sender, kills the receiver twice and the sender twice at some of their messages,
 * and replaces each. The sender's log is in DIR, of mode 0700. */
#include <counterfoil.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SENDER = 0, RECEIVER = 1, MESSAGES = 4000, BYTES_MAX = 300 };

/* What travels: a sequence number, and a message. */
struct frame {
    uint64_t ssn;
    uint32_t len;
    uint8_t bytes[BYTES_MAX];
};

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        counterfoil_result result_ = (call);                                                                 \
        if (result_ != COUNTERFOIL_RESULT_OK) {                                                              \
            fprintf(stderr, "%s: %s %s\n", #call, counterfoil_strerror(result_), counterfoil_error_message()); \
            _exit(3);                                                                                        \
        }                                                                                                    \
    } while (0)

static void die(const char *what) {
    perror(what);
    _exit(4);
}

/* A message that depends on its number alone. */
static uint32_t fill(uint8_t *bytes, uint64_t number) {
    uint32_t len = (uint32_t)(number * 37 % BYTES_MAX);
    for (uint32_t i = 0; i < len; i++) bytes[i] = (uint8_t)(number * 131 + i * 7);
    return len;
}

static uint64_t digest(uint64_t before, const uint8_t *bytes, size_t len) {
    for (size_t i = 0; i < len; i++) before = (before ^ bytes[i]) * 1099511628211u;
    return before;
}

static struct sockaddr_un address(const char *dir) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s/socket", dir);
    return at;
}

/* Sends everything from the log that the peer wants; returns 0 if the peer is gone. */
static int forward(int peer, counterfoil_cursor *cursor, uint64_t upto) {
    counterfoil_record record;
    while (upto-- && counterfoil_cursor_next(cursor, &record) == COUNTERFOIL_RESULT_OK) {
        struct frame frame = {record.ssn, (uint32_t)record.payload_len, {0}};
        memcpy(frame.bytes, record.payload, record.payload_len);
        if (send(peer, &frame, sizeof frame, MSG_NOSIGNAL) < 0) return 0;
    }
    return 1;
}

static void run_sender(const char *dir, uint64_t dies_at) {
    counterfoil_options *options = counterfoil_options_new(SENDER, 2);
    CHECK(counterfoil_options_set(options, COUNTERFOIL_OPTION_TIER, COUNTERFOIL_TIER_PROCESS_CRASH_SAFE));
    CHECK(counterfoil_options_set(options, COUNTERFOIL_OPTION_KEEP, COUNTERFOIL_KEEP_ALL));
    CHECK(counterfoil_options_set_path(options, COUNTERFOIL_PATH_DIR, dir));
    counterfoil_log *log;
    counterfoil_recovered recovered;
    CHECK(counterfoil_log_open(options, &log, &recovered));
    counterfoil_options_free(options);
    /* This process repeats what the one before has sent. */
    if (recovered.channels) CHECK(counterfoil_log_rewind(log, RECEIVER, 0));

    struct sockaddr_un at = address(dir);
    unlink(at.sun_path);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0), peer = -1;
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 4)) die("listen");
    counterfoil_cursor *cursor = NULL;
    for (uint64_t number = 1; number <= MESSAGES; number++) {
        uint8_t bytes[BYTES_MAX];
        uint32_t len = fill(bytes, number);
        uint64_t ssn;
        counterfoil_result repeated = counterfoil_log_repeat(log, RECEIVER, bytes, len, &ssn);
        if (repeated == COUNTERFOIL_RESULT_NOT_REWOUND) {
            CHECK(counterfoil_log_append(log, RECEIVER, NULL, 0, bytes, len, &ssn));
        } else
            CHECK(repeated);
        if (ssn != number) _exit(5);
        if (number == dies_at) kill(getpid(), SIGKILL);
        while (!cursor || !forward(peer, cursor, UINT64_MAX)) {
            /* A receiver, perhaps a replacement, says what it has. */
            uint64_t has;
            counterfoil_cursor_free(cursor);
            cursor = NULL;
            if (peer >= 0) close(peer);
            if ((peer = accept(listener, NULL, NULL)) < 0) die("accept");
            if (recv(peer, &has, sizeof has, 0) == sizeof has)
                CHECK(counterfoil_cursor_open(log, RECEIVER, has + 1, &cursor));
        }
    }
    /* The last receiver may be killed, too: serve until one says that it has all. */
    for (uint64_t has = 0; has < MESSAGES;) {
        if (recv(peer, &has, sizeof has, 0) == sizeof has) {
            if (has < MESSAGES && cursor) continue;
        } else {
            counterfoil_cursor_free(cursor);
            cursor = NULL;
            close(peer);
            if ((peer = accept(listener, NULL, NULL)) < 0) die("accept");
            if (recv(peer, &has, sizeof has, 0) != sizeof has) continue;
        }
        if (has < MESSAGES) {
            CHECK(counterfoil_cursor_open(log, RECEIVER, has + 1, &cursor));
            forward(peer, cursor, UINT64_MAX);
            has = 0;
        }
    }
    counterfoil_stats stats;
    CHECK(counterfoil_log_stats(log, &stats));
    counterfoil_cursor_free(cursor);
    CHECK(counterfoil_log_destroy(log));
    _exit(0);
}

static void run_receiver(const char *dir, uint64_t dies_at) {
    struct sockaddr_un at = address(dir);
    uint64_t has = 0, all = 14695981039346656037u;
    int sender = -1;
    while (has < MESSAGES) {
        struct frame frame;
        if (sender < 0) {
            sender = socket(AF_UNIX, SOCK_SEQPACKET, 0);
            if (connect(sender, (struct sockaddr *)&at, sizeof at) ||
                send(sender, &has, sizeof has, MSG_NOSIGNAL) != sizeof has) {
                close(sender);
                sender = -1;
                usleep(1000);
                continue;
            }
        }
        if (recv(sender, &frame, sizeof frame, 0) != sizeof frame) {
            close(sender);
            sender = -1;
            continue;
        }
        /* Neither lost, nor twice, nor out of order. */
        if (frame.ssn != has + 1) _exit(6);
        has = frame.ssn;
        all = digest(all, frame.bytes, frame.len);
        if (has == dies_at) kill(getpid(), SIGKILL);
    }
    uint64_t expected = 14695981039346656037u;
    for (uint64_t number = 1; number <= MESSAGES; number++) {
        uint8_t bytes[BYTES_MAX];
        expected = digest(expected, bytes, fill(bytes, number));
    }
    if (all != expected) _exit(7);
    send(sender, &has, sizeof has, MSG_NOSIGNAL);
    _exit(0);
}

static pid_t start(void (*run)(const char *, uint64_t), const char *dir, uint64_t dies_at) {
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) run(dir, dies_at);
    return child;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    /* A process of each dies at these of its messages; the last one doesn't. */
    const uint64_t sender_dies[] = {700, 2500, 0}, receiver_dies[] = {300, 1900, 0};
    int senders = 0, receivers = 0, ended = 0;
    pid_t sender = start(run_sender, argv[1], sender_dies[0]), receiver = start(run_receiver, argv[1], receiver_dies[0]);
    while (ended < 2) {
        int status;
        pid_t child = wait(&status);
        if (child < 0) die("wait");
        if (WIFEXITED(status)) {
            if (WEXITSTATUS(status)) {
                fprintf(stderr, "a %s ended with %d\n", child == sender ? "sender" : "receiver", WEXITSTATUS(status));
                kill(child == sender ? receiver : sender, SIGKILL);
                return 1;
            }
            ended++;
        } else if (child == sender)
            sender = start(run_sender, argv[1], sender_dies[++senders]);
        else
            receiver = start(run_receiver, argv[1], receiver_dies[++receivers]);
    }
    printf("%d messages: %d senders and %d receivers were killed, none lost, none twice, none out of order\n", MESSAGES,
           senders, receivers);
    return 0;
}
