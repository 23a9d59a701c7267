#include "lib/core/engine_round.h"

void engine_begin_turn(struct engine *e, size_t n)
{
	struct comm *c = e->comm;

	c->seq++;
	c->op = n ? e->list[0]->op : &e->idle;
	c->no_stall_check = !n;
	c->record = trace_begin(&e->comm->world->memory, &c->op->coll, c->op->name,
				c->id, c->seq, BOOT_RECORD_RUNS);
	engine_call(e);
	if (n) /* which has been told of in earlier turns, perhaps */
		c->record->begun = e->list[0]->submitted_ns;
}

void engine_end_turn(struct engine *e, berth_result rc)
{
	struct comm *c = e->comm;

	op_run_end(c, rc);
	c->no_stall_check = false;
	c->op = &e->idle;
}

enum engine_step engine_round_failed(struct engine *e, berth_result rc)
{
	struct failure why = { .rc = rc };

	if (rc == BERTH_MISMATCH) { /* others were at a bucket: now they know */
		engine_end_turn(e, rc);
		e->called = true;
		return ENGINE_DID;
	}
	rc = comm_failed(e->comm, rc, e->comm->op, &why);
	engine_end_turn(e, rc);
	engine_complete_all(e, rc, &why);
	return ENGINE_DID;
}

void engine_end_aborted(struct engine *e)
{
	struct failure why;
	berth_result rc;

	comm_abort(e->comm);
	rc = comm_broken(e->comm, &why);
	engine_complete_all(e, rc, &why);
}
