#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/core/engine_tell.h"

enum {
	AGAIN_NS = 50000, /* from a round that brought nothing to the next one */
	AGAIN_NS_MOST = 5000000,
	QUIET_NS = 50000000, /* from the last submission to the first visit */
	LAST_JOINED = 0x4c4a4f49 /* signature of what only this file calls for */
};

/* ---- a step that all ranks do ---- */

/* By priority, equals in their order: few moves where most have the same. */
static void sort_by_priority(struct berth_request **list, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		struct berth_request *r = list[i];
		size_t k = i;

		for (; k && list[k - 1]->priority < r->priority; k--)
			list[k] = list[k - 1];
		list[k] = r;
	}
}

/* What is pending, in the order in which this rank would do it. */
static struct head snapshot(struct engine *e)
{
	struct head h = { .fusion_bytes = e->comm->world->params.fusion_bytes,
			  .cycle = e->plan.cycle,
			  .base = e->plan.base };
	uint64_t soon = 0;

	pthread_mutex_lock(&e->queue);
	h.joined = e->joined;
	h.waits = engine_is_wanted(e, clock_ns(), &soon);
	h.beside = e->beside;
	h.direct = e->direct != NULL;
	for (struct berth_request *r = e->first; r && h.pending < ENGINE_PENDING_MOST;
	     r = r->next) {
		r->found = false;
		e->list[h.pending++] = r;
	}
	pthread_mutex_unlock(&e->queue);
	sort_by_priority(e->list, h.pending);
	return h;
}

static uint64_t first_deadline(const struct engine *e, size_t n)
{
	uint64_t at = 0;

	for (size_t i = 0; i < n; i++)
		if (e->list[i]->deadline_ns && (!at || e->list[i]->deadline_ns < at))
			at = e->list[i]->deadline_ns;
	return at;
}

/* For who looks at us meanwhile: the first of the N in the list stands for all. */
static void begin_turn(struct engine *e, size_t n)
{
	struct comm *c = e->comm;

	c->seq++;
	c->op = n ? e->list[0]->op : &e->idle;
	c->no_stall_check = !n;
	c->record = trace_begin(&e->comm->world->memory, &c->op->coll, c->op->name,
				c->id, c->seq, BOOT_RECORD_RUNS);
	if (n) /* which has been told of in earlier turns, perhaps */
		c->record->begun = e->list[0]->submitted_ns;
}

static void end_turn(struct engine *e, berth_result rc)
{
	struct comm *c = e->comm;

	op_run_end(c, rc);
	c->no_stall_check = false;
	c->op = &e->idle;
}

/* ---- a round ---- */

static int by_key(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return (x->key > y->key) - (x->key < y->key);
}

/* Of one unit: who has it, and is it the same? */
struct common {
	bool all, same;
	bool joined; /* somebody who has joined does not have it, and gives nothing */
	unsigned lacking[64]; /* places */
	size_t nlacking;
};

/* Lists of all ranks but LEADER are sorted. */
static struct common look_up(const struct engine *e, uint64_t most, unsigned leader,
			     const struct entry *unit)
{
	struct common found = { .all = true, .same = true };

	for (unsigned r = 0; r < e->comm->n; r++) {
		struct head *h = engine_list_of(e, most, r);
		const struct entry *there;

		if (r == leader)
			continue;
		there = bsearch(unit, engine_entries(h), h->n, sizeof *there, by_key);
		if (!there && h->joined) {
			found.joined = true;
		} else if (!there) {
			found.all = false;
			if (found.nlacking < 64)
				found.lacking[found.nlacking++] = r;
		} else if (there->signature != unit->signature) {
			found.same = false;
		}
	}
	return found;
}

/* The first rank that has not joined, or else that joined with something submitted
 * before; N: there is nothing to do until all have left again. */
static unsigned find_leader(const struct engine *e, uint64_t most)
{
	unsigned n = e->comm->n, pending = n;

	for (unsigned r = n; r-- > 0;)
		if (engine_list_of(e, most, r)->n)
			pending = r;
	for (unsigned r = 0; r < n; r++)
		if (!engine_list_of(e, most, r)->joined)
			return r;
	return pending;
}

static void sort_lists(const struct engine *e, uint64_t most, unsigned leader)
{
	for (unsigned r = 0; r < e->comm->n; r++) {
		struct head *h = engine_list_of(e, most, r);

		if (r != leader)
			qsort(engine_entries(h), h->n, sizeof(struct entry), by_key);
	}
}

/* Which of R's operations ranks have called for in different ways.  R may be NULL. */
static berth_result find_different(struct engine *e, const struct berth_request *r,
				   size_t *which)
{
	enum { DIGITS = 8 };
	struct comm *c = e->comm;
	char text[BACKEND_TEXT_BYTES] = OP_RUN_JOINED;
	const char **said, *first = NULL;
	size_t at = 0, same = sizeof text;
	berth_result rc;

	for (size_t k = 0; r && k < r->n && at + DIGITS < sizeof text; k++)
		at += (size_t)snprintf(text + at, sizeof text - at, "%08x",
				       r->op[k].coll.signature);
	rc = comm_explain(c, text, &said);
	for (unsigned i = 0; !rc && i < c->n; i++) {
		size_t k = 0;

		if (op_run_has_joined(said[i]))
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
static berth_result report_mismatch(struct engine *e, struct berth_request *r)
{
	struct comm *c = e->comm;
	char code[OP_CODE_BYTES] = OP_RUN_JOINED;
	struct failure why = { .rc = BERTH_MISMATCH };
	const char **said;
	size_t which;
	berth_result rc = find_different(e, r, &which);

	if (!rc && r)
		op_encode(code, &r->op[which]);
	if (!rc)
		rc = comm_explain(c, code, &said);
	if (rc || !r)
		return rc;
	op_run_say_sides(c, &r->op[which], said, &why);
	snprintf(why.tensor, sizeof why.tensor, "%s",
		 r->op[which].name ? r->op[which].name : "");
	trace_count(&e->count.errors, 1);
	engine_complete(e, r, BERTH_MISMATCH, &why);
	return BERTH_OK;
}

/* Of a request: what a rank that has joined could not take part in, else its first. */
static const struct op *hardest(const struct berth_request *r)
{
	for (size_t k = 0; k < r->n; k++)
		if (r->op[k].coll.kind != BERTH_ALLREDUCE &&
		    r->op[k].coll.kind != BERTH_BARRIER)
			return &r->op[k];
	return r->op;
}

/* How many operations of the request ranks that have joined are to take part in: all
 * others say the same. */
static berth_result told_count(struct comm *c, const char **said, unsigned *n)
{
	const char *first = NULL;
	char end;

	*n = 1;
	for (unsigned i = 0; i < c->n; i++) {
		if (op_run_has_joined(said[i]))
			continue;
		first = first ? first : said[i];
		if (strcmp(said[i], first) || sscanf(first, "%u%c", n, &end) != 1)
			return comm_refuse(c, i);
	}
	return BERTH_OK;
}

/* Of a rank that has joined. */
static berth_result take_part(struct engine *e)
{
	struct comm *c = e->comm;
	const char **said;
	berth_result rc = comm_explain(c, OP_RUN_JOINED, &said);
	uint64_t taken = 0;
	unsigned n;

	if (!rc)
		rc = told_count(c, said, &n);
	while (!rc && n--) {
		rc = comm_explain(c, OP_RUN_JOINED, &said);
		if (!rc)
			rc = op_run_take_part(c, said, 0, &taken);
	}
	e->joiner.taken += taken > 0;
	return rc;
}

/* Of the others, of which all have R. */
static berth_result do_beside(struct engine *e, struct berth_request *r,
			      struct failure *why)
{
	struct comm *c = e->comm;
	char code[OP_CODE_BYTES];
	const char **said;
	size_t n = hardest(r) == r->op ? r->n : 1;
	berth_result rc;

	snprintf(code, sizeof code, "%zu", n);
	rc = comm_explain(c, code, &said);
	for (size_t k = 0; !rc && k < n; k++) {
		const struct op *op = k ? &r->op[k] : hardest(r);

		op_encode(code, op);
		rc = comm_explain(c, code, &said);
		if (!rc)
			rc = op_run_refuse(c, op, said, why);
		if (!rc)
			rc = op_run_with_joined(c, op, r->deadline_ns);
	}
	return rc;
}

/* Some ranks have joined.  The operations are done one by one, and each is first told
 * to those ranks. */
static berth_result do_with_joined(struct engine *e, struct berth_request *r)
{
	struct failure why = { .rc = BERTH_OK };
	berth_result rc;

	if (!r)
		return take_part(e);
	rc = do_beside(e, r, &why);
	if (rc && rc != BERTH_INVALID)
		rc = comm_failed(e->comm, rc, r->op, &why);
	engine_complete(e, r, rc, &why);
	return rc == BERTH_INVALID ? BERTH_OK : rc;
}

/* What comes of a round. */
struct found {
	bool waits;     /* a rank, for what the plan holds back */
	bool all;       /* units of the plan are done as well */
	size_t n;       /* requests to be done, at the beginning of e->list */
	bool did;       /* something else */
	uint64_t cycle; /* of the plan, at the beginning */
	size_t ndone;
};

static struct berth_request *ours(struct engine *e, const struct entry *unit)
{
	struct berth_request *r;

	pthread_mutex_lock(&e->queue);
	r = engine_find(e, unit->key);
	pthread_mutex_unlock(&e->queue);
	return r;
}

/* All ranks have R, which is FIRST in LEADER: it is done, unless the plan does. */
static berth_result take(struct engine *e, struct berth_request *r, unsigned leader,
			 bool first, struct found *found)
{
	struct plan_unit unit;
	berth_result rc = BERTH_OK;
	bool later;

	if (!r) /* it is done: LEADER has it twice */
		return comm_refuse(e->comm, leader);
	unit = r->unit;
	unit.first = first;
	pthread_mutex_lock(&e->queue);
	if (plan_comes_again(&e->plan, &unit))
		rc = plan_wrap(&e->plan, &unit);
	later = !found->all && plan_expects(&e->plan, &unit);
	if (!rc && !later)
		rc = plan_note(&e->plan, &unit);
	pthread_mutex_unlock(&e->queue);
	r->found = !rc && !later;
	if (r->found)
		e->list[found->n++] = r;
	return rc;
}

/* Ranks that lack it have told us something else meanwhile. */
static berth_result lacks(struct engine *e, struct berth_request *r,
			  const struct common *found)
{
	struct comm *c = e->comm;

	c->op = r->op;
	comm_stalled(c, r->submitted_ns, &e->reported_ns, found->lacking,
		     found->nlacking);
	if (!comm_is_over(c, r->submitted_ns, r->deadline_ns))
		return BERTH_OK;
	memcpy(c->late, found->lacking, sizeof c->late);
	c->nlate = found->nlacking;
	comm_end(c, BERTH_TIMEOUT);
	return BERTH_TIMEOUT;
}

/* Which of LEADER's units, of which it has each once, all ranks have, and in the same
 * way. */
static berth_result compare(struct engine *e, uint64_t most, unsigned leader,
			    struct found *found)
{
	struct head *list = engine_list_of(e, most, leader);
	berth_result rc = BERTH_OK;

	for (uint64_t i = 0; !rc && i < list->n; i++) {
		const struct entry *unit = &engine_entries(list)[i];
		struct common common = look_up(e, most, leader, unit);
		struct berth_request *r = ours(e, unit);

		if (r && r->found) {
			rc = comm_refuse(e->comm, leader);
		} else if (!common.all) {
			if (r)
				rc = lacks(e, r, &common);
		} else if (!common.same) {
			rc = report_mismatch(e, r);
		} else if (common.joined) {
			found->did = true;
			rc = do_with_joined(e, r);
		} else {
			rc = take(e, r, leader, unit->first, found);
		}
	}
	return rc;
}

static int by_bucket(const void *a, const void *b)
{
	const struct berth_request *x = *(struct berth_request *const *)a,
				   *y = *(struct berth_request *const *)b;

	if (x->bucket != y->bucket)
		return x->bucket < y->bucket ? -1 : 1;
	return (x->at > y->at) - (x->at < y->at);
}

static berth_result do_found(struct engine *e, size_t n)
{
	struct plan_fusion f = { .nopen = 0 };
	berth_result rc = BERTH_OK;

	for (size_t i = 0; i < n; i++) {
		struct berth_request *r = e->list[i];

		r->at = (uint32_t)i;
		r->bucket = plan_fuse(&f, &r->unit, 0, e->fuse_bytes);
	}
	if (n)
		qsort(e->list, n, sizeof(struct berth_request *), by_bucket);
	for (size_t i = 0, k; !rc && i < n; i += k) {
		uint32_t bucket = e->list[i]->bucket,
			 signature = e->list[i]->unit.signature;

		for (k = 1; i + k < n && e->list[i + k]->bucket == bucket;)
			k++;
		rc = engine_do(e, &e->list[i], k, signature ^ (uint32_t)(k << 8));
	}
	return rc;
}

static enum engine_step round_failed(struct engine *e, berth_result rc)
{
	struct failure why = { .rc = rc };

	if (rc == BERTH_MISMATCH) { /* others were at a bucket: now they know */
		end_turn(e, rc);
		e->called = true;
		return ENGINE_DID;
	}
	rc = comm_failed(e->comm, rc, e->comm->op, &why);
	end_turn(e, rc);
	engine_complete_all(e, rc, &why);
	return ENGINE_DID;
}

/* ---- all have joined ---- */

/* Who joined later took part in less; of those with equally much, who came later. */
static unsigned last_of(const struct joiner *all, unsigned n)
{
	unsigned last = 0;

	for (unsigned i = 1; i < n; i++)
		if (all[i].taken < all[last].taken ||
		    (all[i].taken == all[last].taken &&
		     all[i].time_ns >= all[last].time_ns))
			last = i;
	return last;
}

static berth_result find_last(struct engine *e)
{
	struct comm *c = e->comm;
	struct joiner *all = comm_scratch(c, c->n * sizeof *all);
	struct coll gather = { .kind = BERTH_ALLGATHER,
			       .type = BERTH_U64,
			       .in = &e->joiner,
			       .out = all,
			       .count = sizeof e->joiner / sizeof(uint64_t),
			       .signature = LAST_JOINED };
	berth_result rc = all ? BERTH_OK : BERTH_MEMORY;

	e->last_joined = 0;
	if (c->n == 1)
		return BERTH_OK;
	begin_turn(e, 0);
	if (!rc)
		rc = comm_step(c, &gather, 0);
	if (!rc)
		e->last_joined = last_of(all, c->n);
	return rc;
}

static enum engine_step all_have_joined(struct engine *e)
{
	berth_result rc = find_last(e);

	if (rc)
		return round_failed(e, rc);
	end_turn(e, BERTH_OK);
	pthread_mutex_lock(&e->queue);
	e->joined = false;
	e->joiner.taken = 0;
	e->unnamed = 0; /* ranks that had joined have submitted fewer */
	plan_restart_numbers(&e->plan);
	engine_look_again(e);
	pthread_mutex_unlock(&e->queue);
	atomic_fetch_add(&e->all_joined, 1);
	engine_wake(&e->all_joined);
	return ENGINE_DID;
}

/* ---- all had blocked ---- */

/* What a thread of each rank had blocked on, which are different operations. */
static enum engine_step all_are_direct(struct engine *e, struct berth_request *r)
{
	struct failure why = { .rc = BERTH_MISMATCH };
	char code[OP_CODE_BYTES];
	const char **said;
	berth_result rc;

	begin_turn(e, 1);
	op_encode(code, r->op);
	rc = comm_explain(e->comm, code, &said);
	if (rc)
		return round_failed(e, rc);
	end_turn(e, BERTH_OK);
	op_run_say_sides(e->comm, r->op, said, &why);
	snprintf(why.tensor, sizeof why.tensor, "%s", r->op->name ? r->op->name : "");
	trace_count(&e->count.errors, 1);
	pthread_mutex_lock(&e->queue); /* as if it had not been submitted */
	e->unnamed -= r->unit.number && r->unit.number == e->unnamed;
	pthread_mutex_unlock(&e->queue);
	engine_complete(e, r, BERTH_MISMATCH, &why);
	return ENGINE_DID;
}



static berth_result tell_in_turn(struct engine *e, const struct head *own,
				 struct told *told)
{
	uint64_t begun_ns = timeline_runs ? clock_ns() : 0;
	berth_result rc;

	begin_turn(e, own->pending);
	rc = engine_tell(e, own, told, first_deadline(e, own->pending));
	for (size_t i = 0; begun_ns && i < own->pending; i++)
		timeline_event(e->list[i]->op->name ? e->list[i]->op->name : "",
			       "NEGOTIATE", begun_ns, clock_ns());
	if (rc)
		return rc;
	trace_count(&e->count.negotiations, 1);
	end_turn(e, BERTH_OK);
	return BERTH_OK;
}

/* A round was for nothing: what stood for it is pending still, unless it failed. */
static void wait_on(struct engine *e, uint64_t key)
{
	pthread_mutex_lock(&e->queue);
	if (engine_find(e, key))
		trace_queued(e->comm->record);
	pthread_mutex_unlock(&e->queue);
}

/* All ranks are in the same cycle from here on. */
static berth_result begin_round(struct engine *e, const struct told *told,
				struct found *found)
{
	uint64_t was = e->plan.cycle;
	berth_result rc;

	pthread_mutex_lock(&e->queue);
	rc = plan_round(&e->plan, told->cycle, told->base);
	pthread_mutex_unlock(&e->queue);
	*found = (struct found){ .waits = told->waits,
				 .all = told->waits || told->joined,
				 .did = was != e->plan.cycle,
				 .cycle = e->plan.cycle,
				 .ndone = e->plan.ndone };
	return rc;
}

static berth_result end_round(struct engine *e, struct found *found)
{
	struct plan *p = &e->plan;
	berth_result rc = BERTH_OK;

	pthread_mutex_lock(&e->queue);
	found->did |= p->cycle != found->cycle;
	if (found->waits && p->cycle == found->cycle && p->ndone > found->ndone)
		rc = plan_cut(p);
	engine_look_again(e);
	pthread_mutex_unlock(&e->queue);
	return rc;
}

/* What was told brought nothing: it is told again, ever later. */
static void rest(struct engine *e, bool idle)
{
	uint64_t ns;

	e->idle_rounds = idle ? e->idle_rounds + 1 : 0;
	ns = (uint64_t)AGAIN_NS << (e->idle_rounds < 7 ? e->idle_rounds : 7);
	ns = ns < AGAIN_NS_MOST ? ns : AGAIN_NS_MOST;
	atomic_store(&e->again_ns, idle ? clock_ns() + ns : 0);
}

static enum engine_step negotiate(struct engine *e)
{
	struct head own = snapshot(e);
	struct berth_request *direct = e->direct;
	struct told told;
	struct found found;
	unsigned leader;
	uint64_t key = own.pending ? e->list[0]->unit.key : 0;
	berth_result rc;

	e->called = false;
	e->direct = NULL;
	rc = tell_in_turn(e, &own, &told);
	if (rc)
		return round_failed(e, rc);
	if (told.direct && direct)
		return all_are_direct(e, direct);
	leader = find_leader(e, told.most);
	if (leader == e->comm->n)
		return all_have_joined(e);
	sort_lists(e, told.most, leader);
	rc = begin_round(e, &told, &found);
	if (!rc)
		rc = compare(e, told.most, leader, &found);
	if (!rc)
		rc = do_found(e, found.n);
	if (!rc)
		rc = end_round(e, &found);
	if (rc)
		return round_failed(e, rc);
	rest(e, !found.n && !found.did);
	if (e->idle_rounds && own.pending)
		wait_on(e, key);
	return ENGINE_DID;
}

/* ---- the plan ---- */

static enum engine_step follow_plan(struct engine *e, size_t n)
{
	uint64_t cycle = e->plan.cycle;
	berth_result rc = engine_do(e, e->list, n, plan_signature(&e->plan));

	if (rc == BERTH_MISMATCH) {
		e->called = true;
		return ENGINE_DID;
	}
	pthread_mutex_lock(&e->queue);
	rc = plan_advance(&e->plan);
	if (e->plan.cycle != cycle)
		engine_look_again(e);
	pthread_mutex_unlock(&e->queue);
	return rc ? round_failed(e, rc) : ENGINE_DID;
}

/* Nothing was submitted for a while, and what is here waits for more: a rank that does
 * not wait comes to a round now and then, since others may wait there. */
static bool is_quiet(struct engine *e, uint64_t now, uint64_t *ns)
{
	uint64_t quiet = now - e->entered_ns,
		 due = (uint64_t)QUIET_NS << (e->visits < 8 ? e->visits : 8);

	if (!e->pending || now < e->entered_ns)
		return false;
	if (quiet >= due) {
		e->visits++;
		return true;
	}
	if (!*ns || due - quiet < *ns)
		*ns = due - quiet;
	return false;
}

/* Is a round needed?  *NS: or in so many.  QUEUE is held. */
static bool is_called(struct engine *e, uint64_t *ns)
{
	uint64_t now = clock_ns(), again = atomic_load(&e->again_ns);

	if (!e->beside && !e->joined && !engine_is_wanted(e, now, ns))
		return is_quiet(e, now, ns);
	if (now >= again)
		return true;
	*ns = again - now;
	return false;
}

enum engine_step engine_step(struct engine *e, uint64_t *ns)
{
	berth_result rc = BERTH_OK;
	bool here, call;
	size_t n = 0;

	*ns = 0;
	if (e->comm->broken) {
		struct failure why;

		engine_complete_all(e, comm_broken(e->comm, &why), &why);
		return ENGINE_IDLE;
	}
	if (e->called)
		return negotiate(e);
	pthread_mutex_lock(&e->queue);
	here = engine_bucket_is_here(e);
	if (!here) {
		rc = engine_begin_cycle(e);
		here = engine_bucket_is_here(e);
	}
	if (here)
		n = engine_take_bucket(e);
	call = !here && is_called(e, ns);
	pthread_mutex_unlock(&e->queue);
	if (rc)
		return round_failed(e, rc);
	if (here)
		return follow_plan(e, n);
	if (call)
		return negotiate(e);
	return *ns ? ENGINE_SOON : ENGINE_IDLE;
}
