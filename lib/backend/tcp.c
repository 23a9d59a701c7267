#include "lib/backend/tcp_internal.h"

#include <stdlib.h>
#include <string.h>

enum { EXPLANATION = 0x45585031 /* signature; it is not an operation */ };

/* ---- joining ---- */

static void tcp_leave(void *group)
{
	struct tcp *t = group;

	if (!t)
		return;
	free(t->rank);
	free(t->bound);
	free(t->room);
	free(t->texts);
	free(t);
}

void *tcp_join(const struct tcp_config *config)
{
	struct tcp *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	t->lanes = config->lanes;
	t->net = config->net;
	t->group = config->group;
	t->n = config->n;
	t->me = config->me;
	t->rank = malloc(t->n * sizeof *t->rank);
	t->bound = calloc(t->n + 1, sizeof *t->bound);
	t->numbers = tune_guess;
	if (config->algorithms)
		tune_read(&t->numbers.choices, config->algorithms);
	if (!t->rank || !t->bound) {
		tcp_leave(t);
		return NULL;
	}
	memcpy(t->rank, config->rank, t->n * sizeof *t->rank);
	return t;
}

/* ---- the agreement ---- */

/* Probes at the first operation of the group. */
static berth_result tcp_ready(struct tcp *t, uint64_t deadline_ns)
{
	if (t->broken)
		return t->why;
	if (t->probed || t->n == 1)
		return BERTH_OK;
	t->probed = true;
	return tcp_probe(t, deadline_ns);
}

static berth_result tcp_agree(void *group, const struct coll *c,
			      struct signatures *signatures, uint64_t deadline_ns)
{
	struct tcp *t = group;
	struct tcp_op w = tcp_op(t, c, deadline_ns);
	berth_result rc = tcp_ready(t, deadline_ns);

	if (rc)
		return rc;
	t->seq++;
	t->step = 0;
	t->has_other = false;
	t->signatures = *signatures;
	w.agrees = true;
	rc = tcp_round(&w, c->count ? TUNE_DOUBLE : TUNE_ALGORITHMS);
	*signatures = t->signatures;
	return rc;
}

/* ---- the back end ---- */

static struct tune_plan plan_of(const struct tcp *t, const struct coll *c)
{
	const struct tune_work w = tcp_work(t, c);

	return tune_choose(&t->numbers, &w);
}

static berth_result tcp_move_data(struct tcp_op *w)
{
	const struct coll *c = w->c;

	if (w->t->n == 1) {
		coll_alone(c);
		return BERTH_OK;
	}
	switch (c->kind) {
	case BERTH_ALLREDUCE:
		return tcp_round(w, plan_of(w->t, c).algorithm);
	case BERTH_REDUCE:
		return tcp_reduce(w);
	case BERTH_REDUCESCATTER:
		return tcp_reducescatter(w);
	case BERTH_ALLGATHER:
		return tcp_allgather(w);
	case BERTH_BROADCAST:
		return tcp_broadcast(w);
	case BERTH_ALLTOALL:
		return tcp_alltoall(w);
	case BERTH_GATHER:
		return tcp_gather(w);
	case BERTH_SCATTER:
		return tcp_scatter(w);
	default:
		return BERTH_OK;
	}
}

static berth_result tcp_data(void *group, const struct coll *c, uint64_t deadline_ns)
{
	struct tcp *t = group;
	struct tcp_op w = tcp_op(t, c, deadline_ns);
	berth_result rc = t->broken ? t->why : BERTH_OK;

	if (c->kind == BERTH_ALLREDUCE)
		rc = tcp_ready(t, deadline_ns);
	if (rc)
		return rc;
	t->seq++;
	t->step = 0;
	w.lanes = plan_of(t, c).lanes;
	return tcp_move_data(&w);
}

static berth_result tcp_begin(void *group, const struct coll *c, uint64_t deadline_ns)
{
	struct tcp *t = group;
	struct tcp_op w = tcp_op(t, c, deadline_ns);
	struct tune_plan plan = { TUNE_ALGORITHMS, 1 };
	berth_result rc = tcp_ready(t, deadline_ns);

	if (rc)
		return rc;
	if (c->kind == BERTH_ALLREDUCE && c->count && t->n > 1)
		plan = plan_of(t, c);
	/* in a group of two, each rank has all signatures with the first data */
	if (plan.algorithm == TUNE_DIRECT || plan.lanes > 1 ||
	    (t->n > 2 && c->count * w.size > BACKEND_EARLY_BYTES))
		plan.algorithm = TUNE_ALGORITHMS;
	t->seq++;
	t->step = 0;
	t->has_other = false;
	t->signatures = (struct signatures){ c->signature, c->signature, t->me, t->me };
	w.agrees = true;
	rc = tcp_round(&w, plan.algorithm);
	if (!rc && tcp_differs(t)) {
		t->other = t->signatures.low == c->signature ? t->signatures.high_at
							     : t->signatures.low_at;
		t->has_other = t->other < t->n; /* the number comes from peers */
		return BERTH_MISMATCH;
	}
	w.agrees = false;
	w.lanes = plan.lanes;
	return rc || plan.algorithm != TUNE_ALGORITHMS ? rc : tcp_move_data(&w);
}

static size_t tcp_others(const void *group, unsigned *which, size_t most)
{
	const struct tcp *t = group;

	if (t->has_other && most)
		*which = t->other;
	return t->has_other;
}

static berth_result tcp_explain(void *group, const char *text, const char **said)
{
	struct tcp *t = group;
	struct coll c = { .kind = BERTH_ALLGATHER,
			  .type = BERTH_U8,
			  .count = BACKEND_TEXT_BYTES,
			  .signature = EXPLANATION };
	struct tcp_op w = tcp_op(t, &c, 0);
	char *own;
	berth_result rc;

	if (!t->texts)
		t->texts = malloc((size_t)t->n * BACKEND_TEXT_BYTES);
	if (!t->texts)
		return tcp_fail(t, BERTH_MEMORY, t->rank[t->me]);
	t->seq++;
	t->step = 0;
	own = t->texts + (size_t)t->me * BACKEND_TEXT_BYTES;
	memset(own, 0, BACKEND_TEXT_BYTES);
	memcpy(own, text, strnlen(text, BACKEND_TEXT_BYTES - 1));
	c.in = own;
	c.out = t->texts;
	rc = tcp_allgather(&w);
	for (unsigned i = 0; i < t->n; i++) {
		char *copy = t->texts + (size_t)i * BACKEND_TEXT_BYTES;

		copy[BACKEND_TEXT_BYTES - 1] = '\0';
		said[i] = copy;
	}
	return rc;
}

/* A rank that leaves by itself says so as it closes its connections.  Its messages from
 * before still count, since others may need them to hear why. */
static void tcp_revoke(void *group, berth_result result, unsigned lost)
{
	struct tcp *t = group;

	t->broken = true;
	t->why = result;
	if (result != BERTH_ABORTED)
		t->lanes->end(t->net, lost < t->n ? t->rank[lost] : lost, result);
}

static size_t tcp_algorithms(const void *group, char *text, size_t bytes)
{
	const struct tcp *t = group;

	return tune_table(text, bytes, &t->numbers, t->n);
}

const struct backend tcp_backend = { .name = "tcp",
				     .begin = tcp_begin,
				     .others = tcp_others,
				     .explain = tcp_explain,
				     .revoke = tcp_revoke,
				     .leave = tcp_leave,
				     .algorithms = tcp_algorithms,
				     .agree = tcp_agree,
				     .data = tcp_data };
