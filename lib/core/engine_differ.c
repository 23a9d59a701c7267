#include <stdio.h>
#include <string.h>

#include "lib/core/engine_round.h"

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
berth_result engine_tell_difference(struct engine *e, struct berth_request *r)
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
	engine_complete(e, &r, 1, BERTH_MISMATCH, &why);
	return BERTH_OK;
}

enum engine_step engine_all_have_blocked(struct engine *e, struct berth_request *r)
{
	struct failure why = { .rc = BERTH_MISMATCH };
	char code[OP_CODE_BYTES];
	const char **said;
	berth_result rc;

	engine_begin_turn(e, 1);
	op_encode(code, r->op);
	rc = comm_explain(e->comm, code, &said);
	if (rc)
		return engine_round_failed(e, rc);
	engine_end_turn(e, BERTH_OK);
	op_run_say_sides(e->comm, r->op, said, &why);
	snprintf(why.tensor, sizeof why.tensor, "%s", r->op->name ? r->op->name : "");
	trace_count(&e->count.errors, 1);
	pthread_mutex_lock(&e->queue); /* as if it had not been submitted */
	e->unnamed -= r->unit.number && r->unit.number == e->unnamed;
	schedule_event(&e->schedule, SCHEDULE_DONE);
	pthread_mutex_unlock(&e->queue);
	engine_complete(e, &r, 1, BERTH_MISMATCH, &why);
	return ENGINE_DID;
}
