/* queue.h - the requests of a set that are pending, and what the plan (plan.h) says of
 * them. */
#ifndef BERTH_LIB_QUEUE_H
#define BERTH_LIB_QUEUE_H

#include "lib/core/set.h"

/* Makes the lists.  A set that only blocks does not have them (224 KiB). */
bool queue_make_lists(struct berth_set *s);

/* ---- QUEUE is held for these ---- */

/* The pending request of KEY, or NULL. */
struct berth_request *queue_find(const struct pending *p, uint64_t key);
/* R is pending from now on. */
void queue_enter(struct berth_set *s, struct berth_request *r);
/* R is as it was before queue_enter(), under the same lock. */
void queue_take_back(struct berth_set *s, struct berth_request *r);
/* Are the units of the plan's next bucket pending? */
bool queue_bucket_is_here(struct berth_set *s);
/* They are at the beginning of s->list; how many. */
size_t queue_take_bucket(struct berth_set *s);
/* The plan has changed: look again at what is pending. */
void queue_look_again(struct berth_set *s);
/* If a unit that is pending comes again, the next cycle begins. */
berth_result queue_begin_cycle(struct berth_set *s);
/* Since when a thread waits for what the plan holds back; 0: none does. */
uint64_t queue_wanted_since(const struct berth_set *s);

/* ---- QUEUE is not held ---- */

/* Collectives of the N of R end with RC.  Those that have no other part are their
 * owners' from then on. */
void queue_complete(struct berth_set *s, struct berth_request **r, size_t n,
		    berth_result rc, const struct failure *why);
void queue_complete_all(struct berth_set *s, berth_result rc,
			const struct failure *why);
/* The set was aborted: what is pending ends.  WORK is held. */
void queue_end_aborted(struct berth_set *s);

#endif
