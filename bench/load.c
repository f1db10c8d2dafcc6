/* A load generator that checks every answer: one thread, epoll, keep-alive connections to 127.0.0.1.
 *
 *   load PORT PLAN CONNECTIONS SECONDS COUNT SERVER_PID
 *
 * PLAN is a file with one request a line, its fields separated by tabs:
 *   phase (setup, loop or end) | method | path | body | expected text | ends (1: `event: end` must be there)
 *   | least bytes | takes sid (1: the session id is in this answer)
 * In path, body and expected text, {sid} stands for the connection's session id and {n} for a number that
 * no other request has. Every connection goes through setup once, then all of them through the loop, again
 * and again for SECONDS or until COUNT passes have begun, then through end. The loop alone is measured, with
 * the passes that were begun in time: a server that answers 256 requests in one wave is not cut off within it.
 * The figures go to stdout as one JSON object.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "answer.h"

enum { SETUP, LOOP, END, PHASES };
enum { MAX_STEPS = 8, PACE = 64, STALLED_SECONDS = 90 };

typedef struct {
    char *method, *path, *body, *expected;
    int ends, takes_sid;
    long least;
} Step;

typedef struct {
    int fd, step, busy, numbered;
    long number;
    char sid[300];
    double began;        /* of this pass */
    Answer answer;
} Connection;

static Step steps[PHASES][MAX_STEPS];
static int step_count[PHASES];
static Connection *connections;
static int connection_count, epoll_fd, phase, next_to_start, active;
static struct sockaddr_in address;
static long passes_begun, passes_allowed, passes, calls, errors, reconnects, bytes, last_number = 10000000;
static double loop_began, deadline, loop_ended, last_progress;
static float *latencies;
static long latency_count, latency_size;
static char first_error[400];
static long server_pid, server_ticks;
static double own_cpu;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void die(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void wrong(const char *what, const Connection *c) {
    errors++;
    if (first_error[0]) return;
    int shown = c->answer.body > 150 ? 150 : (int)c->answer.body;
    snprintf(first_error, sizeof first_error, "%s (status %d, %zu bytes): %.*s", what, c->answer.status,
             c->answer.body, shown, c->answer.head ? body_of(&c->answer) : "");
    for (char *at = first_error; *at; at++)  /* it goes into JSON */
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\') *at = *at == '"' ? '\'' : ' ';
}

/* ── Figures ─────────────────────────────────────────────────────────────────────────────────── */

static long ticks_of_server(void) {
    char name[64], line[1024];
    long user = 0, system = 0;
    snprintf(name, sizeof name, "/proc/%ld/stat", server_pid);
    FILE *file = fopen(name, "r");
    if (!file) return 0;
    if (fgets(line, sizeof line, file) && strrchr(line, ')'))
        sscanf(strrchr(line, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &system);
    fclose(file);
    return user + system;
}

static double cpu_of_self(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

static void note_latency(double seconds) {
    if (latency_count == latency_size) {
        latency_size = latency_size ? latency_size * 2 : 1 << 16;
        latencies = realloc(latencies, latency_size * sizeof *latencies);
        if (!latencies) die("out of memory");
    }
    latencies[latency_count++] = (float)(seconds * 1e6);
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double percentile(double share) {
    return latency_count ? latencies[(long)(share * (latency_count - 1))] : 0;
}

static void report(void) {
    double seconds = loop_ended - loop_began;
    if (latency_count) qsort(latencies, latency_count, sizeof *latencies, by_size);
    printf("{\"seconds\":%.6f,\"passes\":%ld,\"calls\":%ld,\"bytes\":%ld,\"errors\":%ld,\"reconnects\":%ld,",
           seconds, passes, calls, bytes, errors, reconnects);
    printf("\"p50_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f,", percentile(0.5), percentile(0.9),
           percentile(0.99), percentile(1));
    printf("\"server_cpu\":%.3f,\"own_cpu\":%.3f,\"first_error\":\"%s\"}\n",
           server_ticks / (double)sysconf(_SC_CLK_TCK), own_cpu, first_error);
}

/* ── The plan ────────────────────────────────────────────────────────────────────────────────── */

static void read_step(char *line) {
    char *field[8];
    for (int i = 0; i < 8; i++) field[i] = strsep(&line, "\t");
    if (!field[7]) die("a line of the plan has too few fields");
    int which = !strcmp(field[0], "setup") ? SETUP : !strcmp(field[0], "loop") ? LOOP : END;
    if (step_count[which] == MAX_STEPS) die("too many steps");
    steps[which][step_count[which]++] = (Step){
        .method = strdup(field[1]), .path = strdup(field[2]), .body = strdup(field[3]),
        .expected = strdup(field[4]), .ends = atoi(field[5]), .least = atol(field[6]), .takes_sid = atoi(field[7]),
    };
}

static void read_plan(const char *name) {
    static char line[1 << 16];
    FILE *file = fopen(name, "r");
    if (!file) die(name);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0]) read_step(line);
    }
    fclose(file);
    if (!step_count[LOOP]) die("the plan has no loop");
}

/* Writes `from` with its placeholders filled in; returns the length. */
static size_t render(char *to, const char *from, Connection *c) {
    char *start = to;
    while (*from) {
        if (*from != '{') { *to++ = *from++; continue; }
        if (!strncmp(from, "{sid}", 5)) { to = stpcpy(to, c->sid); from += 5; continue; }
        if (strncmp(from, "{n}", 3)) { *to++ = *from++; continue; }
        if (!c->numbered) { c->number = ++last_number; c->numbered = 1; }
        to += sprintf(to, "%ld", c->number);
        from += 3;
    }
    *to = 0;
    return to - start;
}

/* ── Connections ─────────────────────────────────────────────────────────────────────────────── */

static void broken(Connection *c);

static void hang_up(Connection *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

static void connect_to_server(Connection *c) {
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0) die("socket");
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.u32 = c - connections};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event)) die("epoll_ctl");
}

static void send_request(Connection *c) {
    static char request[1 << 17], body[1 << 16], path[1024];
    const Step *step = &steps[phase][c->step];
    if (c->fd < 0) { connect_to_server(c); reconnects++; }
    c->numbered = 0;
    size_t body_length = render(body, step->body, c);
    render(path, step->path, c);
    int length = sprintf(request, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n", step->method, path);
    if (c->sid[0]) length += sprintf(request + length, "X-Session-ID: %s\r\n", c->sid);
    if (!strcmp(step->method, "POST"))
        length += sprintf(request + length, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body_length);
    length += sprintf(request + length, "Accept: %s\r\n\r\n%s", step->ends ? "text/event-stream" : "*/*", body);
    c->busy = 1;
    expect_answer(&c->answer);
    if (send(c->fd, request, length, MSG_NOSIGNAL) != length) broken(c);
}

static void begin_pass(Connection *c) {
    c->step = 0;
    c->began = now();
    send_request(c);
}

static void start_more(void) {
    int at_once = phase == LOOP ? connection_count : PACE;
    while (next_to_start < connection_count && active < at_once) {
        if (phase == LOOP && passes_allowed && passes_begun >= passes_allowed) return;
        passes_begun++;
        active++;
        begin_pass(&connections[next_to_start++]);
    }
}

static void pass_done(Connection *c) {
    double time = now();
    if (phase == LOOP) {
        passes++;
        note_latency(time - c->began);
        if (time < deadline && (!passes_allowed || passes_begun < passes_allowed)) {
            passes_begun++;
            begin_pass(c);
            return;
        }
    }
    active--;
    start_more();
}

/* ── Answers ─────────────────────────────────────────────────────────────────────────────────── */

static void take_sid(Connection *c) {
    size_t size = c->answer.body;
    char *body = body_of(&c->answer), *end = body + size, *at = memmem(body, size, "\"sid\":", 6);
    at = at ? memchr(at + 6, '"', end - at - 6) : memmem(body, size, "data: ", 6);
    if (!at) return;
    at += *at == '"' ? 1 : 6;
    size_t length = 0;
    while (at + length < end && at[length] > ' ' && at[length] != '"' && length < sizeof c->sid - 1) length++;
    memcpy(c->sid, at, length);
    c->sid[length] = 0;
}

static void check(Connection *c) {
    static char expected[1 << 16];
    const Step *step = &steps[phase][c->step];
    const char *body = body_of(&c->answer);
    size_t size = c->answer.body, tail = size > 8192 ? 8192 : size;
    size_t length = render(expected, step->expected, c);
    if (c->answer.status != 200) wrong("wrong status", c);
    else if (length && !memmem(body, size, expected, length)) wrong("the expected text is missing", c);
    else if ((long)size < step->least) wrong("too short", c);
    else if (step->ends && !memmem(body + size - tail, tail, "event: end", 10)) wrong("no end event", c);
}

static void answered(Connection *c) {
    check(c);
    if (phase == LOOP) { calls++; bytes += c->answer.body; }
    if (steps[phase][c->step].takes_sid) take_sid(c);
    if (c->answer.closes) hang_up(c);
    c->busy = 0;
    last_progress = now();
    if (++c->step < step_count[phase]) send_request(c);
    else pass_done(c);
}

static void broken(Connection *c) {
    hang_up(c);
    if (!c->busy) return;  /* the server closed an idle connection, as it may */
    c->busy = 0;
    wrong("the connection broke", c);
    active--;
    start_more();
}

static void readable(Connection *c) {
    Answer *answer = &c->answer;
    if (!make_room(answer)) die("out of memory");
    ssize_t got = recv(c->fd, answer->buffer + answer->filled, answer->size - answer->filled, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) { broken(c); return; }
    if (got_more(answer, got) && c->busy) answered(c);
}

/* ── Phases ──────────────────────────────────────────────────────────────────────────────────── */

static void run(int which) {
    static struct epoll_event events[1024];
    phase = which;
    next_to_start = active = 0;
    if (!step_count[phase]) return;
    last_progress = now();
    start_more();
    while (active) {
        int count = epoll_wait(epoll_fd, events, 1024, 1000);
        for (int i = 0; i < count; i++) {
            Connection *c = &connections[events[i].data.u32];
            if (c->fd >= 0) readable(c);
        }
        if (!count && now() - last_progress > STALLED_SECONDS) {
            snprintf(first_error, sizeof first_error, "%d requests without an answer", active);
            errors += active;
            return;
        }
    }
}

/* A server may close what stood idle during a long setup; the loop begins with all connections open. */
static void open_all(void) {
    struct epoll_event event;
    while (epoll_wait(epoll_fd, &event, 1, 0) > 0) readable(&connections[event.data.u32]);
    for (int i = 0; i < connection_count; i++) {
        if (connections[i].fd >= 0) continue;
        connect_to_server(&connections[i]);
        if (i % PACE == 0) usleep(2000);
    }
}

static void measure(double seconds, long count) {
    open_all();
    passes_begun = reconnects = 0;
    passes_allowed = count;
    server_ticks = ticks_of_server();
    own_cpu = cpu_of_self();
    loop_began = now();
    deadline = loop_began + seconds;
    run(LOOP);
    loop_ended = now();
    server_ticks = ticks_of_server() - server_ticks;
    own_cpu = cpu_of_self() - own_cpu;
}

int main(int argc, char **argv) {
    if (argc != 7) die("load PORT PLAN CONNECTIONS SECONDS COUNT SERVER_PID");
    address.sin_family = AF_INET;
    address.sin_port = htons(atoi(argv[1]));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    read_plan(argv[2]);
    connection_count = atoi(argv[3]);
    server_pid = atol(argv[6]);
    connections = calloc(connection_count, sizeof *connections);
    if (!connections) die("out of memory");
    for (int i = 0; i < connection_count; i++) connections[i].fd = -1;
    epoll_fd = epoll_create1(0);
    run(SETUP);
    measure(atof(argv[4]), atol(argv[5]));
    run(END);
    report();
    return 0;
}
