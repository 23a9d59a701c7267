#include "lib/core/join.h"

#include "lib/base/kern.h"
#include "lib/core/engine.h"
#include "lib/core/op_run.h"
#include "lib/core/world.h"

static const struct op joining = {
	.coll = { .kind = BERTH_BARRIER, .signature = OP_RUN_JOIN },
	.name = "berth_join",
};

/* What ranks tell each other when all have joined. */
struct joiner {
	uint64_t taken;   /* operations of others that it took part in */
	uint64_t time_ns; /* when it joined, by the clock of rank 0's host */
};

/* What others call for that this rank did not, and its part in it. */
static berth_result answer(struct comm *c, uint64_t *taken)
{
	const char **said = NULL;
	berth_result rc = comm_explain(c, OP_RUN_JOINED, &said);

	return rc ? rc : op_run_take_part(c, said, 0, taken);
}

static void begin(struct comm *c)
{
	c->op = &joining;
	c->no_stall_check = true;
	c->seq++;
	c->record = trace_begin(&c->world->memory, &joining.coll, joining.name, c->id,
				c->seq, BOOT_RECORD_RUNS);
}

static berth_result end(struct comm *c, berth_result rc, struct failure *why)
{
	c->no_stall_check = false;
	if (rc)
		rc = comm_failed(c, rc, &joining, why);
	c->op = NULL;
	return rc;
}

static berth_result join_calls(struct comm *c, uint64_t *taken, struct failure *why)
{
	berth_result rc = BERTH_MISMATCH;
	bool all;

	if (c->n == 1)
		return BERTH_OK;
	do {
		begin(c);
		rc = comm_step(c, &joining.coll, 0);
		all = rc != BERTH_MISMATCH;
		if (!all)
			rc = answer(c, taken);
		op_run_end(c, rc);
	} while (!rc && !all);
	return end(c, rc, why);
}

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

static berth_result find_last(struct comm *c, const struct joiner *mine, unsigned *last,
			      struct failure *why)
{
	struct joiner *all = comm_scratch(c, c->n * sizeof *all);
	struct coll gather = { .kind = BERTH_ALLGATHER,
			       .type = BERTH_U64,
			       .in = mine,
			       .out = all,
			       .count = sizeof *mine / sizeof(uint64_t),
			       .signature = OP_RUN_JOIN + 1 };
	berth_result rc = BERTH_OK;

	*last = 0;
	if (c->n == 1)
		return BERTH_OK;
	begin(c);
	rc = all ? comm_step(c, &gather, 0) : BERTH_MEMORY;
	op_run_end(c, rc);
	if (!rc)
		*last = last_of(all, c->n);
	return end(c, rc, why);
}

berth_result join_begin(struct berth_set *set, unsigned *last, struct failure *why)
{
	struct joiner mine = { .time_ns = clock_ns() +
					  (uint64_t)set->world->who.clock_offset_ns };
	berth_result rc;

	engine_join_begin(set->engine);
	rc = join_calls(&set->now, &mine.taken, why);
	if (!rc)
		rc = engine_join_wait(set->engine, &mine.taken, why);
	return rc ? rc : find_last(&set->now, &mine, last, why);
}
