/* api.h - what api.c and api_run.c share: how a call begins and ends. */
#ifndef BERTH_LIB_API_H
#define BERTH_LIB_API_H

#include "lib/core/sets.h"
#include "lib/core/world.h"

extern struct world api_world;

/* The thread's last error is RC, with TEXT. */
berth_result api_wrong(berth_result rc, const char *text);
/* BERTH_STATE: why a call cannot begin in the set GIVEN, or in none. */
berth_result api_too_late(const berth_set *given);

static inline bool api_can_begin(const struct berth_set *set)
{
	return set && set->members.me != MEMBERS_NONE;
}

/* Refuses a call that cannot begin in SET, the result of handle_enter(GIVEN). */
berth_result api_refuse(struct berth_set *set, const berth_set *given);
/* A call begins in the set GIVEN, or of all ranks.  Where it returns BERTH_OK,
 * api_leave() ends it; until then the world and its sets stay. */
berth_result api_enter(const berth_set *given, struct berth_set **set);
void api_leave(struct berth_set *set);
/* Its world, for one that berth_change() has not joined, or not yet. */
bool api_has_left(void);
/* BERTH_STATE in a callback. */
berth_result api_may_wait(void);

/* FROM, of KNOWN bytes, to the caller's struct TO of SIZE, which may be of another
 * version. */
void api_give(void *to, size_t size, const void *from, size_t known);

#endif
