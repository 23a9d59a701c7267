#include "lib/core/sets.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/core/comm.h"
#include "lib/core/engine.h"
#include "lib/core/handle.h"
#include "lib/core/messages.h"
#include "lib/core/op.h"
#include "lib/core/region.h"
#include "lib/core/request.h"
#include "lib/core/round.h"
#include "lib/core/set.h"
#include "lib/core/turns.h"
#include "lib/core/works.h"
#include "lib/core/world.h"

/* ---- all that there are ---- */

static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;

void set_list(struct berth_set *s)
{
	pthread_mutex_lock(&listing);
	s->next = s->world->sets;
	s->world->sets = s;
	pthread_mutex_unlock(&listing);
}

static void count_set(struct berth_set *s, struct berth_metrics *sum)
{
	if (s->is_open)
		engine_count(s, sum);
}

static void unlist_set(struct berth_set *s)
{
	struct berth_set **at;

	pthread_mutex_lock(&listing);
	for (at = &s->world->sets; *at && *at != s; at = &(*at)->next)
		;
	if (*at) {
		*at = s->next;
		count_set(s, &s->world->past);
	}
	pthread_mutex_unlock(&listing);
}

void set_count_all(struct world *w, struct berth_metrics *sum)
{
	pthread_mutex_lock(&listing);
	*sum = w->past;
	for (struct berth_set *s = w->sets; s; s = s->next)
		count_set(s, sum);
	pthread_mutex_unlock(&listing);
}

/* The works of one set on a device may wait for works of another set, on another
 * rank. */
static bool all_end(const struct world *w)
{
	bool all = true;

	for (struct berth_set *s = w->sets; s; s = s->next)
		all &= !s->is_open || engine_ends(s);
	return all;
}

void set_stop_all(struct world *w)
{
	pthread_mutex_lock(&listing);
	for (struct berth_set *s = w->sets; s; s = s->next)
		atomic_store(&s->comm.aborted, true);
	for (struct berth_set *s = w->sets; s; s = s->next)
		if (s->is_open)
			engine_stop(s);
	while (!all_end(w))
		works_nap();
	pthread_mutex_unlock(&listing);
}

void set_in_child(void)
{
	pthread_mutex_init(&listing, NULL);
	works_in_child();
	turns_in_child();
}

/* ---- blocking operations ---- */

berth_result set_tell(berth_result rc, const struct failure *why)
{
	return rc ? comm_note_failure(rc, why) : BERTH_OK;
}

berth_result set_refuse(const struct berth_desc *d, const char *text)
{
	bool unsupported = text == op_unknown || text == op_not_there;

	return log_error(unsupported ? BERTH_UNSUPPORTED : BERTH_INVALID, d->name, NULL,
			 0, d->name ? "%s \"%.70s\": %s" : "%s%s: %s",
			 op_kind_name(d->kind), d->name ? d->name : "", text);
}

berth_result set_run(struct berth_set *set, const struct berth_desc *d)
{
	struct failure why;
	struct op op;
	const char *text;
	berth_result rc;

	text = op_make(&op, d, set->members.n, set->members.me);
	if (text)
		return set_refuse(d, text);
	rc = engine_run(set, &op, &why);
	return rc ? set_tell(rc, &why) : BERTH_OK;
}

berth_result set_run_for(struct berth_set *set, const struct berth_desc *d,
			 int64_t slice_ms, berth_request **later)
{
	struct failure why;
	struct op op;
	const char *text;
	berth_result rc;

	text = op_make(&op, d, set->members.n, set->members.me);
	if (text)
		return set_refuse(d, text);
	rc = engine_run_for(set, &op, slice_ms, later, &why);
	return rc && rc != BERTH_BUSY ? set_tell(rc, &why) : rc;
}

/* ---- regions of sets that this rank has left ---- */

/* The first rank of a host has it in its part of the heap, until all have left. */
struct region {
	struct region *next;
	void *at;
	unsigned ranks;
};

static bool is_free(const struct region *r)
{
	return atomic_load(&region_shared(r->at, r->ranks)->gone) >= r->ranks;
}

void set_free_regions(struct world *w)
{
	pthread_mutex_lock(&listing);
	for (struct region **at = &w->regions; *at;) {
		struct region *r = *at;

		if (is_free(r)) {
			*at = r->next;
			memory_free(&w->memory, r->at);
			free(r);
		} else {
			at = &r->next;
		}
	}
	pthread_mutex_unlock(&listing);
}

/* Where there is no memory to note it, it goes with the world. */
static void keep_region(struct berth_set *s)
{
	struct region *r = malloc(sizeof *r);

	if (!r)
		return;
	*r = (struct region){ .at = s->region, .ranks = s->members.nlocal };
	pthread_mutex_lock(&listing);
	r->next = s->world->regions;
	s->world->regions = r;
	pthread_mutex_unlock(&listing);
}

static void forget_regions(struct world *w)
{
	while (w->regions) {
		struct region *r = w->regions;

		w->regions = r->next;
		free(r);
	}
}

/* ---- the end of one ---- */

/* No call is in it. */
static void close_comm(struct berth_set *s)
{
	if (s->is_open)
		engine_close(s);
	messages_leave(&s->comm);
	comm_close(&s->comm);
}

static void free_rest(struct berth_set *s)
{
	if (s->slot)
		handle_free(s->slot);
	members_free(&s->members);
	set_let_go(s);
}

void set_free_all(struct world *w)
{
	while (w->sets) {
		struct berth_set *s = w->sets;

		unlist_set(s);
		close_comm(s);
		free_rest(s);
	}
	forget_regions(w);
	works_stop();
	messages_close(w->messages);
	w->messages = NULL;
	turns_close();
}

void set_free_part(struct berth_set *s, bool keep)
{
	close_comm(s);
	if (s->region && !keep)
		memory_free(&s->world->memory, s->region);
	free_rest(s);
}

/* A rank that waits for this one sees that it has left.  Operations that this rank has
 * done still count for the others. */
static void set_leave(struct berth_set *s)
{
	struct region_shared *shared = s->comm.shared;

	if (!shared)
		return;
	atomic_store(&region_left(shared, s->members.nlocal)[s->members.local_me], 1);
	if (s->region)
		keep_region(s);
	atomic_fetch_add(&shared->gone, 1);
}

void set_remove(struct berth_set *s)
{
	struct world *w = s->world;

	if (s->is_open)
		engine_end_all(s);
	handle_wait(s->slot);
	unlist_set(s);
	if (s->is_open)
		engine_close(s);
	messages_leave(&s->comm);
	set_leave(s);
	comm_close(&s->comm);
	free_rest(s);
	set_free_regions(w);
}

void set_abort(struct berth_set *s, const char *why)
{
	comm_say_abort(&s->comm, why);
	engine_abort(s);
}

/* ---- the beginning of one ---- */

struct berth_set *set_alloc(struct world *w, const unsigned *rank, unsigned n)
{
	struct berth_set *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->world = w;
	s->users = 1;
	pthread_mutex_init(&s->work, NULL);
	pthread_mutex_init(&s->queue, NULL);
	if (!members_make(&s->members, rank, n, w->who.host, w->who.rank))
		return s;
	set_let_go(s);
	return NULL;
}
