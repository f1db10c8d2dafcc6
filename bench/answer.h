/* One HTTP answer as its bytes arrive, with a Content-Length or in chunks. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { FIRST_BUFFER = 1 << 16 };

typedef struct {
    char *buffer;
    size_t filled, size;
    size_t head;   /* where the body begins; 0 while the headers are incomplete */
    size_t body;   /* bytes of body so far, without the marks between chunks */
    size_t raw;    /* chunked: how far the raw bytes are read */
    size_t chunk;  /* chunked: bytes of the current chunk that are still to come */
    long length;   /* Content-Length, or -1 for chunked */
    int status, closes;
} Answer;

static char *body_of(const Answer *a) { return a->buffer + a->head; }

static void expect_answer(Answer *a) {
    a->filled = a->head = a->raw = a->body = a->chunk = 0;
    a->status = a->closes = 0;
    a->length = -1;
}

static int make_room(Answer *a) {
    if (a->size - a->filled >= FIRST_BUFFER / 2) return 1;
    a->size = a->size ? a->size * 2 : FIRST_BUFFER;
    a->buffer = realloc(a->buffer, a->size + 1);
    return a->buffer != NULL;
}

static int read_head(Answer *a) {
    char *end = memmem(a->buffer, a->filled, "\r\n\r\n", 4);
    if (!end) return 0;
    *end = 0;
    a->head = a->raw = end + 4 - a->buffer;
    a->status = a->filled > 12 ? atoi(a->buffer + 9) : 0;
    char *length = strcasestr(a->buffer, "\r\ncontent-length:");
    if (length) a->length = atol(length + 17);
    a->closes = strcasestr(a->buffer, "\r\nconnection: close") != NULL;
    return 1;
}

/* Takes the marks between chunks out, in place; says whether the last chunk is there. */
static int read_chunks(Answer *a) {
    for (;;) {
        size_t here = a->filled - a->raw;
        if (a->chunk) {
            size_t part = here < a->chunk ? here : a->chunk;
            size_t text = a->chunk > 2 ? (part < a->chunk - 2 ? part : a->chunk - 2) : 0;
            memmove(body_of(a) + a->body, a->buffer + a->raw, text);
            a->body += text;
            a->raw += part;
            a->chunk -= part;
            if (a->chunk) return 0;
            continue;
        }
        char *line = a->buffer + a->raw, *end = memmem(line, here, "\r\n", 2);
        if (!end) return 0;
        size_t length = strtoul(line, NULL, 16);
        if (!length) return here >= (size_t)(end - line) + 4;
        a->raw += end + 2 - line;
        a->chunk = length + 2; /* with the line break after it */
    }
}

/* Takes the bytes that were just read into the buffer; says whether the answer is complete. */
static int got_more(Answer *a, size_t count) {
    a->filled += count;
    a->buffer[a->filled] = 0;
    if (!a->head && !read_head(a)) return 0;
    if (a->length < 0) return read_chunks(a);
    a->body = a->filled - a->head;
    return a->body >= (size_t)a->length;
}
