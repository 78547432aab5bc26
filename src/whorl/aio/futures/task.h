/* Steps of coroutines, and the ring of all tasks. */
#ifndef WHORL_AIO_FUTURES_TASK_H
#define WHORL_AIO_FUTURES_TASK_H

#include "whorl/core/references.h"

/* The last send's outcome, read at once after it, before any other code can run. */
static int whorl_returned;

/* Let a coroutine go on. Python's `send` reports a return by an exception. */
static inline PyObject *whorl_send(PyObject *coro) {
    PyObject *result = NULL;
    PySendResult outcome = PyIter_Send(coro, Py_None, &result);
    whorl_returned = outcome == PYGEN_RETURN;
    return outcome == PYGEN_ERROR ? NULL : result;
}

/* Return whether the coroutine returned. `send` notes that in a variable of C. */
static inline int whorl_has_returned(void) {
    return whorl_returned;
}

/* All tasks stand in a ring, so a new one needs no object to keep it by. */
struct whorl_member {
    struct whorl_member *previous, *next;
    PyObject *owner;
};

/* Begin an empty ring. Python's attributes are references, and a ring's are none. */
static inline void whorl_begin_members_of(struct whorl_member *ring) {
    ring->previous = ring->next = ring;
}

/* Put a task into the ring. Python would make an object, a weak reference, to keep it by. */
static inline void whorl_enlist_in(struct whorl_member *ring, struct whorl_member *member, PyObject *owner) {
    if (member->owner != NULL)
        return;
    member->owner = owner;
    member->previous = ring->previous;
    member->next = ring;
    ring->previous->next = member;
    ring->previous = member;
}

/* Take a task out of its ring. It is being freed, and Python cannot refer to it any more. */
static inline void whorl_delist_from(struct whorl_member *member) {
    if (member->owner == NULL)
        return;
    member->previous->next = member->next;
    member->next->previous = member->previous;
    member->owner = NULL;
}

/* Return the members as a list. Making it may start the collector, which changes the ring: so the list is
   made first, and members that do not fit are left out. Python does not show which member is being freed. */
static inline PyObject *whorl_listed_in(struct whorl_member *ring) {
    Py_ssize_t count = 0, filled = 0;
    struct whorl_member *member;
    PyObject *members, *shorter;
    for (member = ring->next; member != ring; member = member->next)
        count++;
    members = PyList_New(count);
    if (members == NULL)
        return NULL;
    for (member = ring->next; member != ring && filled < count; member = member->next)
        if (Py_REFCNT(member->owner) > 0) { /* not a member that is being freed */
            Py_INCREF(member->owner);
            PyList_SET_ITEM(members, filled++, member->owner);
        }
    if (filled == count)
        return members;
    shorter = PyList_GetSlice(members, 0, filled);
    Py_DECREF(members);
    return shorter;
}

#define whorl_begin_members(ring) whorl_begin_members_of(&(ring))
#define whorl_enlist(ring, member, owner) whorl_enlist_in(&(ring), &(member), owner)
#define whorl_delist(member) whorl_delist_from(&(member))
#define whorl_listed(ring) whorl_listed_in(&(ring))

#endif
