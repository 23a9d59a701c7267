#include <stdio.h>
#include <string.h>

#include "lib/core/engine_round.h"

enum { LAST_JOINED = 0x4c4a4f49 /* signature of what only this file calls for */ };

/* Of a request: what a rank that has joined could not take part in, else its first. */
static const struct op *hardest(const struct berth_request *r)
{
	for (size_t k = 0; k < r->n; k++)
		if (op_is_device(&r->op[k]) || (r->op[k].coll.kind != BERTH_ALLREDUCE &&
						r->op[k].coll.kind != BERTH_BARRIER))
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
berth_result engine_do_with_joined(struct engine *e, struct berth_request *r)
{
	struct failure why = { .rc = BERTH_OK };
	berth_result rc;

	if (!r)
		return take_part(e);
	rc = do_beside(e, r, &why);
	if (rc && rc != BERTH_STATE)
		rc = comm_failed(e->comm, rc, r->op, &why);
	engine_complete(e, &r, 1, rc, &why);
	return rc == BERTH_STATE ? BERTH_OK : rc;
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

static berth_result find_last(struct engine *e, unsigned *last)
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

	*last = 0;
	if (c->n == 1)
		return BERTH_OK;
	engine_begin_turn(e, 0);
	if (!rc)
		rc = comm_step(c, &gather, 0);
	if (!rc)
		*last = last_of(all, c->n);
	return rc;
}

enum engine_step engine_all_have_joined(struct engine *e)
{
	unsigned last;
	berth_result rc = find_last(e, &last);

	if (rc)
		return engine_round_failed(e, rc);
	engine_end_turn(e, BERTH_OK);
	pthread_mutex_lock(&e->queue);
	e->schedule.joined = false;
	schedule_event(&e->schedule, SCHEDULE_DONE);
	e->last_joined = last;
	e->joiner.taken = 0;
	e->unnamed = 0; /* ranks that had joined have submitted fewer */
	plan_restart_numbers(&e->plan);
	engine_look_again(e);
	pthread_mutex_unlock(&e->queue);
	atomic_fetch_add(&e->all_joined, 1);
	sleep_wake(&e->all_joined);
	return ENGINE_DID;
}
