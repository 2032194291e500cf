/* Rows of `records` as Kafka's record batches: eosdb_batches(the arguments of eosdb_rows). Part of _rows.c.

eosdb/wire/batches.py makes the same bytes from the same rows, but also the checksums of the batches. */

#define BASE64 "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
enum { HEAD = 61, BEFORE_LENGTH = 12, MAGIC = 2, APPENDED = 8, TRANSACTIONAL = 16, CONTROLS = 32 };
static const byte ZEROS[HEAD], MARKER_KEYS[2][4] = {{0, 0, 0, 1}, {0, 0, 0, 0}}; /* COMMIT and ABORT. */
static _Thread_local collected *reading; /* Set while this thread runs `batches`. */

static byte *varint(byte *to, i64 number)
{
    uint64_t left = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
    for (; left > 127; left >>= 7) *to++ = (byte)(left | 128);
    *to++ = (byte)left;
    return to;
}

/* Write the header of the last batch, after its records. */
static void end_batch(const collected *c)
{
    const numbers *n = &c->first;
    i64 attributes = APPENDED * n->type + TRANSACTIONAL * n->transactional + CONTROLS * c->is_control;
    const struct { int size; i64 number; } fields[] = {
        {8, n->offset}, {4, c->used - c->batch - BEFORE_LENGTH}, {4, 0}, {1, MAGIC}, {4, 0}, {2, attributes},
        {4, c->rows - 1}, {8, n->timestamp}, {8, c->latest}, {8, n->producer}, {2, n->epoch}, {4, n->sequence},
        {4, c->rows}};
    byte *to = c->buffer + c->batch;
    for (size_t i = 0; i < sizeof fields / sizeof *fields && c->rows > 0; i++)
        for (int left = fields[i].size; left-- > 0;) *to++ = (byte)(fields[i].number >> 8 * left);
}

/* Convert headers from the stored text (eosdb/log/batch.py: headers_text) to bytes as sent: at most twice its
length. Returns the end of the bytes. Returns NULL for a text with NULs or escapes, or in another form. */
static byte *sent_headers(byte *to, const char *at, i64 length, i64 *count)
{
    if ((i64)strlen(at) != length || length == 0) return NULL;
    for (const char *c = at; *c; c++) if ((signed char)*c < 32 || *c == '\\') return NULL; /* Also not ASCII. */
    for (*count = 0; *at == (*count > 0 ? ',' : '['); ++*count) {
        const char *name = at + 3, *end = strncmp(at + 1, "[\"", 2) == 0 ? strchr(name, '"') : NULL;
        if (end == NULL || end[1] != ',') return NULL;
        to = varint(to, end - name);
        memcpy(to, name, (size_t)(end - name));
        to += end - name;
        at = end + 3;
        if (strncmp(end + 2, "null", 4) == 0) {
            to = varint(to, -1);
            at += 3;
        } else if (end[2] == '"') {
            i64 digits = (i64)strspn(at, BASE64);
            to = varint(to, digits * 3 / 4);
            uint32_t bits = 0;
            for (i64 i = 0; i < digits; i++) {
                bits = bits << 6 | (uint32_t)(strchr(BASE64, at[i]) - BASE64);
                if (i % 4 > 0) *to++ = (byte)(bits >> (6 - 2 * (i % 4)));
            }
            at += digits;
            i64 padding = (i64)strspn(at, "=");
            if (digits % 4 == 1 || padding != (4 - digits % 4) % 4) return NULL;
            at += padding;
            if (*at++ != '"') return NULL;
        } else return NULL;
        if (*at++ != ']') return NULL;
    }
    return *count > 0 && strcmp(at, "]") == 0 ? to : NULL;
}

/* Add the row to a batch. Returns 0 for an unusual row, and if there is no room for another one. */
static int collect_record(collected *c, int argc, value **cells)
{
    numbers n = {0};
    part p[PARTS], control;
    i64 count = 0, size = 0;
    if (c == NULL || !is_usual(c, argc, cells, &n, p, &control)) return 0;
    int is_control = control.length >= 0, is_abort = is(&control, "ABORT");
    if (is_control) {
        p[KEY] = (part){MARKER_KEYS[is_abort], 4}, p[VALUE] = (part){ZEROS, 6};
        n.type = 0, n.transactional = 1, n.sequence = -1;
    }
    /* The values that all records of a batch share. */
    i64 kind[KINDS] = {n.producer, n.epoch, n.transactional, n.type, n.type ? n.timestamp : 0,
                       n.sequence < 0 ? 0 : n.sequence - n.offset, is_control ? n.offset + 1 : 0};
    int begins = c->rows == 0 || memcmp(kind, c->kind, sizeof kind) != 0;
    const numbers *first = begins ? &n : &c->first;
    byte length[10], before[40] = {0}, between[10], after[10];
    byte *headers = c->buffer + c->size - 2 * (p[HEADERS].length > 0 ? p[HEADERS].length : 0), *end = headers;
    if (p[HEADERS].length >= 0) end = sent_headers(headers, (const char *)p[HEADERS].at, p[HEADERS].length, &count);
    if (end == NULL) return 0;
    byte *key = varint(varint(before + 1, n.timestamp - first->timestamp), n.offset - first->offset);
    key = varint(key, p[KEY].length);
    part pieces[] = {{ZEROS, begins ? HEAD : 0}, {length, 0}, {before, key - before}, p[KEY],
                     {between, varint(between, p[VALUE].length) - between}, p[VALUE],
                     {after, varint(after, count) - after}, {headers, end - headers}};
    enum { PIECES = sizeof pieces / sizeof *pieces };
    for (int i = 2; i < PIECES; i++) size += pieces[i].length > 0 ? pieces[i].length : 0;
    pieces[1].length = varint(length, size) - length;
    size += pieces[0].length + pieces[1].length;
    c->is_full = c->used > 0 && c->used + size > lite.value_int64(cells[ROOM]);
    if (c->is_full) return 0;
    if (begins) {
        end_batch(c);
        memcpy(c->kind, kind, sizeof kind);
        c->batch = c->used, c->rows = 0, c->first = n, c->latest = n.timestamp, c->is_control = is_control;
    }
    for (int i = 0; i < PIECES; i++) add(c, pieces[i]);
    if (n.timestamp > c->latest) c->latest = n.timestamp;
    c->rows++, c->next++;
    return 1;
}

static void batches_step(context *to, int argc, value **cells)
{
    if (!collect_record(reading, argc, cells)) lite.result_error(to, "eosdb_batches: the end, or an unusual row", -1);
}

static void batches_final(context *to) {}

/* batches(run): call run(), which executes a statement with eosdb_batches, and return the batches, or None after an
unusual row. run() handles its own errors, and returns None. */
static PyObject *batches(PyObject *self, PyObject *run)
{
    collected c = {0}, *before = reading;
    reading = &c;
    PyObject *result = PyObject_CallNoArgs(run);
    reading = before;
    end_batch(&c);
    if (result != NULL && c.rows > 0 && (c.is_full || c.next == c.end)) {
        Py_DECREF(result);
        result = PyByteArray_FromStringAndSize((const char *)c.buffer, (Py_ssize_t)c.used);
    }
    lite.free(c.buffer);
    return result;
}
