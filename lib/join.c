#include "lib/join.h"

#include <stdlib.h>
#include <string.h>

#include "lib/call.h"
#include "lib/engine.h"
#include "lib/kern.h"
#include "lib/world.h"

enum { JOIN = 0x4a4f494e };

uint32_t call_joined_signature(uint32_t signature)
{
	return signature ^ JOIN;
}

/* A rank that has data has called for what others can take part in. */
static berth_result is_possible(const struct op *op, const char **said)
{
	return op->coll.kind == BERTH_BROADCAST && call_has_joined(said[op->coll.root])
		       ? BERTH_INVALID
		       : BERTH_OK;
}

berth_result call_with_joined(struct channel *c, const struct coll *coll,
			      const char *record, const char **said,
			      uint64_t deadline_ns)
{
	struct coll again = *coll;
	struct op op;
	const char *words;
	berth_result rc = op_of_record(&op, record, &words);

	if (!rc)
		rc = is_possible(&op, said);
	if (rc)
		return rc;
	again.signature = call_joined_signature(op.coll.signature);
	return channel_step(c, &again, deadline_ns);
}

static berth_result give_nothing(struct channel *c, struct op *op, uint64_t deadline_ns)
{
	struct coll *coll = &op->coll;
	size_t in = coll->count * kern_size(coll->type),
	       out = coll->kind == BERTH_ALLGATHER ? in * c->n : in;
	unsigned char *p = channel_scratch(c, in + out + 128);

	if (!p) { /* the others count on it already */
		channel_end(c, BERTH_MEMORY);
		return BERTH_MEMORY;
	}
	op_fill_neutral(p, coll, coll->count);
	coll->in = p;
	coll->out = p + (in + 63) / 64 * 64;
	coll->signature = call_joined_signature(coll->signature);
	return channel_step(c, coll, deadline_ns);
}

berth_result call_take_part(struct channel *c, const char **said, uint64_t deadline_ns)
{
	const char *record = NULL, *words;
	struct op op;

	for (unsigned i = 0; i < c->n; i++) {
		if (call_has_joined(said[i]))
			continue;
		if (record && strcmp(record, said[i]))
			return BERTH_OK; /* an error of theirs */
		record = said[i];
	}
	if (!record || op_of_record(&op, record, &words) || is_possible(&op, said))
		return BERTH_OK;
	return give_nothing(c, &op, deadline_ns);
}

static const struct op joining = {
	.coll = { .kind = BERTH_BARRIER, .signature = JOIN },
	.name = "berth_join",
	.prescale = 1,
	.postscale = 1,
};

/* What others call for that this rank did not, and its part in it. */
static berth_result answer(struct channel *c, unsigned *last)
{
	const char **said = NULL;
	berth_result rc = channel_explain(c, CALL_JOINED, &said);

	for (unsigned i = 0; !rc && i < c->n; i++)
		if (!call_has_joined(said[i]))
			*last = i;
	return rc ? rc : call_take_part(c, said, 0);
}

static berth_result join_calls(struct channel *c, unsigned *last, struct failure *why)
{
	berth_result rc = BERTH_MISMATCH;
	bool all;

	*last = c->n - 1;
	if (c->n == 1)
		return BERTH_OK;
	c->op = &joining;
	c->patient = true;
	do {
		c->turn++;
		c->flight = trace_begin(&c->world->memory, &joining.coll, joining.name,
					c->id, c->turn, BOOT_FLIGHT_RUNS);
		rc = channel_step(c, &joining.coll, 0);
		all = rc != BERTH_MISMATCH;
		if (!all)
			rc = answer(c, last);
		call_end(c, rc);
	} while (!rc && !all);
	c->patient = false;
	if (rc)
		rc = channel_failed(c, rc, &joining, why);
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
