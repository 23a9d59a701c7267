#include "lib/core/join.h"

#include "lib/base/kern.h"
#include "lib/core/engine.h"
#include "lib/core/op_run.h"
#include "lib/core/world.h"

static const struct op joining = {
	.coll = { .kind = BERTH_BARRIER, .signature = OP_RUN_JOIN },
	.name = "berth_join",
};

/* What others call for that this rank did not, and its part in it. */
static berth_result answer(struct comm *c, unsigned *last)
{
	const char **said = NULL;
	berth_result rc = comm_explain(c, OP_RUN_JOINED, &said);

	for (unsigned i = 0; !rc && i < c->n; i++)
		if (!op_run_has_joined(said[i]))
			*last = i;
	return rc ? rc : op_run_take_part(c, said, 0);
}

static berth_result join_calls(struct comm *c, unsigned *last, struct failure *why)
{
	berth_result rc = BERTH_MISMATCH;
	bool all;

	*last = c->n - 1;
	if (c->n == 1)
		return BERTH_OK;
	c->op = &joining;
	c->no_stall_check = true;
	do {
		c->seq++;
		c->record = trace_begin(&c->world->memory, &joining.coll, joining.name,
					c->id, c->seq, BOOT_RECORD_RUNS);
		rc = comm_step(c, &joining.coll, 0);
		all = rc != BERTH_MISMATCH;
		if (!all)
			rc = answer(c, last);
		op_run_end(c, rc);
	} while (!rc && !all);
	c->no_stall_check = false;
	if (rc)
		rc = comm_failed(c, rc, &joining, why);
	c->op = NULL;
	return rc;
}

berth_result join_begin(struct berth_set *set, unsigned *last, struct failure *why)
{
	berth_result rc;

	engine_join_begin(set->engine);
	rc = join_calls(&set->now, last, why);
	return rc ? rc : engine_join_wait(set->engine, why);
}
