#include "lib/core/round.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/sleep.h"
#include "lib/core/comm.h"
#include "lib/core/queue.h"
#include "lib/core/request.h"
#include "lib/core/rest.h"
#include "lib/core/run.h"
#include "lib/core/trace.h"
#include "lib/core/world.h"

enum {
	NEGOTIATE = 0x4e45474f, /* signatures of what only this file calls for */
	LISTS = 0x4c495354,
	LAST_JOINED = 0x4c4a4f49,
	MIXED = 0x4d495844,
	SHORT = 8 /* entries in what is told first */
};

/* ---- what ranks tell ---- */

/* The sum of what all ranks have told, in lists with room for MOST entries each. */
struct told {
	uint64_t most;
	uint64_t fusion_bytes, cycle, base; /* on which they agree */
	bool joined, waits;                 /* any of them */
	bool direct, bucket;                /* all of them */
};

static struct head *round_list_of(const struct berth_set *s, uint64_t most,
				  unsigned place)
{
	return (struct head *)((unsigned char *)s->lists +
			       place * round_list_bytes(most));
}

static berth_result round_make_room(struct berth_set *s, uint64_t most)
{
	size_t bytes = round_list_bytes(most) * s->members.n;

	if (bytes > s->lists_bytes) {
		free(s->lists);
		s->lists_bytes = 0;
		s->lists = malloc(bytes);
		if (!s->lists)
			return BERTH_MEMORY;
		s->lists_bytes = bytes;
	}
	return BERTH_OK;
}

/* Heads of lists with room for MOST entries each. */
static berth_result round_check_heads(struct berth_set *s, uint64_t most)
{
	for (unsigned i = 0; i < s->members.n; i++)
		if (!round_head_is_sound(round_list_of(s, most, i), most))
			return comm_refuse(&s->comm, i);
	return BERTH_OK;
}

/* All ranks' lists, with room for MOST entries each.  ALL: of what is pending; else of
 * what is beside the plan. */
static berth_result round_gather(struct berth_set *s, struct head own, uint64_t most,
				 bool all, uint64_t deadline_ns)
{
	struct comm *c = &s->comm;
	struct coll lists = { .kind = BERTH_ALLGATHER,
			      .type = BERTH_U64,
			      .count = round_list_bytes(most) / 8,
			      .signature = all ? LISTS : NEGOTIATE };
	struct head *h;
	berth_result rc;

	if (round_make_room(s, most))
		return BERTH_MEMORY;
	h = round_list_of(s, most, c->members->me);
	memset(h, 0, round_list_bytes(most));
	for (size_t i = 0; i < own.pending && own.n < most; i++) {
		const struct berth_request *r = s->list[i];

		if (all || r->beside)
			round_entries(h)[own.n++] =
				(struct entry){ r->unit.key, r->unit.signature,
						r->unit.alike, r->unit.first };
	}
	*h = own;
	lists.in = h;
	lists.out = s->lists;
	rc = c->members->n > 1 ? comm_step(c, &lists, deadline_ns) : BERTH_OK;
	return rc ? rc : round_check_heads(s, most);
}

/* True: what ranks have told is not all that matters. */
static bool round_sum_up(const struct berth_set *s, struct told *told)
{
	uint64_t pending = 0, beside = 0;
	const struct head *first = round_list_of(s, told->most, 0);

	*told = (struct told){ .most = told->most,
			       .fusion_bytes = first->fusion_bytes,
			       .direct = true,
			       .bucket = true };
	for (unsigned i = 0; i < s->members.n; i++) {
		const struct head *h = round_list_of(s, told->most, i);

		if (h->cycle > told->cycle ||
		    (h->cycle == told->cycle && h->base > told->base)) {
			told->cycle = h->cycle;
			told->base = h->base;
		}
		if (h->fusion_bytes < told->fusion_bytes)
			told->fusion_bytes = h->fusion_bytes;
		told->joined |= h->joined;
		told->waits |= h->waits;
		told->direct &= h->direct != 0;
		told->bucket &=
			h->bucket && h->cycle == first->cycle && h->base == first->base;
		pending = h->pending > pending ? h->pending : pending;
		beside = h->beside > beside ? h->beside : beside;
	}
	if (told->direct || (!told->joined && !told->waits && beside <= SHORT))
		return false;
	told->most = pending;
	return true;
}

/* Few units beside the plan take one step; all that is pending takes another. */
static berth_result round_tell(struct berth_set *s, const struct head *own,
			       struct told *told, uint64_t deadline_ns)
{
	berth_result rc;

	*told = (struct told){ .most = SHORT };
	rc = round_gather(s, *own, SHORT, false, deadline_ns);
	if (!rc && round_sum_up(s, told))
		rc = round_gather(s, *own, told->most, true, deadline_ns);
	if (!rc)
		s->plan.fusion_bytes = told->fusion_bytes;
	return rc;
}

/* ---- a step that all ranks do ---- */

static void round_begin_turn(struct berth_set *s, size_t n)
{
	struct comm *c = &s->comm;

	c->seq++;
	c->op = n ? s->list[0]->op : &s->idle;
	c->no_stall_check = !n;
	c->record = trace_begin(&s->world->memory, &c->op->coll, c->op->name, c->id,
				c->seq, BOOT_RECORD_RUNS);
	rest_call_others(s);
	if (n) /* which has been told of in earlier turns, perhaps */
		c->record->begun = s->list[0]->submitted_ns;
}

static void round_end_turn(struct berth_set *s, berth_result rc)
{
	struct comm *c = &s->comm;

	run_end(c, rc);
	c->no_stall_check = false;
	c->op = &s->idle;
}

enum progress round_failed(struct berth_set *s, berth_result rc)
{
	struct failure why = { .rc = rc };

	if (rc == BERTH_MISMATCH) { /* others were at a bucket: now they know */
		round_end_turn(s, rc);
		s->called = true;
		return PROGRESS_DID;
	}
	rc = comm_failed(&s->comm, rc, s->comm.op, &why);
	round_end_turn(s, rc);
	queue_complete_all(s, rc, &why);
	return PROGRESS_DID;
}

/* ---- different operations ---- */

/* Finds the operation of R that ranks have called for in different ways.  R may be
 * NULL. */
static berth_result round_find_different(struct berth_set *s,
					 const struct berth_request *r, size_t *which)
{
	enum { DIGITS = 8 };
	struct comm *c = &s->comm;
	char text[BACKEND_TEXT_BYTES] = RUN_JOINED;
	const char **said, *first = NULL;
	size_t at = 0, same = sizeof text;
	berth_result rc;

	for (size_t k = 0; r && k < r->n && at + DIGITS < sizeof text; k++)
		at += (size_t)snprintf(text + at, sizeof text - at, "%08x",
				       r->op[k].coll.signature);
	rc = comm_explain(c, text, &said);
	for (unsigned i = 0; !rc && i < c->members->n; i++) {
		size_t k = 0;

		if (run_has_joined(said[i]))
			continue;
		first = first ? first : said[i];
		while (first[k] && first[k] == said[i][k])
			k++;
		same = first != said[i] && k < same ? k : same;
	}
	*which = same / DIGITS;
	if (r && *which >= r->n)
		*which = r->n - 1;
	return rc;
}

/* One that ranks have called for in different ways: all of them hear how. */
static berth_result round_tell_difference(struct berth_set *s, struct berth_request *r)
{
	struct comm *c = &s->comm;
	char code[OP_CODE_BYTES] = RUN_JOINED;
	struct failure why = { .rc = BERTH_MISMATCH };
	const char **said;
	size_t which;
	berth_result rc = round_find_different(s, r, &which);

	if (!rc && r)
		op_encode(code, &r->op[which]);
	if (!rc)
		rc = comm_explain(c, code, &said);
	if (rc || !r)
		return rc;
	run_say_sides(c, &r->op[which], said, &why);
	snprintf(why.tensor, sizeof why.tensor, "%s",
		 r->op[which].name ? r->op[which].name : "");
	trace_count(&s->count.errors, 1);
	queue_complete(s, &r, 1, BERTH_MISMATCH, &why);
	return BERTH_OK;
}

/* Ranks give R arrays of different memories: its operations go by way of the host. */
static berth_result round_mix(struct berth_set *s, struct berth_request *r)
{
	request_mix(r);
	return run_bucket(s, &r, 1, r->unit.alike ^ MIXED);
}

static enum progress round_all_have_blocked(struct berth_set *s,
					    struct berth_request *r)
{
	struct failure why = { .rc = BERTH_MISMATCH };
	const uint64_t number = r->unit.number;
	char code[OP_CODE_BYTES];
	const char **said;
	berth_result rc;
	bool alike;

	round_begin_turn(s, 1);
	op_encode(code, r->op);
	rc = comm_explain(&s->comm, code, &said);
	if (rc)
		return round_failed(s, rc);
	round_end_turn(s, BERTH_OK);
	alike = run_are_alike(&s->comm, said);
	if (!alike) {
		run_say_sides(&s->comm, r->op, said, &why);
		snprintf(why.tensor, sizeof why.tensor, "%s",
			 r->op->name ? r->op->name : "");
		trace_count(&s->count.errors, 1);
	}
	pthread_mutex_lock(&s->queue); /* as if it had not been submitted */
	s->unnamed -= number && number == s->unnamed;
	schedule_event(&s->schedule, SCHEDULE_DONE);
	pthread_mutex_unlock(&s->queue);
	if (!alike)
		queue_complete(s, &r, 1, BERTH_MISMATCH, &why);
	else
		rc = round_mix(s, r);
	return rc ? round_failed(s, rc) : PROGRESS_DID;
}

/* ---- ranks without data ---- */

/* The first operation of R that a rank which has joined cannot take part in; else the
 * first of all. */
static struct op *round_hardest_op(const struct berth_request *r)
{
	for (size_t k = 0; k < r->n; k++)
		if (r->op[k].coll.kind != BERTH_ALLREDUCE &&
		    r->op[k].coll.kind != BERTH_BARRIER)
			return &r->op[k];
	return r->op;
}

/* How many operations of the request ranks that have joined are to take part in: all
 * others say the same. */
static berth_result round_told_count(struct comm *c, const char **said, unsigned *n)
{
	const char *first = NULL;
	char end;

	*n = 1;
	for (unsigned i = 0; i < c->members->n; i++) {
		if (run_has_joined(said[i]))
			continue;
		first = first ? first : said[i];
		if (strcmp(said[i], first) || sscanf(first, "%u%c", n, &end) != 1)
			return comm_refuse(c, i);
	}
	return BERTH_OK;
}

/* A rank that has joined takes part in a request of the others. */
static berth_result round_take_part(struct berth_set *s)
{
	struct comm *c = &s->comm;
	const char **said;
	berth_result rc = comm_explain(c, RUN_JOINED, &said);
	unsigned n;

	if (!rc)
		rc = round_told_count(c, said, &n);
	while (!rc && n--) {
		rc = comm_explain(c, RUN_JOINED, &said);
		if (!rc)
			rc = run_without_data(c, said, 0);
	}
	s->joiner.taken++; /* also in what is refused: the others are further on */
	if (rc != BERTH_UNSUPPORTED)
		return rc;
	c->reason = NULL; /* the others say it */
	return BERTH_OK;
}

/* The other ranks, which all have R, do it beside those that have joined. */
static berth_result round_do_beside(struct berth_set *s, struct berth_request *r,
				    struct failure *why)
{
	struct comm *c = &s->comm;
	char code[OP_CODE_BYTES];
	const char **said;
	size_t n = round_hardest_op(r) == r->op ? r->n : 1;
	berth_result rc;

	snprintf(code, sizeof code, "%zu", n);
	rc = comm_explain(c, code, &said);
	for (size_t k = 0; !rc && k < n; k++) {
		struct op *op = k ? &r->op[k] : round_hardest_op(r);

		s->beginning = op_is_device(op) ? r : NULL;
		op_encode(code, op);
		rc = comm_explain(c, code, &said);
		if (!rc)
			rc = run_refuse_joined(c, op, said, why);
		if (!rc)
			rc = run_with_joined(c, op, r->deadline_ns);
	}
	s->beginning = NULL;
	return rc;
}

/* Some ranks have joined.  The operations are done one by one, and each is first told
 * to those ranks.  MIXED: the others give arrays of different memories. */
static berth_result round_do_with_joined(struct berth_set *s, struct berth_request *r,
					 bool mixed)
{
	struct failure why = { .rc = BERTH_OK };
	berth_result rc;

	if (!r)
		return round_take_part(s);
	if (mixed)
		request_mix(r);
	rc = round_do_beside(s, r, &why);
	if (rc && rc != BERTH_STATE)
		rc = comm_failed(&s->comm, rc, r->op, &why);
	queue_complete(s, &r, 1, rc, &why);
	return rc == BERTH_STATE || rc == BERTH_UNSUPPORTED ? BERTH_OK : rc;
}

/* ---- all have joined ---- */

/* The rank that joined last has seen the fewest requests since; of those with the same
 * number, it joined at the latest time. */
static unsigned round_last_of(const struct joiner *all, unsigned n)
{
	unsigned last = 0;

	for (unsigned i = 1; i < n; i++)
		if (all[i].taken < all[last].taken ||
		    (all[i].taken == all[last].taken &&
		     all[i].time_ns >= all[last].time_ns))
			last = i;
	return last;
}

static berth_result round_find_last(struct berth_set *s, unsigned *last)
{
	struct comm *c = &s->comm;
	struct joiner *all = comm_scratch(c, c->members->n * sizeof *all);
	struct coll gather = { .kind = BERTH_ALLGATHER,
			       .type = BERTH_U64,
			       .in = &s->joiner,
			       .out = all,
			       .count = sizeof s->joiner / sizeof(uint64_t),
			       .signature = LAST_JOINED };
	berth_result rc = all ? BERTH_OK : BERTH_MEMORY;

	*last = 0;
	if (c->members->n == 1)
		return BERTH_OK;
	round_begin_turn(s, 0);
	if (!rc)
		rc = comm_step(c, &gather, 0);
	if (!rc)
		*last = round_last_of(all, c->members->n);
	return rc;
}

static enum progress round_all_have_joined(struct berth_set *s)
{
	unsigned last;
	berth_result rc = round_find_last(s, &last);

	if (rc)
		return round_failed(s, rc);
	round_end_turn(s, BERTH_OK);
	pthread_mutex_lock(&s->queue);
	s->schedule.joined = false;
	schedule_event(&s->schedule, SCHEDULE_DONE);
	s->last_joined = last;
	s->joiner.taken = 0;
	s->unnamed = 0; /* ranks that had joined have submitted fewer */
	plan_restart_numbers(&s->plan);
	queue_look_again(s);
	pthread_mutex_unlock(&s->queue);
	atomic_fetch_add(&s->all_joined, 1);
	sleep_wake(&s->all_joined);
	return PROGRESS_DID;
}

/* ---- what this rank has ---- */

/* By priority, equals in their order: few moves where most have the same. */
static void round_sort_by_priority(struct berth_request **list, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		struct berth_request *r = list[i];
		size_t k = i;

		for (; k && list[k - 1]->priority < r->priority; k--)
			list[k] = list[k - 1];
		list[k] = r;
	}
}

/* Lists the pending requests in the order in which this rank would do them. */
static struct head round_own_head(struct berth_set *s)
{
	struct head h = { .fusion_bytes = s->world->params.fusion_bytes,
			  .cycle = s->plan.cycle,
			  .base = s->plan.base };
	uint64_t waits;

	pthread_mutex_lock(&s->queue);
	waits = queue_wanted_since(s);
	h.joined = s->schedule.joined;
	h.waits = waits && clock_ns() >= waits + SCHEDULE_HOLD_NS;
	h.beside = s->schedule.beside;
	h.direct = s->direct != NULL;
	h.bucket = queue_bucket_is_here(s);
	schedule_event(&s->schedule, SCHEDULE_TOLD);
	for (struct berth_request *r = s->pending.first;
	     r && h.pending < SET_PENDING_MOST; r = r->next) {
		/* by a round that could not go on */
		if (request_state(r) == REQUEST_PROMISED)
			request_become(r, REQUEST_QUEUED);
		s->list[h.pending++] = r;
	}
	pthread_mutex_unlock(&s->queue);
	round_sort_by_priority(s->list, h.pending);
	return h;
}

static uint64_t round_first_deadline(const struct berth_set *s, size_t n)
{
	uint64_t at = 0;

	for (size_t i = 0; i < n; i++)
		if (s->list[i]->deadline_ns && (!at || s->list[i]->deadline_ns < at))
			at = s->list[i]->deadline_ns;
	return at;
}

/* ---- what others have ---- */

static int round_by_key(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return (x->key > y->key) - (x->key < y->key);
}

/* The ranks that have a unit, and whether it is the same on all of them. */
struct common {
	bool all, same;
	bool alike;  /* but for the memories of its arrays */
	bool joined; /* somebody who has joined does not have it, and gives nothing */
	unsigned lacking[64]; /* places */
	size_t nlacking;
};

/* Lists of all ranks but LEADER are sorted. */
static struct common round_look_up(const struct berth_set *s, uint64_t most,
				   unsigned leader, const struct entry *unit)
{
	struct common found = { .all = true, .same = true, .alike = true };

	for (unsigned r = 0; r < s->members.n; r++) {
		struct head *h = round_list_of(s, most, r);
		const struct entry *there;

		if (r == leader)
			continue;
		there = bsearch(unit, round_entries(h), h->n, sizeof *there,
				round_by_key);
		if (!there && h->joined) {
			found.joined = true;
		} else if (!there) {
			found.all = false;
			if (found.nlacking < 64)
				found.lacking[found.nlacking++] = r;
		} else {
			found.same &= there->signature == unit->signature;
			found.alike &= there->alike == unit->alike;
		}
	}
	return found;
}

/* The first rank that has not joined, or else that joined with something submitted
 * before; N: there is nothing to do until all have left again. */
static unsigned round_find_leader(const struct berth_set *s, uint64_t most)
{
	unsigned n = s->members.n, pending = n;

	for (unsigned r = n; r-- > 0;)
		if (round_list_of(s, most, r)->n)
			pending = r;
	for (unsigned r = 0; r < n; r++)
		if (!round_list_of(s, most, r)->joined)
			return r;
	return pending;
}

static void round_sort_lists(const struct berth_set *s, uint64_t most, unsigned leader)
{
	for (unsigned r = 0; r < s->members.n; r++) {
		struct head *h = round_list_of(s, most, r);

		if (r != leader)
			qsort(round_entries(h), h->n, sizeof(struct entry),
			      round_by_key);
	}
}

/* ---- what is done ---- */

/* The outcome of a round. */
struct found {
	bool waits;     /* a rank, for what the plan holds back */
	bool all;       /* units of the plan are done as well */
	size_t n;       /* requests to be done, at the beginning of s->list */
	bool did;       /* something else */
	uint64_t cycle; /* of the plan, at the beginning */
	size_t ndone;
};

static struct berth_request *round_own_request(struct berth_set *s,
					       const struct entry *unit)
{
	struct berth_request *r;

	pthread_mutex_lock(&s->queue);
	r = queue_find(&s->pending, unit->key);
	pthread_mutex_unlock(&s->queue);
	return r;
}

/* All ranks have R, which is FIRST in LEADER: it is done, unless the plan does. */
static berth_result round_take(struct berth_set *s, struct berth_request *r,
			       unsigned leader, bool first, struct found *found)
{
	struct plan_unit unit;
	berth_result rc = BERTH_OK;
	bool later;

	if (!r) /* it is done: LEADER has it twice */
		return comm_refuse(&s->comm, leader);
	unit = r->unit;
	unit.first = first;
	pthread_mutex_lock(&s->queue);
	if (plan_comes_again(&s->plan, &unit))
		rc = plan_wrap(&s->plan, &unit);
	later = !found->all && plan_expects(&s->plan, &unit);
	if (!rc && !later)
		rc = plan_note(&s->plan, &unit);
	pthread_mutex_unlock(&s->queue);
	if (!rc && !later) {
		request_become(r, REQUEST_PROMISED);
		s->list[found->n++] = r;
	}
	return rc;
}

/* All ranks have R, with arrays of different memories. */
static berth_result round_pass(struct berth_set *s, struct berth_request *r,
			       unsigned leader, struct found *found)
{
	berth_result rc;

	if (!r) /* as in round_take() */
		return comm_refuse(&s->comm, leader);
	found->did = true;
	pthread_mutex_lock(&s->queue);
	rc = plan_pass(&s->plan, &r->unit);
	pthread_mutex_unlock(&s->queue);
	if (rc)
		return rc;
	return round_mix(s, r);
}

/* Ranks that lack it have told us something else meanwhile. */
static berth_result round_lacks(struct berth_set *s, struct berth_request *r,
				const struct common *found)
{
	struct comm *c = &s->comm;

	c->op = r->op;
	comm_stalled(c, r->submitted_ns, &s->reported_ns, found->lacking,
		     found->nlacking);
	if (!comm_is_over(c, r->submitted_ns, r->deadline_ns))
		return BERTH_OK;
	memcpy(c->late, found->lacking, sizeof c->late);
	c->nlate = found->nlacking;
	comm_end(c, BERTH_TIMEOUT);
	return BERTH_TIMEOUT;
}

/* Finds the units of LEADER that all ranks have in the same way.  LEADER has each unit
 * once. */
static berth_result round_compare(struct berth_set *s, uint64_t most, unsigned leader,
				  struct found *found)
{
	struct head *list = round_list_of(s, most, leader);
	berth_result rc = BERTH_OK;

	for (uint64_t i = 0; !rc && i < list->n; i++) {
		const struct entry *unit = &round_entries(list)[i];
		struct common common = round_look_up(s, most, leader, unit);
		struct berth_request *r = round_own_request(s, unit);

		if (r && request_state(r) == REQUEST_PROMISED) {
			rc = comm_refuse(&s->comm, leader);
		} else if (!common.all) {
			if (r)
				rc = round_lacks(s, r, &common);
		} else if (!common.same && !common.alike) {
			rc = round_tell_difference(s, r);
		} else if (common.joined) {
			found->did = true;
			rc = round_do_with_joined(s, r, !common.same);
		} else if (!common.same) {
			rc = round_pass(s, r, leader, found);
		} else {
			rc = round_take(s, r, leader, unit->first, found);
		}
	}
	return rc;
}

static int round_by_bucket(const void *a, const void *b)
{
	const struct berth_request *x = *(struct berth_request *const *)a,
				   *y = *(struct berth_request *const *)b;

	if (x->bucket != y->bucket)
		return x->bucket < y->bucket ? -1 : 1;
	return (x->at > y->at) - (x->at < y->at);
}

static berth_result round_do_found(struct berth_set *s, size_t n)
{
	struct plan_fusion f = { .nopen = 0 };
	berth_result rc = BERTH_OK;

	for (size_t i = 0; i < n; i++) {
		struct berth_request *r = s->list[i];

		r->at = (uint32_t)i;
		r->bucket = plan_fuse(&f, &r->unit, 0, s->plan.fusion_bytes);
	}
	if (n)
		qsort(s->list, n, sizeof(struct berth_request *), round_by_bucket);
	for (size_t i = 0, k; !rc && i < n; i += k) {
		uint32_t bucket = s->list[i]->bucket,
			 signature = s->list[i]->unit.signature;

		for (k = 1; i + k < n && s->list[i + k]->bucket == bucket;)
			k++;
		rc = run_bucket(s, &s->list[i], k, signature ^ (uint32_t)(k << 8));
	}
	return rc;
}

/* ---- the round ---- */

static berth_result round_tell_in_turn(struct berth_set *s, const struct head *own,
				       uint64_t deadline_ns, struct told *told)
{
	uint64_t begun_ns = timeline_runs ? clock_ns() : 0;
	berth_result rc;

	round_begin_turn(s, own->pending);
	rc = round_tell(s, own, told, deadline_ns);
	for (size_t i = 0; begun_ns && i < own->pending; i++)
		timeline_event(s->list[i]->op->name ? s->list[i]->op->name : "",
			       "NEGOTIATE", begun_ns, clock_ns());
	if (rc)
		return rc;
	trace_count(&s->count.negotiations, 1);
	round_end_turn(s, BERTH_OK);
	return BERTH_OK;
}

/* A round was for nothing: what stood for it is pending still, unless it failed. */
static void round_wait_on(struct berth_set *s, uint64_t key)
{
	pthread_mutex_lock(&s->queue);
	if (queue_find(&s->pending, key))
		trace_queued(s->comm.record);
	pthread_mutex_unlock(&s->queue);
}

/* All ranks are in the same cycle from here on. */
static berth_result round_begin(struct berth_set *s, const struct told *told,
				struct found *found)
{
	uint64_t was = s->plan.cycle;
	berth_result rc;

	pthread_mutex_lock(&s->queue);
	rc = plan_round(&s->plan, told->cycle, told->base);
	pthread_mutex_unlock(&s->queue);
	*found = (struct found){ .waits = told->waits,
				 .all = told->waits || told->joined,
				 .did = was != s->plan.cycle,
				 .cycle = s->plan.cycle,
				 .ndone = s->plan.ndone };
	return rc;
}

static berth_result round_end(struct berth_set *s, struct found *found)
{
	struct plan *p = &s->plan;
	berth_result rc = BERTH_OK;

	pthread_mutex_lock(&s->queue);
	found->did |= p->cycle != found->cycle;
	if (found->waits && p->cycle == found->cycle && p->ndone > found->ndone)
		rc = plan_cut(p);
	queue_look_again(s);
	pthread_mutex_unlock(&s->queue);
	return rc;
}

/* IDLE: what was told brought nothing.  WAITS: to a rank that waits.  DEADLINE_NS: the
 * first of it, or 0. */
static void round_rest(struct berth_set *s, bool idle, bool waits, uint64_t deadline_ns)
{
	pthread_mutex_lock(&s->queue);
	if (idle)
		schedule_idle(&s->schedule, clock_ns(), waits, s->rest, deadline_ns);
	else
		schedule_event(&s->schedule, SCHEDULE_DONE);
	pthread_mutex_unlock(&s->queue);
}

enum progress round_run(struct berth_set *s)
{
	struct head own = round_own_head(s);
	struct berth_request *direct = s->direct;
	struct told told;
	struct found found;
	unsigned leader;
	uint64_t key = own.pending ? s->list[0]->unit.key : 0;
	uint64_t deadline_ns = round_first_deadline(s, own.pending);
	berth_result rc;

	s->called = false;
	s->direct = NULL;
	rc = round_tell_in_turn(s, &own, deadline_ns, &told);
	if (rc)
		return round_failed(s, rc);
	if (told.direct && direct)
		return round_all_have_blocked(s, direct);
	leader = round_find_leader(s, told.most);
	if (leader == s->members.n)
		return round_all_have_joined(s);
	round_sort_lists(s, told.most, leader);
	rc = round_begin(s, &told, &found);
	if (!rc)
		rc = round_compare(s, told.most, leader, &found);
	if (!rc)
		rc = round_do_found(s, found.n);
	if (!rc)
		rc = round_end(s, &found);
	if (rc)
		return round_failed(s, rc);
	/* what all have of the plan needs no round */
	round_rest(s, !found.n && !found.did && !told.bucket, told.waits, deadline_ns);
	if (s->schedule.idle && own.pending)
		round_wait_on(s, key);
	return PROGRESS_DID;
}
