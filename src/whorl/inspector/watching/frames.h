/* The stack of a thread, read from outside: without the interpreter's lock, and without the thread's help.

   Facts. The frames of a thread are a list in memory, which begins in its thread state. While the thread
   runs, any of it may be changed, freed or given back to the system at any moment. A signal's handler in
   the thread itself is no way out: it comes between any two instructions, in the middle of such a change,
   too. And each signal ends some system calls, even if its handler does nothing.

   So nothing here follows a pointer. `whorl_peek` asks the kernel for a copy of memory of this process.
   Where there is none, it says so. All that is read is a copy: a length, an index or a type in it may be
   nonsense, is compared with its bounds, and stays as it was found. So no state of the thread can crash
   this.

   A copy may still be of several moments. So frames and their code are read twice, the names and lines in
   between. Both readings have to agree, byte for byte. A thread that is in one call of C code all the time,
   asleep or not, changes none of them, and keeps the code alive. Then the stack is exact. If it runs
   Python's code, the readings differ nearly always, and there is no stack. Two readings that agree by
   chance give a line of code that has run, and nothing worse.

   The layout of a frame is that of the headers that this was compiled with. `stacks.are_read_rightly`
   compares a stack with what Python says of it, before any other is read. */
#pragma once
#include <Python.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#ifdef Py_BUILD_CORE
#define WHORL_IN_CORE
#else
#define Py_BUILD_CORE 1
#endif
#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_interpframe_structs.h>
#else
#include <internal/pycore_frame.h>
#endif
#ifndef WHORL_IN_CORE
#undef Py_BUILD_CORE
#endif

#define WHORL_DEPTH 120         /* the innermost frames, those of the interpreter's own among them */
#define WHORL_STACK_SIZE 16384  /* of the text */
#define WHORL_NAME_LENGTH 1000  /* of a file or a function; the rest is cut off */
#define WHORL_BLOCK 4096
#define WHORL_MOST_BLOCKS 1024  /* of the table of lines of one code object */
#define WHORL_MOST_THREADS 10000
#define WHORL_TRIES 3
#define WHORL_CODE_BEGINS offsetof(PyObject, ob_type) /* Any thread may change the references before it. */
#if PY_VERSION_HEX >= 0x030D0000
#define WHORL_INSTRUCTION instr_ptr
#define WHORL_EXECUTABLE f_executable
#else
#define WHORL_INSTRUCTION prev_instr
#define WHORL_EXECUTABLE f_code
#endif

typedef struct {
    int count;
    struct {
        struct _PyInterpreterFrame frame;
        PyCodeObject code; /* zeros if the frame is the interpreter's own */
        const char *address;
    } calls[WHORL_DEPTH];
} whorl_chain;

typedef struct {
    char *next, *end;
} whorl_text;

/* Copy memory of this process; return whether all of it was there. A plain load would end the process. */
static int whorl_peek(const void *address, void *into, size_t size) {
    struct iovec here = {into, size}, there = {(void *)address, size};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)size;
}

/* Return the innermost frame of a thread, by the kernel's number of it; NULL if there is none. The thread may
   end meanwhile. Python's functions need the interpreter's lock. The main interpreter's state is never
   freed. */
static const void *whorl_current_frame(int thread) {
    PyInterpreterState *interpreter = PyInterpreterState_Main();
    const PyThreadState *next = interpreter ? PyInterpreterState_ThreadHead(interpreter) : NULL;
    int seen;
    for (seen = 0; next != NULL && seen < WHORL_MOST_THREADS; seen++) {
        PyThreadState state;
        if (!whorl_peek(next, &state, offsetof(PyThreadState, native_thread_id) + sizeof(unsigned long)))
            return NULL;
        if (state.native_thread_id == (unsigned long)thread) {
#if PY_VERSION_HEX >= 0x030D0000
            return state.current_frame;
#else
            _PyCFrame entry;
            return whorl_peek(state.cframe, &entry, sizeof entry) ? entry.current_frame : NULL;
#endif
        }
        next = state.next;
    }
    return NULL;
}

/* Read the frames and the code of a thread; return whether there are any. As above. */
static int whorl_read_chain(int thread, whorl_chain *chain) {
    const void *frame = whorl_current_frame(thread);
    memset(chain, 0, sizeof *chain);
    while (frame != NULL && chain->count < WHORL_DEPTH) {
        struct _PyInterpreterFrame *copy = &chain->calls[chain->count].frame;
        PyCodeObject *code = &chain->calls[chain->count].code;
        uintptr_t address = 0;
        if (!whorl_peek(frame, copy, offsetof(struct _PyInterpreterFrame, localsplus)))
            return 0;
        /* The lowest bits of a reference on the stack are no part of the address. */
        memcpy(&address, &copy->WHORL_EXECUTABLE, sizeof address);
        address &= ~(uintptr_t)3;
        chain->calls[chain->count].address = (const char *)address;
        if ((unsigned char)copy->owner <= FRAME_OWNED_BY_FRAME_OBJECT &&
            (!whorl_peek((const char *)address + WHORL_CODE_BEGINS, (char *)code + WHORL_CODE_BEGINS,
                         offsetof(PyCodeObject, co_code_adaptive) - WHORL_CODE_BEGINS) ||
             Py_TYPE((PyObject *)code) != &PyCode_Type))
            return 0;
        chain->count++;
        frame = copy->previous;
    }
    return chain->count > 0;
}

/* Append a character, as `faulthandler` does where it would end a line or is half of a pair. The text stays
   in its bounds. */
static void whorl_put_character(whorl_text *text, Py_UCS4 character) {
    unsigned char *next = (unsigned char *)text->next;
    if (text->end - text->next < 8) {
        text->next = text->end;
    } else if (character < 0x20 || (character >= 0x7F && character < 0xA0)) {
        text->next += sprintf(text->next, "\\x%02x", (unsigned)character);
    } else if (character < 0x80) {
        *text->next++ = (char)character;
    } else if ((character >= 0xD800 && character < 0xE000) || character > 0x10FFFF) {
        text->next += sprintf(text->next, "\\u%04x", (unsigned)character & 0xFFFF);
    } else {
        int more = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3, left = more;
        static const unsigned char first[] = {0, 0xC0, 0xE0, 0xF0};
        *next++ = (unsigned char)(first[more] | character >> 6 * more);
        while (left-- > 0)
            *next++ = (unsigned char)(0x80 | (character >> 6 * left & 0x3F));
        text->next = (char *)next;
    }
}

/* Append the text of a string; "?" if it is none. Python's functions follow pointers. */
static void whorl_put_string(whorl_text *text, const PyObject *string) {
    static uint32_t data[WHORL_NAME_LENGTH];
    PyASCIIObject head;
    Py_ssize_t index, length;
    int kind;
    if (!whorl_peek(string, &head, sizeof head) || Py_TYPE((PyObject *)&head) != &PyUnicode_Type ||
        !head.state.compact || head.length < 0 || head.state.kind == 0 || head.state.kind > 4) {
        whorl_put_character(text, '?');
        return;
    }
    kind = head.state.kind;
    length = head.length < WHORL_NAME_LENGTH ? head.length : WHORL_NAME_LENGTH;
    if (!whorl_peek((const char *)string + (head.state.ascii ? sizeof head : sizeof(PyCompactUnicodeObject)),
                    data, (size_t)(length * kind)))
        length = 0;
    for (index = 0; index < length; index++)
        whorl_put_character(text, kind == 1   ? ((uint8_t *)data)[index]
                                  : kind == 2 ? ((uint16_t *)data)[index]
                                              : ((uint32_t *)data)[index]);
}

/* The bytes of a code object's table of lines, a block of them at a time. */
typedef struct {
    const char *address;
    Py_ssize_t size, at, block; /* `at`: of the next byte, `block`: of the first one of `data` */
    uint8_t data[WHORL_BLOCK];
} whorl_table;

/* Return the next byte of a table, -1 at its end. */
static int whorl_next_byte(whorl_table *table) {
    Py_ssize_t block = table->at - table->at % WHORL_BLOCK, size = table->size - block;
    if (table->at >= table->size)
        return -1;
    if (block != table->block) {
        if (!whorl_peek(table->address + block, table->data,
                        (size_t)(size < WHORL_BLOCK ? size : WHORL_BLOCK)))
            return -1;
        table->block = block;
    }
    return table->data[table->at++ - block];
}

/* Return the line of an instruction, by its number; 0 if it has none. A table may say anything, so the sum
   has 64 bits, which the longest one cannot fill. This is what `PyCode_Addr2Line` does,
   which follows pointers (Objects/locations.md of CPython describes the table). */
static int whorl_line_of(const PyCodeObject *code, Py_ssize_t instruction) {
    static whorl_table table;
    PyVarObject head;
    Py_ssize_t reached = 0;
    int64_t line = code->co_firstlineno;
    int byte;
    if (instruction < 0)
        return code->co_firstlineno;
    if (!whorl_peek(code->co_linetable, &head, sizeof head) || Py_TYPE((PyObject *)&head) != &PyBytes_Type ||
        Py_SIZE(&head) < 0 || Py_SIZE(&head) > (Py_ssize_t)WHORL_MOST_BLOCKS * WHORL_BLOCK)
        return 0;
    table.address = (const char *)code->co_linetable + offsetof(PyBytesObject, ob_sval);
    table.size = Py_SIZE(&head);
    table.at = 0;
    table.block = -1;
    byte = whorl_next_byte(&table);
    while (byte >= 0) {
        int form = byte >> 3 & 15;
        unsigned delta = 0, shift = 0;
        reached += (byte & 7) + 1;
        if (form == 13 || form == 14) {
            do {
                byte = whorl_next_byte(&table);
                delta |= (unsigned)(byte & 63) << shift;
                shift += 6;
            } while (byte >= 0 && (byte & 64) && shift < 30);
            line += delta & 1 ? -(int64_t)(delta >> 1) : (int64_t)(delta >> 1);
        } else if (form >= 10 && form <= 12)
            line += form - 10;
        if (instruction < reached)
            return form == 15 || line < 0 || line > INT_MAX ? 0 : (int)line;
        do /* The next entry begins with the next byte that has the highest bit. */
            byte = whorl_next_byte(&table);
        while (byte >= 0 && !(byte & 128));
    }
    return 0;
}

/* Return where the instructions of a frame begin. */
static const char *whorl_instructions_of(const struct _PyInterpreterFrame *frame, const char *address,
                                         const PyCodeObject *code) {
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030E0000
    const char *copy = NULL; /* Threads have copies of their own, of which the first is the code's. */
    (void)address;
    if (frame->tlbc_index >= 0)
        whorl_peek(code->co_tlbc->entries + frame->tlbc_index, &copy, sizeof copy);
    return copy;
#else
    (void)frame, (void)code;
    return address + offsetof(PyCodeObject, co_code_adaptive);
#endif
}

/* Write the frames of a chain, the innermost first, as `faulthandler` does; return whether they are frames.
   Those that Python hides are left out (`_PyFrame_IsIncomplete`). */
static int whorl_put_frames(whorl_text *text, const whorl_chain *chain) {
    int index;
    for (index = 0; index < chain->count; index++) {
        const struct _PyInterpreterFrame *frame = &chain->calls[index].frame;
        const PyCodeObject *code = &chain->calls[index].code;
        char *begin = text->next;
        Py_ssize_t offset;
        if (text->end - text->next < 64)
            break;
        if ((unsigned char)frame->owner > FRAME_OWNED_BY_FRAME_OBJECT)
            continue;
        /* The two may be of several moments, and anywhere. */
        offset = (Py_ssize_t)((uintptr_t)frame->WHORL_INSTRUCTION -
                              (uintptr_t)whorl_instructions_of(frame, chain->calls[index].address, code));
        offset /= (Py_ssize_t)sizeof(_Py_CODEUNIT);
        if (offset < -1 || offset > Py_SIZE(code))
            return 0;
        if (frame->owner != FRAME_OWNED_BY_GENERATOR && offset < code->_co_firsttraceable)
            continue;
        text->next += sprintf(text->next, "  File \"");
        whorl_put_string(text, code->co_filename);
        if (text->end - text->next > 40)
            text->next += sprintf(text->next, "\", line %d in ", whorl_line_of(code, offset));
        whorl_put_string(text, code->co_qualname);
        if (text->end - text->next < 8) { /* It does not fit, and what called it does not, either. */
            text->next = begin;
            break;
        }
        *text->next++ = '\n';
    }
    return 1;
}

/* Write the stack of a thread; return its length, 0 if it could not be taken. One thread at a time may call
   this, and needs no lock of Python's. */
static size_t whorl_read_stack(int thread, char *into, size_t size) {
    static whorl_chain before, after;
    int tries;
    for (tries = 0; tries < WHORL_TRIES; tries++) {
        whorl_text text = {into, into + size - 1};
        if (whorl_read_chain(thread, &before) && whorl_put_frames(&text, &before) &&
            whorl_read_chain(thread, &after) && memcmp(&before, &after, sizeof before) == 0) {
            *text.next = 0;
            return (size_t)(text.next - into);
        }
    }
    *into = 0;
    return 0;
}
