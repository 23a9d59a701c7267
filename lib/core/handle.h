/* handle.h - what callers hold of process sets, and the calls that are in each of them.
 *
 * A handle is a number in the type of a pointer: a slot of a table, and how often the
 * slot was used before.  No handle is given twice.  So that of a set that was removed,
 * or whose world has ended, stays invalid.  (A pointer would not: malloc() gives the
 * memory to the next set.)
 *
 * Each slot counts the calls in its set.  Who frees a set first closes its handle, then
 * waits until all calls have left. */
#ifndef BERTH_LIB_HANDLE_H
#define BERTH_LIB_HANDLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/one_thread.h"
#include "lib/berth.h"

enum {
	HANDLE_BITS = 16, /* of a handle, for the slot */
	HANDLE_BLOCK = 64,
	HANDLE_BLOCKS = (1 << HANDLE_BITS) / HANDLE_BLOCK,
	HANDLE_OF_ALL =
		1 /* no set has it: the first use of a slot is 1 << HANDLE_BITS */
};

struct handle_slot {
	_Atomic uintptr_t handle; /* 0: closed */
	_Atomic unsigned inside;  /* calls in SET, and those that look at HANDLE */
	struct berth_set *set;    /* valid in a call that has found HANDLE open */
	uintptr_t last;           /* the handle of the last use */
	struct handle_slot *next_free;
};

extern struct handle_slot handle_of_all; /* of NULL, the set of all ranks */
/* The table.  Blocks are never freed. */
extern struct handle_slot *_Atomic handle_block[HANDLE_BLOCKS];

/* BY is 1 or -1. */
static inline void handle_count(struct handle_slot *s, unsigned by)
{
	if (one_thread())
		atomic_store_explicit(&s->inside, s->inside + by, memory_order_relaxed);
	else
		atomic_fetch_add(&s->inside, by);
}

/* NULL: no such slot. */
static inline struct handle_slot *handle_slot(const berth_set *given)
{
	uintptr_t at = (uintptr_t)given % (1 << HANDLE_BITS);
	struct handle_slot *block = atomic_load(&handle_block[at / HANDLE_BLOCK]);

	return block ? block + at % HANDLE_BLOCK : NULL;
}

/* A call begins in the set of GIVEN (NULL: all ranks), and handle_leave() ends it.
 * Until then the set and its world stay.  NULL: the handle is closed. */
static inline struct berth_set *handle_enter(const berth_set *given)
{
	struct handle_slot *s = given ? handle_slot(given) : &handle_of_all;
	uintptr_t handle = given ? (uintptr_t)given : HANDLE_OF_ALL;

	if (!s)
		return NULL;
	handle_count(s, 1);
	/* after the count: who closes the handle does it in the other order */
	if (atomic_load(&s->handle) == handle)
		return s->set;
	handle_count(s, -1u);
	return NULL;
}

static inline void handle_leave(struct handle_slot *s)
{
	handle_count(s, -1u);
}

/* A world begins: the handle of all ranks. */
void handle_open_all(struct berth_set *all);
/* A slot for SET, and its handle.  BERTH_ABORTED: the world ends; BERTH_MEMORY.  The
 * caller of berth_set_add() gets it. */
berth_result handle_make(struct berth_set *set, struct handle_slot **slot,
			 berth_set **handle);
/* Close the handle GIVEN, of which the caller frees the set.  NULL: it is closed. */
struct berth_set *handle_take(const berth_set *given);
/* The world ends: no call begins any more, and no handle is made. */
void handle_close_all(void);
/* Until no call is in the set of S; in any set. */
void handle_wait(const struct handle_slot *s);
void handle_wait_all(void);
/* The set of S is freed. */
void handle_free(struct handle_slot *s);
/* Its parent's handles are closed. */
void handle_in_child(void);

#endif
