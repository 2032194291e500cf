/* Rows of `records` without Python in between: read into one buffer, written from a prepared batch.

An unusual row raises an SQL error or a Python exception. No user sees it, because `eosdb.log` then does the same
work in Python (decisions/0060).

This module uses the SQLite library that Python's `sqlite3` has loaded, and looks its functions up there. SQLite
passes new connections to this module. So it needs neither SQLite's headers nor Python's internal structures. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef int64_t i64;
typedef unsigned char byte;
typedef struct sqlite3 sqlite3;
typedef struct sqlite3_context context;
typedef struct sqlite3_value value;
typedef void (*step)(context *, int, value **), (*final)(context *), (*release)(void *);

/* -- SQLite's functions ------------------------------------------------------------------------------ */

enum { OK = 0, ERROR = 1, NOMEM = 7, INTEGER = 1, TEXT = 3, BLOB = 4, NULL_ = 5, UTF8 = 1, DIRECT_ONLY = 0x80000 };
#define COPIED ((release)(intptr_t)-1) /* SQLITE_TRANSIENT */
#define KEPT ((release)0) /* SQLITE_STATIC: the memory outlives the statement. */
#define FUNCTIONS(F) \
    F(int, auto_extension, (void (*)(void))) F(int, cancel_auto_extension, (void (*)(void))) \
    F(int, create_function_v2, (sqlite3 *, const char *, int, int, void *, step, step, final, release)) \
    F(int, create_module, (sqlite3 *, const char *, const void *, void *)) \
    F(int, declare_vtab, (sqlite3 *, const char *)) F(void *, aggregate_context, (context *, int)) \
    F(void *, malloc64, (uint64_t)) F(void *, realloc64, (void *, uint64_t)) F(void, free, (void *)) \
    F(int, value_type, (value *)) F(int, value_bytes, (value *)) F(i64, value_int64, (value *)) \
    F(const void *, value_blob, (value *)) F(const byte *, value_text, (value *)) \
    F(void, result_blob64, (context *, const void *, uint64_t, release)) \
    F(void, result_text, (context *, const char *, int, release)) F(void, result_int64, (context *, i64)) \
    F(void, result_error, (context *, const char *, int))
#define MEMBER(type, name, arguments) type(*name) arguments;
#define NAME(type, name, arguments) "sqlite3_" #name,
static struct { FUNCTIONS(MEMBER) } lite;
static const char *const NAMES[] = {FUNCTIONS(NAME)};
enum { NAMES_COUNT = sizeof NAMES / sizeof *NAMES };
_Static_assert(sizeof lite == NAMES_COUNT * sizeof(void *), "pointers alone");

/* -- a record's checksum, as eosdb/log/checksum.py defines it ------------------------------------------ */

#define TIMES 70368744177643LL
#define MARKER 0x155555555555LL
#define UPPER 48
#define LARGE (1LL << 58) /* Sixteen of these add up without overflow. */

typedef struct {
    i64 partition, offset, timestamp, type, producer, transactional, epoch, sequence, round, position;
} numbers;
enum { NUMBERS = sizeof(numbers) / sizeof(i64), KEY = 0, VALUE, HEADERS, PARTS };
typedef struct { const byte *at; i64 length; } part; /* A length of -1 is NULL. */

static i64 adler32(part of)
{
    uint32_t a = 1, b = 0;
    for (i64 left = of.length; left > 0;) {
        i64 some = left < 5552 ? left : 5552; /* The most bytes whose sums fit into 32 bits. */
        for (left -= some; some >= 32; some -= 32, of.at += 32) {
            uint32_t sum = 0, weighted = 0;
            for (uint32_t i = 0; i < 32; i++) {
                sum += of.at[i];
                weighted += (32 - i) * of.at[i];
            }
            b += 32 * a + weighted;
            a += sum;
        }
        for (; some > 0; some--) b += a += *of.at++;
        a %= 65521, b %= 65521;
    }
    return of.length < 0 ? 0 : (i64)b << 16 | a;
}

static i64 content(const part parts[PARTS])
{
    return 3 * adler32(parts[KEY]) + adler32(parts[VALUE]) + 5 * adler32(parts[HEADERS]);
}

static int are_small(const numbers *n)
{
    const i64 *each = (const i64 *)n;
    for (int i = 0; i < NUMBERS; i++) if (each[i] <= -LARGE || each[i] >= LARGE) return 0;
    return n->partition >= 0 && n->partition < 1LL << 38;
}

/* Whether eosdb writes such numbers (eosdb/log/reading/row_check.py: BOUNDS). */
static int are_written(const numbers *n)
{
    return n->offset >= 0 && n->timestamp >= 0 && n->type >> 1 == 0 && n->transactional >> 1 == 0 &&
           n->producer >= -1 && n->epoch >= -1 && n->epoch <= INT16_MAX && n->sequence >= -1 &&
           n->sequence <= INT32_MAX;
}

static i64 given(const numbers *n, int is_data)
{
    return n->partition * 1000003 + n->offset + n->timestamp % TIMES + n->type + n->producer % TIMES +
           n->transactional + is_data;
}

static i64 others(const numbers *n, int control)
{
    i64 sum = (n->epoch + n->sequence + n->round + n->position + control) % 32749;
    return (i64)((uint64_t)sum << UPPER);
}

/* -- reading: eosdb_rows(key, value, headers, control, checksum, room, start, end, numbers ...) --------------- */

/* The numbers of a row in the buffer, which precede its key, value and headers. */
typedef struct { i64 offset, timestamp, type, producer, epoch, sequence, lengths[PARTS]; } row;
enum { SHOWN = 6, KINDS = 7, SMALL = 256 }; /* SHOWN: how many numbers the result has. */
typedef struct {
    byte *buffer;
    i64 rows, used, size, next, end, sizes[PARTS];
    i64 batch, latest, kind[KINDS]; /* For _batches.h: start, latest time and kind of the last batch. */
    numbers first;
    int is_control, is_full;
} collected;
enum { CONTROL = PARTS, CHECKSUM, ROOM, START, END, FIRST, WHOLE = FIRST + NUMBERS, GIVEN = WHOLE - 4 };

static int part_of(value *cell, int type, part *to)
{
    int is = lite.value_type(cell);
    to->at = is != type ? NULL : type == TEXT ? lite.value_text(cell) : lite.value_blob(cell);
    to->length = is != type ? -1 : lite.value_bytes(cell);
    return is == NULL_ || (is == type && (to->at != NULL || to->length == 0));
}

static int is(const part *text, const char *word)
{
    return text->length == (i64)strlen(word) && memcmp(text->at, word, strlen(word)) == 0;
}

static int has_place(collected *c, i64 more)
{
    i64 size = c->used + more;
    if (size > INT32_MAX / 2) return 0;
    if (c->size >= size) return 1;
    size = 2 * size + 4096;
    byte *larger = lite.realloc64(c->buffer, (uint64_t)size);
    if (larger == NULL) return 0;
    c->buffer = larger, c->size = size;
    return 1;
}

static void add(collected *c, part of)
{
    if (of.length > 0) memmove(c->buffer + c->used, of.at, (size_t)of.length); /* The part may lie at the buffer's end. */
    if (of.length > 0) c->used += of.length;
}

/* Whether the row is the next one, has a right checksum, and fits into memory. Returns its numbers and parts. */
static int is_usual(collected *c, int argc, value **cells, numbers *n, part parts[PARTS], part *control)
{
    for (int i = FIRST; i < argc; i++) {
        if (lite.value_type(cells[i]) != INTEGER) return 0;
        ((i64 *)n)[i - FIRST] = lite.value_int64(cells[i]);
    }
    if (c->buffer == NULL) {
        c->next = lite.value_int64(cells[START]);
        c->end = lite.value_int64(cells[END]);
    }
    if (!are_small(n) || !are_written(n) || n->offset != c->next || lite.value_type(cells[CHECKSUM]) != INTEGER ||
        !part_of(cells[KEY], BLOB, &parts[KEY]) || !part_of(cells[VALUE], BLOB, &parts[VALUE]) ||
        !part_of(cells[HEADERS], TEXT, &parts[HEADERS]) || !part_of(cells[CONTROL], TEXT, control))
        return 0;
    uint64_t sum = (uint64_t)lite.value_int64(cells[CHECKSUM]);
    int is_data = control->length < 0, kind = is(control, "COMMIT") + 2 * is(control, "ABORT");
    if (!is_data && kind == 0) return 0;
    if (argc == WHOLE) sum -= (uint64_t)others(n, kind);
    else sum &= (1ULL << UPPER) - 1;
    if (sum != (uint64_t)(given(n, is_data) + (is_data ? content(parts) : MARKER))) return 0;
    i64 size = 0;
    for (int i = 0; i < PARTS; i++) {
        if (!is_data && parts[i].length >= 0) return 0;
        if (parts[i].length > 0) size += parts[i].length;
    }
    if (size > lite.value_int64(cells[ROOM])) return c->is_full = c->used > 0, 0;
    return has_place(c, SMALL + size + (parts[HEADERS].length > 0 ? parts[HEADERS].length : 0));
}

/* Add the row to the buffer. Returns 0 for an unusual row. */
static int collect(collected *c, int argc, value **cells)
{
    numbers n = {0};
    part parts[PARTS], control;
    if (!is_usual(c, argc, cells, &n, parts, &control)) return 0;
    c->next++;
    if (control.length >= 0) return 1;
    row r = {n.offset, n.timestamp, n.type, n.producer, n.epoch, n.sequence,
             {parts[KEY].length, parts[VALUE].length, parts[HEADERS].length}};
    add(c, (part){(byte *)&r, sizeof r});
    c->rows++;
    i64 room = lite.value_int64(cells[ROOM]);
    for (int i = 0; i < PARTS; i++) {
        add(c, parts[i]);
        if (r.lengths[i] > 0) c->sizes[i] += r.lengths[i];
        room -= c->sizes[i];
    }
    return room >= 0;
}

static void rows_step(context *to, int argc, value **cells)
{
    collected *c = lite.aggregate_context(to, sizeof *c);
    if (c == NULL || !collect(c, argc, cells)) lite.result_error(to, "eosdb_rows: an unusual row", -1);
}

/* The result has an int64 column for each number, and three buffers of Arrow for each part: the bits of values that
are not NULL, the ends of the values as int32, and the bytes. Each begins at a multiple of eight bytes. */
typedef struct { i64 rows, size, numbers, parts[PARTS][3]; } head; /* Offsets of the buffers. */
#define PADDED(size) (((size) + 7) & ~7LL)

static head layout(i64 rows, const i64 sizes[PARTS])
{
    head h = {rows, sizeof h, sizeof h, {{0}}};
    h.size += SHOWN * 8 * rows;
    for (int i = 0; i < PARTS; i++) {
        h.parts[i][0] = h.size;
        h.parts[i][1] = h.parts[i][0] + PADDED((rows + 7) / 8);
        h.parts[i][2] = h.parts[i][1] + PADDED(4 * (rows + 1));
        h.size = h.parts[i][2] + PADDED(sizes[i]);
    }
    return h;
}

static void rows_final(context *to)
{
    collected *c = lite.aggregate_context(to, 0);
    if (c == NULL) return; /* Without rows, NULL. */
    head h = layout(c->rows, c->sizes);
    byte *result = c->next == c->end ? lite.malloc64((uint64_t)h.size) : NULL;
    const byte *from = c->buffer;
    int32_t ends[PARTS] = {0};
    if (result != NULL) memcpy(memset(result, 0, (size_t)h.size), &h, sizeof h);
    for (i64 i = 0; i < c->rows && result != NULL; i++) {
        row r;
        memcpy(&r, from, sizeof r);
        from += sizeof r;
        for (int k = 0; k < SHOWN; k++) memcpy(result + h.numbers + 8 * (k * c->rows + i), (i64 *)&r + k, 8);
        for (int k = 0; k < PARTS; k++) {
            if (r.lengths[k] >= 0) result[h.parts[k][0] + i / 8] |= (byte)(1 << i % 8);
            if (r.lengths[k] > 0) {
                memcpy(result + h.parts[k][2] + ends[k], from, (size_t)r.lengths[k]);
                from += r.lengths[k];
                ends[k] += (int32_t)r.lengths[k];
            }
            memcpy(result + h.parts[k][1] + 4 * (i + 1), &ends[k], 4);
        }
    }
    lite.free(c->buffer), c->buffer = NULL;
    if (result != NULL) lite.result_blob64(to, result, (uint64_t)h.size, lite.free);
}

/* -- proving: eosdb_proof(the arguments of eosdb_rows with all numbers) ------------------------------------------ */

typedef struct { collected c; i64 latest; uint32_t crc; } proof; /* `c` has the numbers of the first row. */

static uint32_t crcs[8][256]; /* The CRC-32 of each byte with up to seven zeros behind it. */

static void fill_crcs(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xEDB88320 & -(crc & 1));
        crcs[0][i] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++) crcs[k][i] = crcs[k - 1][i] >> 8 ^ crcs[0][crcs[k - 1][i] & 255];
}

/* Whether the row is the next one of a batch, with the values that all rows of a batch share. */
static int prove(proof *p, int argc, value **cells)
{
    numbers n = {0}, *first = &p->c.first;
    part parts[PARTS], control;
    if (!is_usual(&p->c, argc, cells, &n, parts, &control) || control.length >= 0 || n.round >> 27) return 0;
    uint64_t sum = (uint64_t)lite.value_int64(cells[CHECKSUM]) - (uint64_t)given(&n, 1) - (uint64_t)others(&n, 0);
    n.sequence += n.round << 31; /* Below zero in a batch without sequences. */
    if (p->c.rows == 0) *first = n, p->latest = n.timestamp, p->crc = ~0U;
    if (n.position != first->position || n.producer != first->producer || n.epoch != first->epoch ||
        n.transactional != first->transactional ||
        n.sequence != first->sequence + (first->sequence < 0 ? 0 : p->c.rows))
        return 0;
    for (int i = 0; i < 8; i++) p->crc = p->crc >> 8 ^ crcs[0][(p->crc ^ sum >> 8 * i) & 255];
    if (n.timestamp > p->latest) p->latest = n.timestamp;
    p->c.rows++, p->c.next++;
    return 1;
}

static void proof_step(context *to, int argc, value **cells)
{
    proof *p = lite.aggregate_context(to, sizeof *p);
    if (p == NULL || !prove(p, argc, cells)) lite.result_error(to, "eosdb_proof: an unusual row", -1);
}

/* The result is a text with the batch's numbers; NULL if rows are missing. */
static void proof_final(context *to)
{
    char text[200];
    proof *p = lite.aggregate_context(to, 0);
    if (p == NULL) return;
    const i64 all[] = {p->c.first.position, p->c.first.producer, p->c.first.epoch, p->c.first.sequence,
                       p->c.first.transactional, p->latest, (i64)(uint32_t)~p->crc};
    int used = 0;
    for (int i = 0; i < 7; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, i ? " %lld" : "%lld", (long long)all[i]);
    if (p->c.rows > 0 && p->c.next == p->c.end) lite.result_text(to, text, used, COPIED);
    lite.free(p->c.buffer), p->c.buffer = NULL;
}

/* -- the checksum of another row, as eosdb/store/schema/row_checksum.py defines it -------------------------- */

static uint32_t crc_of(uint32_t crc, const char *text, Py_ssize_t length)
{
    const byte *at = (const byte *)text;
    for (; length >= 8; length -= 8, at += 8) {
        crc ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        crc = crcs[7][crc & 255] ^ crcs[6][crc >> 8 & 255] ^ crcs[5][crc >> 16 & 255] ^ crcs[4][crc >> 24] ^
              crcs[3][at[4]] ^ crcs[2][at[5]] ^ crcs[1][at[6]] ^ crcs[0][at[7]];
    }
    for (; length > 0; length--) crc = crc >> 8 ^ crcs[0][(crc ^ *at++) & 255];
    return crc;
}

/* Writes the number in front of `first`, and returns where it begins. */
static char *decimal(char *first, i64 number)
{
    uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do *--first = (char)('0' + left % 10); while (left /= 10);
    if (number < 0) *--first = '-';
    return first;
}

/* Adds a column to a row's checksum. TypeError for no text, number or None; OverflowError for a large number. */
static int add_column(uint32_t *crc, PyObject *column, int is_first)
{
    char digits[24];
    const char *text = "None";
    Py_ssize_t length = 4;
    if (PyUnicode_CheckExact(column)) {
        if ((text = PyUnicode_AsUTF8AndSize(column, &length)) == NULL) return 0;
    } else if (PyLong_CheckExact(column)) {
        i64 number = PyLong_AsLongLong(column);
        if (number == -1 && PyErr_Occurred()) return 0;
        text = decimal(digits + sizeof digits, number), length = digits + sizeof digits - text;
    } else if (column != Py_None)
        return PyErr_SetString(PyExc_TypeError, "expected text, a number or None"), 0;
    *crc = crc_of(is_first ? *crc : crc_of(*crc, "\x1f", 1), text, length);
    return 1;
}

/* row_checksum(columns ...) */
static PyObject *row_checksum(PyObject *self, PyObject *const *columns, Py_ssize_t count)
{
    uint32_t crc = ~0U;
    for (Py_ssize_t i = 0; i < count; i++) if (!add_column(&crc, columns[i], i == 0)) return NULL;
    return PyLong_FromUnsignedLong((uint32_t)~crc);
}

/* cells(rows, null, is_checked): the cells of all rows, with `null` for None, each row with its checksum at the end. */
static PyObject *cells(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *all = count == 3 ? PyList_New(0) : PyErr_Format(PyExc_TypeError, "expected three arguments");
    int is_checked = all == NULL ? 0 : PyObject_IsTrue(args[2]);
    for (Py_ssize_t i = 0; all != NULL && i < PyList_Size(args[0]); i++) {
        PyObject *row = PySequence_Tuple(PyList_GetItem(args[0], i)), *sum = NULL;
        uint32_t crc = ~0U;
        int is_right = row != NULL;
        for (Py_ssize_t k = 0; is_right && k < PyTuple_Size(row); k++) {
            PyObject *cell = PyTuple_GetItem(row, k);
            is_right = (!is_checked || add_column(&crc, cell, k == 0)) &&
                       PyList_Append(all, cell == Py_None ? args[1] : cell) == 0;
        }
        if (is_right && is_checked)
            is_right = (sum = PyLong_FromUnsignedLong((uint32_t)~crc)) != NULL && PyList_Append(all, sum) == 0;
        Py_XDECREF(sum);
        Py_XDECREF(row);
        if (!is_right) Py_CLEAR(all);
    }
    return all;
}

/* -- what was read, as Python's values ------------------------------------------------------------------- */

/* Find a part of a row. Returns 0 if damaged bytes would place it outside of the buffer. */
static int part_at(const byte *at, const head *h, int k, i64 i, part *to)
{
    int32_t ends[2];
    memcpy(ends, at + h->parts[k][1] + 4 * i, sizeof ends);
    if (ends[0] < 0 || ends[1] < ends[0] || ends[1] > h->size - h->parts[k][2]) return 0;
    *to = (part){at + h->parts[k][2] + ends[0], at[h->parts[k][0] + i / 8] >> i % 8 & 1 ? ends[1] - ends[0] : -1};
    return 1;
}

enum { COLUMNS = 6 };

/* columns(rows): offsets, timestamps, timestamp types, keys, values, and headers as stored. */
static PyObject *columns(PyObject *self, PyObject *bytes)
{
    char *at;
    Py_ssize_t size;
    head h = {0}, expected = {0};
    i64 sizes[PARTS];
    PyObject *all, *column[COLUMNS], *before[3] = {NULL};
    if (PyBytes_AsStringAndSize(bytes, &at, &size) < 0) return NULL;
    if (size >= (Py_ssize_t)sizeof h) memcpy(&h, at, sizeof h);
    for (int k = 0; k < PARTS; k++) {
        sizes[k] = (i64)((uint64_t)(k < 2 ? h.parts[k + 1][0] : h.size) - (uint64_t)h.parts[k][2]);
        if (sizes[k] < 0 || sizes[k] > size) h.rows = -1;
    }
    if (h.rows >= 0 && h.rows < size) expected = layout(h.rows, sizes);
    if (h.size != size || memcmp(&h, &expected, sizeof h) != 0)
        return PyErr_Format(PyExc_ValueError, "expected what eosdb_rows returned");
    if ((all = PyTuple_New(COLUMNS)) == NULL) return NULL;
    for (int k = 0; k < COLUMNS; k++) {
        column[k] = PyTuple_New((Py_ssize_t)h.rows);
        if (column[k] == NULL || PyTuple_SetItem(all, k, column[k]) < 0) goto failed;
    }
    for (i64 i = 0; i < h.rows; i++) {
        for (int k = 0; k < COLUMNS; k++) {
            PyObject *cell = NULL;
            if (k < 3) {
                i64 is[2];
                memcpy(is, at + h.numbers + 8 * (k * h.rows + i - (i > 0)), i > 0 ? 16 : 8);
                /* Timestamps and types are often equal to the previous row's. */
                cell = i > 0 && is[0] == is[1] ? Py_NewRef(before[k]) : PyLong_FromLongLong(is[i > 0]);
                before[k] = cell;
            } else {
                part p;
                if (!part_at((byte *)at, &h, k - 3, i, &p)) PyErr_SetString(PyExc_ValueError, "a row is cut off");
                else if (p.length < 0) cell = Py_NewRef(Py_None);
                else if (k < 5) cell = PyBytes_FromStringAndSize((const char *)p.at, (Py_ssize_t)p.length);
                else cell = PyUnicode_DecodeUTF8((const char *)p.at, (Py_ssize_t)p.length, NULL);
            }
            if (cell == NULL || PyTuple_SetItem(column[k], (Py_ssize_t)i, cell) < 0) goto failed;
        }
    }
    return all;
failed:
    Py_DECREF(all);
    return NULL;
}

/* records(class, topic, partition, columns ...): an object of the class, a subclass of tuple, for each record. */
static PyObject *records(PyObject *self, PyObject *args)
{
    PyObject *type, *fixed[2], *from[COLUMNS], *all[COLUMNS] = {NULL}, *result = NULL, *empty = PyTuple_New(0);
    int is_right, has_headers = 0;
    allocfunc allocate;
    Py_ssize_t count = 0;
    if (empty == NULL || !PyArg_ParseTuple(args, "O!OOOOOOOO", &PyType_Type, &type, &fixed[0], &fixed[1], &from[0],
                                           &from[1], &from[2], &from[3], &from[4], &from[5]))
        goto end;
    is_right = PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type);
    allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc);
    for (int k = 0; k < COLUMNS; k++) {
        if ((all[k] = PySequence_Tuple(from[k])) == NULL) goto end;
        Py_ssize_t size = PyTuple_Size(all[k]);
        if (k == 0) count = size;
        has_headers = size > 0;
        is_right = is_right && (size == count || (k == 5 && !has_headers));
    }
    result = is_right ? PyList_New(count) : PyErr_Format(PyExc_ValueError, "expected columns of one length");
    for (Py_ssize_t i = 0; i < count && result != NULL; i++) {
        PyObject *one = allocate((PyTypeObject *)type, COLUMNS + 2);
        for (int k = 0; k < COLUMNS + 2 && one != NULL; k++) {
            PyObject *cell = k < 2 ? fixed[k] : k == 7 && !has_headers ? empty : PyTuple_GetItem(all[k - 2], i);
            PyTuple_SetItem(one, k, Py_NewRef(cell));
        }
        if (one == NULL || PyList_SetItem(result, i, one) < 0) Py_CLEAR(result);
    }
end:
    for (int k = 0; k < COLUMNS; k++) Py_XDECREF(all[k]);
    Py_XDECREF(empty);
    return result;
}

/* -- writing: the table-valued eosdb_batch has the rows of the batch that this thread inserts --------------- */

typedef struct { part parts[PARTS]; i64 timestamp, checksum; } written;
typedef struct { const written *rows; i64 count, offset, sequence; } batch;
static _Thread_local batch current;
typedef struct { const void *module; int references; char *message; } table; /* SQLite's own members. */
typedef struct { table *of; i64 at; } cursor;

static int make(void *to, uint64_t size)
{
    void *memory = lite.malloc64(size);
    *(void **)to = memory == NULL ? NULL : memset(memory, 0, size);
    return memory == NULL ? NOMEM : OK;
}

static int batch_connect(sqlite3 *db, void *data, int argc, const char *const *argv, table **to, char **message)
{
    const char *shape = "CREATE TABLE x(\"offset\", sequence, timestamp, checksum, key, value, headers)";
    return lite.declare_vtab(db, shape) == OK ? make(to, sizeof **to) : ERROR;
}

static int batch_column(cursor *c, context *to, int column)
{
    if (c->at >= current.count) return ERROR;
    const written *w = &current.rows[c->at];
    const part *p = column < 4 ? NULL : &w->parts[column - 4];
    if (column == 0) lite.result_int64(to, current.offset + c->at);
    else if (column == 1) lite.result_int64(to, current.sequence < 0 ? -1 : current.sequence + c->at);
    else if (column == 2) lite.result_int64(to, w->timestamp);
    else if (column == 3) lite.result_int64(to, w->checksum);
    else if (p->length >= 0 && column == 6) lite.result_text(to, (const char *)p->at, (int)p->length, KEPT);
    else if (p->length >= 0) lite.result_blob64(to, p->at, (uint64_t)p->length, KEPT);
    return OK;
}

static int batch_best_index(table *of, void *info) { return OK; }
static int batch_open(table *of, cursor **to) { return make(to, sizeof **to); }
static int batch_release(void *of) { return lite.free(of), OK; }
static int batch_filter(cursor *c, int number, const char *text, int argc, value **argv) { return c->at = 0, OK; }
static int batch_next(cursor *c) { return c->at++, OK; }
static int batch_eof(cursor *c) { return c->at >= current.count; }
static int batch_rowid(cursor *c, i64 *to) { return *to = c->at, OK; }

static const struct {
    int version;
    void *create, *connect, *best_index, *disconnect, *destroy, *open, *close, *filter, *next, *eof, *column, *rowid;
    void *others[12];
} BATCH = {0, NULL, batch_connect, batch_best_index, batch_release, NULL, batch_open, batch_release, batch_filter,
           batch_next, batch_eof, batch_column, batch_rowid, {NULL}};

static int part_in(PyObject *cell, int is_text, part *to)
{
    const char *at = NULL;
    Py_ssize_t size = -1;
    if (cell == Py_None) at = "";
    else if (is_text) at = PyUnicode_AsUTF8AndSize(cell, &size);
    else if (PyBytes_CheckExact(cell)) at = PyBytes_AsString(cell), size = PyBytes_Size(cell);
    else PyErr_SetString(PyExc_TypeError, "expected bytes or None");
    if (size > INT32_MAX) at = (char *)PyErr_Format(PyExc_OverflowError, "a value is too large");
    *to = (part){(const byte *)at, size};
    return at != NULL;
}

/* examined(payload, timestamps): the bytes of keys and values, whether a key is missing, the index of the latest
timestamp, whether all are the same, and the records' content checksums as int64. Python code does not run here. */
static PyObject *examined(PyObject *self, PyObject *args)
{
    PyObject *payload, *times, *result = NULL;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &payload, &PyList_Type, &times)) return NULL;
    Py_ssize_t count = PyList_Size(times), newest = 0;
    if (PyList_Size(payload) != 2 * count) return PyErr_Format(PyExc_TypeError, "expected columns of one length");
    i64 *sums = PyMem_Calloc((size_t)count + 1, sizeof *sums), size = 0, first = -1, latest = -1;
    int is_right = sums != NULL, without_key = 0, is_one = 1;
    for (Py_ssize_t i = 0; is_right && i < count; i++) {
        PyObject *time = PyList_GetItem(times, i);
        i64 now = PyLong_CheckExact(time) ? PyLong_AsLongLong(time) : -1;
        part p[PARTS] = {{NULL, -1}, {NULL, -1}, {NULL, -1}};
        is_right = now >= 0 && part_in(PyList_GetItem(payload, 2 * i), 0, &p[KEY]) &&
                   part_in(PyList_GetItem(payload, 2 * i + 1), 0, &p[VALUE]);
        if (!is_right) break;
        sums[i] = content(p);
        without_key |= p[KEY].length < 0;
        size += (p[KEY].length > 0 ? p[KEY].length : 0) + (p[VALUE].length > 0 ? p[VALUE].length : 0);
        if (i == 0) first = now;
        if (now > latest) latest = now, newest = i;
        is_one &= now == first;
    }
    if (is_right)
        result = Py_BuildValue("LOnOy#", size, without_key ? Py_True : Py_False, newest, is_one ? Py_True : Py_False,
                               (const char *)sums, count * (Py_ssize_t)sizeof *sums);
    else if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "expected a timestamp");
    PyMem_Free(sums);
    return result;
}

/* Fill the row of a record. `n` has its numbers, except the timestamp. */
static int write_row(written *w, numbers *n, PyObject *key, PyObject *value, PyObject *headers, PyObject *timestamp,
                     i64 sum)
{
    n->timestamp = w->timestamp = PyLong_AsLongLong(timestamp);
    w->checksum = sum;
    return !PyErr_Occurred() && part_in(key, 0, &w->parts[KEY]) && part_in(value, 0, &w->parts[VALUE]) &&
           part_in(headers, 1, &w->parts[HEADERS]) && are_small(n) &&
           !__builtin_add_overflow(w->checksum, given(n, 1), &w->checksum) &&
           !__builtin_add_overflow(w->checksum, others(n, 0), &w->checksum);
}

/* inserted(run, payload, headers, timestamps, sums, numbers): calls run(), which reads the batch in eosdb_batch. */
static PyObject *inserted(PyObject *self, PyObject *args)
{
    PyObject *run, *from[3], *all[3] = {NULL}, *result = NULL;
    written *rows = NULL;
    Py_buffer sums;
    numbers n;
    if (!PyArg_ParseTuple(args, "OOOOy*(LLLLLLLLLL)", &run, &from[0], &from[1], &from[2], &sums, &n.partition,
                          &n.offset, &n.timestamp, &n.type, &n.producer, &n.transactional, &n.epoch, &n.sequence,
                          &n.round, &n.position))
        return NULL;
    /* Copied to tuples, which no other thread can change while the GIL is free. */
    for (int k = 0; k < 3; k++) if ((all[k] = PySequence_Tuple(from[k])) == NULL) goto end;
    Py_ssize_t headers = PyTuple_Size(all[1]), times = PyTuple_Size(all[2]), count = sums.len / (Py_ssize_t)sizeof(i64);
    if (PyTuple_Size(all[0]) != 2 * count || (headers && headers != count) || (times != 1 && times != count))
        PyErr_SetString(PyExc_ValueError, "expected columns of one length");
    else if ((rows = PyMem_Calloc((size_t)count + 1, sizeof *rows)) == NULL)
        PyErr_NoMemory();
    if (rows == NULL) goto end;
    batch before = current, now = {rows, count, n.offset, n.sequence};
    for (Py_ssize_t i = 0; i < count; i++, n.offset++, n.sequence += n.sequence >= 0) {
        if (!write_row(&rows[i], &n, PyTuple_GetItem(all[0], 2 * i), PyTuple_GetItem(all[0], 2 * i + 1),
                       headers ? PyTuple_GetItem(all[1], i) : Py_None, PyTuple_GetItem(all[2], times > 1 ? i : 0),
                       ((const i64 *)sums.buf)[i])) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a number is too large");
            goto end;
        }
    }
    current = now;
    result = PyObject_CallNoArgs(run);
    current = before;
end:
    PyMem_Free(rows);
    PyBuffer_Release(&sums);
    for (int k = 0; k < 3; k++) Py_XDECREF(all[k]);
    return result;
}

#include "_batches.h"

/* -- connections -------------------------------------------------------------------------------------------- */

static _Thread_local int opening;
static int all_opening; /* Changed with the GIL held. */

static int extend(sqlite3 *db, char **message, const void *api)
{
    static const struct { const char *name; int arguments; step step; final final; } of[] = {
        {"eosdb_rows", GIVEN, rows_step, rows_final}, {"eosdb_rows", WHOLE, rows_step, rows_final},
        {"eosdb_proof", WHOLE, proof_step, proof_final}, {"eosdb_batches", WHOLE, batches_step, batches_final}};
    int failed = OK;
    for (int i = 0; i < 4 && opening && !failed; i++)
        failed = lite.create_function_v2(db, of[i].name, of[i].arguments, UTF8 | DIRECT_ONLY, NULL, NULL, of[i].step,
                                         of[i].final, NULL);
    return failed || !opening ? failed : lite.create_module(db, "eosdb_batch", &BATCH, NULL);
}

/* opened(connect): calls connect(). Only connections that it opens get the functions and the table above. */
static PyObject *opened(PyObject *self, PyObject *connect)
{
    if (lite.auto_extension == NULL) return PyErr_Format(PyExc_RuntimeError, "find SQLite first");
    if (all_opening == 0 && lite.auto_extension((void (*)(void))extend) != OK) return PyErr_NoMemory();
    all_opening++, opening++;
    PyObject *result = PyObject_CallNoArgs(connect);
    opening--;
    if (--all_opening == 0) lite.cancel_auto_extension((void (*)(void))extend);
    return result;
}

/* find(file): look SQLite's functions up in this library, or in the program. Returns the first missing one, or None. */
static PyObject *find(PyObject *self, PyObject *args)
{
    void *at[NAMES_COUNT];
    const char *file;
    if (!PyArg_ParseTuple(args, "z", &file)) return NULL;
    void *library = dlopen(file, file == NULL ? RTLD_LAZY : RTLD_LAZY | RTLD_NOLOAD);
    for (int i = 0; i < NAMES_COUNT; i++)
        if (library == NULL || (at[i] = dlsym(library, NAMES[i])) == NULL) return PyUnicode_FromString(NAMES[i]);
    memcpy(&lite, at, sizeof lite);
    Py_RETURN_NONE;
}

/* changed(files): whether a name in the dictionary leads to another file than its device and inode, or to none.
Keeps the GIL: the names are in the cache. */
static PyObject *changed(PyObject *self, PyObject *files)
{
    PyObject *name, *path, *file;
    struct stat found;
    for (Py_ssize_t at = 0; PyDict_Next(files, &at, &name, &file);) {
        if (!PyUnicode_FSConverter(name, &path)) return NULL;
        int is_changed = stat(PyBytes_AsString(path), &found) != 0;
        Py_DECREF(path);
        is_changed = is_changed || found.st_dev != PyLong_AsUnsignedLongLong(PyTuple_GetItem(file, 0)) ||
                     found.st_ino != PyLong_AsUnsignedLongLong(PyTuple_GetItem(file, 1));
        if (is_changed) return PyErr_Occurred() ? NULL : Py_NewRef(Py_True);
    }
    return Py_NewRef(Py_False);
}

#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL, NULL
static PyMethodDef METHODS[] = {
    {"columns", columns, METH_O, NULL}, {"batches", batches, METH_O, NULL}, {"records", records, METH_VARARGS, NULL},
    {"examined", examined, METH_VARARGS, NULL}, {"inserted", inserted, METH_VARARGS, NULL},
    {"changed", changed, METH_O, NULL}, {"row_checksum", FAST(row_checksum)}, {"cells", FAST(cells)},
    {"opened", opened, METH_O, NULL}, {"find", find, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL},
};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_rows", NULL, -1, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__rows(void) { return fill_crcs(), PyModule_Create(&MODULE); }
