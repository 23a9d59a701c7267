#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/core/engine_internal.h"

enum {
	NEGOTIATE = 0x4e45474f, /* signatures of what only this file calls for */
	LISTS = 0x4c495354,
	BREAK = 0x4252454b,
	WANTED_NS = 1000000, /* a unit of the plan that somebody waits for and that
				    others keep from being done: the plan is left */
	AGAIN_NS = 50000,
	AGAIN_NS_MOST = 5000000 /* to the next idle_rounds round */
};

/* What a rank tells of a unit. */
struct entry {
	uint64_t key;
	uint32_t signature, unused;
};

/* What a rank tells: its entries follow. */
struct head {
	uint64_t n, joined;
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
static void snapshot(struct engine *e, size_t *n, bool *joined)
{
	pthread_mutex_lock(&e->queue);
	*n = 0;
	*joined = e->joined;
	for (struct berth_request *r = e->first; r && *n < ENGINE_PENDING_MOST;
	     r = r->next)
		e->list[(*n)++] = r;
	pthread_mutex_unlock(&e->queue);
	sort_by_priority(e->list, *n);
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

/* ---- the plan holds ---- */

/* QUEUE is held. */
static void leave_plan(struct engine *e)
{
	plan_break(&e->plan);
	e->have = 0;
	e->unplanned = 0;
}

/* WORK is held: a step that none of the others has can't be done, which tells them. */
static enum engine_step break_plan(struct engine *e)
{
	struct comm *c = e->comm;
	struct coll coll = { .kind = BERTH_BARRIER, .signature = BREAK };
	struct failure why;
	berth_result rc = BERTH_OK;
	size_t n;
	bool joined;

	snapshot(e, &n, &joined);
	begin_turn(e, n);
	if (c->n > 1)
		rc = comm_step(c, &coll, first_deadline(e, n));
	if (rc && rc != BERTH_MISMATCH) {
		rc = comm_failed(c, rc, c->op, &why);
		engine_complete_all(e, rc, &why);
	}
	end_turn(e, rc);
	pthread_mutex_lock(&e->queue);
	leave_plan(e);
	pthread_mutex_unlock(&e->queue);
	return ENGINE_DID;
}

/* Is somebody waiting for what the plan keeps from being done?  QUEUE is held. */
static bool is_wanted(const struct engine *e, uint64_t now, uint64_t *soon)
{
	for (const struct berth_request *r = e->first; r; r = r->next) {
		uint64_t since = atomic_load(&r->wanted_ns);

		if (since && now >= since + WANTED_NS)
			return true;
		if (since && (!*soon || since + WANTED_NS - now < *soon))
			*soon = since + WANTED_NS - now;
	}
	return false;
}

bool engine_bucket_is_here(struct engine *e)
{
	const struct plan *p = &e->plan;

	for (; e->have < p->bucket[p->next + 1]; e->have++) {
		struct berth_request *r = engine_find(e, p->unit[e->have].key);

		if (!r || r->unit.signature != p->unit[e->have].signature)
			return false;
	}
	return true;
}

/* QUEUE is held. */
static size_t take_bucket(struct engine *e)
{
	const struct plan *p = &e->plan;
	size_t from = p->bucket[p->next], n = p->bucket[p->next + 1] - from;

	for (size_t i = 0; i < n; i++)
		e->list[i] = engine_find(e, p->unit[from + i].key);
	return n;
}

static enum engine_step follow_plan(struct engine *e, uint64_t *ns)
{
	bool here, leave;
	size_t n = 0;
	berth_result rc;

	pthread_mutex_lock(&e->queue);
	here = engine_bucket_is_here(e);
	if (here)
		n = take_bucket(e);
	*ns = 0;
	leave = !here && (e->unplanned || e->joined || is_wanted(e, clock_ns(), ns));
	pthread_mutex_unlock(&e->queue);
	if (leave)
		return break_plan(e);
	if (!here)
		return *ns ? ENGINE_SOON : ENGINE_IDLE;
	rc = engine_do(e, e->list, n, plan_signature(&e->plan));
	pthread_mutex_lock(&e->queue);
	if (rc == BERTH_MISMATCH) {
		leave_plan(e);
	} else {
		plan_advance(&e->plan);
		if (!e->plan.next)
			e->have = 0;
	}
	pthread_mutex_unlock(&e->queue);
	return ENGINE_DID;
}

/* ---- no plan yet: a round of telling ---- */

static size_t bytes_of_list(uint64_t most)
{
	return sizeof(struct head) + most * sizeof(struct entry);
}

static struct head *list_of(const struct engine *e, uint64_t most, unsigned place)
{
	return (struct head *)((unsigned char *)e->lists + place * bytes_of_list(most));
}

static struct entry *entries(struct head *h)
{
	return (struct entry *)(h + 1);
}

static berth_result room_for_lists(struct engine *e, uint64_t most)
{
	size_t bytes = bytes_of_list(most) * e->comm->n;

	if (bytes > e->lists_bytes) {
		free(e->lists);
		e->lists_bytes = 0;
		e->lists = malloc(bytes);
		if (!e->lists)
			return BERTH_MEMORY;
		e->lists_bytes = bytes;
	}
	return BERTH_OK;
}

/* All ranks' lists, each with room for *MOST entries. */
static berth_result tell(struct engine *e, size_t n, bool joined, uint64_t *most,
			 uint64_t deadline_ns)
{
	struct comm *c = e->comm;
	uint64_t mine[2] = { n, ~e->comm->world->params.fusion_bytes },
		 all[2] = { mine[0], mine[1] };
	struct coll largest = { .kind = BERTH_ALLREDUCE,
				.in = mine,
				.out = all,
				.count = 2,
				.type = BERTH_U64,
				.op = BERTH_MAX,
				.signature = NEGOTIATE };
	struct coll lists = { .kind = BERTH_ALLGATHER,
			      .type = BERTH_U64,
			      .signature = LISTS };
	struct head *h;
	berth_result rc = BERTH_OK;

	if (c->n > 1)
		rc = comm_step(c, &largest, deadline_ns);
	*most = all[0];
	if (!rc)
		rc = room_for_lists(e, *most);
	if (rc)
		return rc;
	e->fuse_bytes = ~all[1];
	h = list_of(e, *most, c->me);
	memset(h, 0, bytes_of_list(*most));
	*h = (struct head){ n, joined };
	for (size_t i = 0; i < n; i++)
		entries(h)[i] = (struct entry){ e->list[i]->unit.key,
						e->list[i]->unit.signature, 0 };
	lists.in = h;
	lists.out = e->lists;
	lists.count = bytes_of_list(*most) / 8;
	return c->n > 1 ? comm_step(c, &lists, deadline_ns) : BERTH_OK;
}

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
		struct head *h = list_of(e, most, r);
		const struct entry *there;

		if (r == leader)
			continue;
		there = bsearch(unit, entries(h), h->n, sizeof *there, by_key);
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
		if (list_of(e, most, r)->n)
			pending = r;
	for (unsigned r = 0; r < n; r++)
		if (!list_of(e, most, r)->joined)
			return r;
	return pending;
}

static void sort_lists(const struct engine *e, uint64_t most, unsigned leader)
{
	for (unsigned r = 0; r < e->comm->n; r++) {
		struct head *h = list_of(e, most, r);

		if (r != leader)
			qsort(entries(h), h->n, sizeof(struct entry), by_key);
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

/* How many operations of the request ranks that have joined are to take part in. */
static unsigned told_count(const struct comm *c, const char **said)
{
	unsigned n = 1;

	for (unsigned i = 0; i < c->n; i++)
		if (!op_run_has_joined(said[i]))
			sscanf(said[i], "%u", &n);
	return n;
}

/* Of a rank that has joined. */
static berth_result take_part(struct engine *e)
{
	struct comm *c = e->comm;
	const char **said;
	berth_result rc = comm_explain(c, OP_RUN_JOINED, &said);
	unsigned n = rc ? 0 : told_count(c, said);
	uint64_t taken = 0;

	while (!rc && n--) {
		rc = comm_explain(c, OP_RUN_JOINED, &said);
		if (!rc)
			rc = op_run_take_part(c, said, 0, &taken);
	}
	e->taken += taken > 0;
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

/* Some ranks have joined: one by one, with all being told what it is. */
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

/* What came of a round. */
struct found {
	size_t n;  /* requests to be done, at the beginning of e->list */
	bool did;  /* something, with who has joined */
	bool plan; /* which holds from now on: nothing is to be done */
};

static struct berth_request *ours(struct engine *e, const struct entry *unit)
{
	struct berth_request *r;

	pthread_mutex_lock(&e->queue);
	r = engine_find(e, unit->key);
	pthread_mutex_unlock(&e->queue);
	return r;
}

static bool note_in_plan(struct engine *e, struct berth_request *r, berth_result *rc)
{
	bool holds;

	pthread_mutex_lock(&e->queue);
	holds = plan_note(&e->plan, &r->unit, e->fuse_bytes, rc);
	if (holds) {
		e->have = 0;
		e->unplanned = 0;
		for (struct berth_request *p = e->first; p; p = p->next)
			e->unplanned += !plan_has(&e->plan, &p->unit);
	}
	pthread_mutex_unlock(&e->queue);
	return holds;
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

/* Which of LEADER's units all ranks have, and in the same way. */
static berth_result compare(struct engine *e, uint64_t most, unsigned leader,
			    struct found *found)
{
	struct head *list = list_of(e, most, leader);
	berth_result rc = BERTH_OK;

	memset(found, 0, sizeof *found);
	for (uint64_t i = 0; !rc && !found->plan && i < list->n; i++) {
		const struct entry *unit = &entries(list)[i];
		struct common common = look_up(e, most, leader, unit);
		struct berth_request *r = common.all ? ours(e, unit) : NULL;

		if (!common.all) {
			r = ours(e, unit);
			if (r)
				rc = lacks(e, r, &common);
		} else if (!common.same) {
			rc = report_mismatch(e, r);
		} else if (common.joined) {
			found->did = true;
			rc = do_with_joined(e, r);
		} else if (note_in_plan(e, r, &rc)) {
			found->plan = true;
		} else if (!rc) {
			e->list[found->n++] = r;
		}
	}
	return rc;
}

static berth_result do_found(struct engine *e, size_t n)
{
	berth_result rc = BERTH_OK;

	for (size_t i = 0, k; !rc && i < n; i += k) {
		struct plan_unit unit[64];

		for (k = 0; k < 64 && i + k < n; k++)
			unit[k] = e->list[i + k]->unit;
		k = plan_together(unit, k, e->fuse_bytes);
		rc = engine_do(e, &e->list[i], k,
			       unit[0].signature ^ (uint32_t)(k << 8));
	}
	return rc;
}

static void all_have_joined(struct engine *e)
{
	pthread_mutex_lock(&e->queue);
	e->joined = false;
	pthread_mutex_unlock(&e->queue);
	atomic_fetch_add(&e->all_joined, 1);
	engine_wake(&e->all_joined);
}

static enum engine_step round_failed(struct engine *e, berth_result rc)
{
	struct failure why = { .rc = rc };

	if (rc == BERTH_MISMATCH) { /* others had a plan, which is broken now */
		end_turn(e, rc);
		pthread_mutex_lock(&e->queue);
		leave_plan(e);
		pthread_mutex_unlock(&e->queue);
		return ENGINE_DID;
	}
	rc = comm_failed(e->comm, rc, e->comm->op, &why);
	end_turn(e, rc);
	engine_complete_all(e, rc, &why);
	return ENGINE_DID;
}

static berth_result tell_in_turn(struct engine *e, size_t n, bool joined,
				 uint64_t *most)
{
	uint64_t begun_ns = timeline_runs ? clock_ns() : 0;
	berth_result rc;

	begin_turn(e, n);
	rc = tell(e, n, joined, most, first_deadline(e, n));
	trace_count(&e->count.negotiations, 1);
	for (size_t i = 0; begun_ns && i < n; i++)
		timeline_event(e->list[i]->op->name ? e->list[i]->op->name : "",
			       "NEGOTIATE", begun_ns, clock_ns());
	if (!rc)
		end_turn(e, BERTH_OK);
	return rc;
}

/* A round was for nothing: what stood for it is pending still, unless it failed. */
static void wait_on(struct engine *e, uint64_t key)
{
	pthread_mutex_lock(&e->queue);
	if (engine_find(e, key))
		trace_queued(e->comm->record);
	pthread_mutex_unlock(&e->queue);
}

static enum engine_step negotiate(struct engine *e, uint64_t *ns)
{
	bool joined;
	struct found found;
	unsigned leader;
	uint64_t most, key;
	size_t n;
	berth_result rc;

	snapshot(e, &n, &joined);
	if (!n && !joined)
		return ENGINE_IDLE;
	key = n ? e->list[0]->unit.key : 0;
	rc = tell_in_turn(e, n, joined, &most);
	if (rc)
		return round_failed(e, rc);
	leader = find_leader(e, most);
	if (leader == e->comm->n) {
		all_have_joined(e);
		return ENGINE_DID;
	}
	sort_lists(e, most, leader);
	rc = compare(e, most, leader, &found);
	if (!rc)
		rc = do_found(e, found.n);
	if (rc)
		return round_failed(e, rc);
	e->idle_rounds = found.n || found.did || found.plan ? 0 : e->idle_rounds + 1;
	if (!e->idle_rounds)
		return ENGINE_DID;
	if (n)
		wait_on(e, key);
	*ns = (uint64_t)AGAIN_NS << (e->idle_rounds < 7 ? e->idle_rounds : 7);
	*ns = *ns < AGAIN_NS_MOST ? *ns : AGAIN_NS_MOST;
	return ENGINE_SOON;
}

enum engine_step engine_step(struct engine *e, uint64_t *ns)
{
	*ns = 0;
	if (e->comm->broken) {
		struct failure why;

		engine_complete_all(e, comm_broken(e->comm, &why), &why);
		return ENGINE_IDLE;
	}
	return e->plan.holds ? follow_plan(e, ns) : negotiate(e, ns);
}
