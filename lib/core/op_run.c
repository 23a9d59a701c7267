/* op_run.c - an operation, from checked to done (comm.h). */
#include <stdlib.h>
#include <string.h>

#include "lib/base/kern.h"
#include "lib/base/rank_text.h"
#include "lib/core/adasum.h"
#include "lib/core/comm_device.h"
#include "lib/core/op_counts.h"
#include "lib/core/op_run.h"
#include "lib/core/world.h"

/* ---- ranks that called for different things ---- */

bool op_run_has_joined(const char *said)
{
	return said[0] == OP_RUN_JOINED[0];
}

/* The words of the operation that it called for. */
static const char *words_of(const char *said)
{
	const char *line = strchr(said, '\n');

	return line ? line + 1 : said;
}

/* Places that called for the same as place FIRST, as far as words tell. */
static size_t same_as(const struct comm *c, const char **said, unsigned first,
		      unsigned *rank)
{
	size_t n = 0;

	for (unsigned i = 0; i < c->members->n; i++)
		if (!strcmp(words_of(said[i]), words_of(said[first])))
			rank[n++] = c->members->rank[i];
	return n;
}

static bool is_first(const char **said, unsigned place)
{
	for (unsigned i = 0; i < place; i++)
		if (!strcmp(words_of(said[i]), words_of(said[place])))
			return false;
	return true;
}

void op_run_say_sides(struct comm *c, const struct op *op, const char **said,
		      struct failure *why)
{
	unsigned *rank = comm_scratch(c, c->members->n * sizeof *rank);
	char ranks[128];
	size_t at, sides = 0;

	at = (size_t)snprintf(why->text, sizeof why->text,
			      "the ranks called for different things: ");
	for (unsigned i = 0; i < c->members->n && sides < 3; i++) {
		size_t n;

		if (!is_first(said, i) || op_run_has_joined(said[i]))
			continue;
		n = rank ? same_as(c, said, i, rank) : 0;
		rank_text(ranks, sizeof ranks, rank, n);
		at += (size_t)snprintf(why->text + at, sizeof why->text - at,
				       "%s%s %s for %s", sides++ ? "; " : "",
				       n == 1 ? "rank" : "ranks", ranks,
				       words_of(said[i]));
		if (at >= sizeof why->text)
			return;
	}
	if (sides == 1) /* words have neither counts nor all of scales and names */
		snprintf(why->text + at, sizeof why->text - at, "%s that differ",
			 op->coll.in_counts || op->coll.out_counts
				 ? ""
				 : ", with scales or ends of names");
	for (unsigned i = 0; i < c->members->n && why->nmissing < 64; i++)
		if (strcmp(said[i], said[c->members->me]))
			why->missing[why->nmissing++] = c->members->rank[i];
}

/* ---- with ranks that have joined ---- */

uint32_t op_run_joined_signature(uint32_t signature)
{
	return signature ^ 0x4a4f494e;
}

/* Can a rank without data take part in OP? */
static bool is_possible(const struct op *op)
{
	return !op_is_device(op) &&
	       (op->coll.kind == BERTH_ALLREDUCE || op->coll.kind == BERTH_BARRIER);
}

berth_result op_run_refuse(struct comm *c, const struct op *op, const char **said,
			   struct failure *why)
{
	unsigned *rank = comm_scratch(c, c->members->n * sizeof *rank);
	char words[OP_WORDS_BYTES], ranks[128];
	size_t n = 0;

	if (is_possible(op))
		return BERTH_OK;
	for (unsigned i = 0; rank && i < c->members->n; i++)
		if (op_run_has_joined(said[i]))
			rank[n++] = c->members->rank[i];
	rank_text(ranks, sizeof ranks, rank, n);
	op_words(words, sizeof words, op);
	memset(why, 0, sizeof *why);
	why->rc = BERTH_STATE;
	snprintf(why->tensor, sizeof why->tensor, "%s", op->name ? op->name : "");
	snprintf(why->text, sizeof why->text,
		 "%s: rank%s %s ha%s joined: only allreduce and barrier%s can go on",
		 words, n == 1 ? "" : "s", ranks, n == 1 ? "s" : "ve",
		 op_is_device(op) ? " of host memory" : "");
	return BERTH_STATE;
}

/* A scaled product, least or greatest of which a rank gives what changes nothing: the
 * others scale theirs, since that would be scaled, too. */
static bool scales_apart(const struct coll *c)
{
	return c->scale.has_prescale && c->op != BERTH_SUM;
}

static berth_result scale_apart(struct comm *c, struct coll *coll)
{
	const struct kern_scale before = { .has_prescale = true,
					   .prescale = coll->scale.prescale };
	void *to = comm_scratch(c, coll->count * kern_size(coll->type));
	struct kern k;

	if (!to)
		return BERTH_MEMORY;
	kern_make(&k, coll->type, BERTH_SUM, &before, KERN_ELEMENTS, KERN_ELEMENTS);
	kern_reduce(&k, &to, 1, &coll->in, 1, coll->count, false);
	coll->in = to;
	coll->scale.has_prescale = false;
	return BERTH_OK;
}

static berth_result run_anyhow(struct comm *c, bool adasum, const struct coll *coll,
			       uint64_t deadline_ns)
{
	return adasum ? adasum_run(c, coll, deadline_ns)
		      : comm_step(c, coll, deadline_ns);
}

berth_result op_run_with_joined(struct comm *c, const struct op *op,
				uint64_t deadline_ns)
{
	struct coll again = op->coll;
	berth_result rc = BERTH_OK;

	if (scales_apart(&again))
		rc = scale_apart(c, &again);
	if (rc)
		return rc;
	again.signature = op_run_joined_signature(op->coll.signature);
	return run_anyhow(c, op->adasum, &again, deadline_ns);
}

static berth_result give_nothing(struct comm *c, struct op *op, uint64_t deadline_ns)
{
	struct coll *coll = &op->coll;
	size_t bytes = coll->count * kern_size(coll->type);
	unsigned char *p = malloc(bytes + 1);
	berth_result rc;

	if (!p) { /* the others count on it already */
		comm_end(c, BERTH_MEMORY);
		return BERTH_MEMORY;
	}
	op_fill_neutral(p, coll, coll->count);
	if (scales_apart(coll))
		coll->scale.has_prescale = false;
	coll->in = coll->out = p;
	coll->signature = op_run_joined_signature(coll->signature);
	rc = run_anyhow(c, op->adasum, coll, deadline_ns);
	free(p);
	return rc;
}

berth_result op_run_take_part(struct comm *c, const char **said, uint64_t deadline_ns)
{
	const char *code = NULL, *words;
	struct op op;

	for (unsigned i = 0; i < c->members->n; i++) {
		if (op_run_has_joined(said[i]))
			continue;
		if (code && strcmp(code, said[i]))
			return BERTH_OK; /* an error of theirs */
		code = said[i];
	}
	if (!code || op_decode(&op, code, c->members->n, &words) || !is_possible(&op))
		return BERTH_OK;
	return give_nothing(c, &op, deadline_ns);
}

/* ---- the operation ---- */

/* A small array that is summed in place may have been written before ranks, more than
 * two, find that they differ (backend.h): it is kept, since the sum may be done anew,
 * without a plan or with ranks that have joined. */
static berth_result in_place(struct comm *c, const struct coll *coll,
			     uint64_t deadline_ns)
{
	size_t bytes = coll->count * kern_size(coll->type);
	berth_result rc;

	if (!c->kept)
		c->kept = malloc(BACKEND_EARLY_BYTES);
	if (!c->kept)
		return BERTH_MEMORY;
	memcpy(c->kept, coll->in, bytes);
	rc = comm_step(c, coll, deadline_ns);
	if (rc == BERTH_MISMATCH)
		memcpy(coll->out, c->kept, bytes);
	return rc;
}

static bool needs_care(const struct comm *c, const struct coll *coll)
{
	return coll->kind == BERTH_ALLREDUCE && coll->in == coll->out && coll->count &&
	       !c->back->leaves_out && c->members->n > 2 &&
	       coll->count * kern_size(coll->type) <= BACKEND_EARLY_BYTES;
}

berth_result op_run_perform(struct comm *c, const struct op *op, struct coll *coll,
			    uint64_t deadline_ns, struct failure *why)
{
	berth_result rc;

	if (op->own_counts)
		return op_counts_run(c, op, coll, deadline_ns, why);
	if (op_is_device(op))
		return comm_device_run(c, op, coll, deadline_ns);
	if (c->members->n == 1) {
		coll_alone(coll);
		return BERTH_OK;
	}
	if (op->adasum)
		rc = adasum_run(c, coll, deadline_ns);
	else if (needs_care(c, coll))
		rc = in_place(c, coll, deadline_ns);
	else
		rc = comm_step(c, coll, deadline_ns);
	return rc;
}

static berth_result fail(struct comm *c, berth_result rc, const struct op *op,
			 struct failure *why)
{
	if (rc != BERTH_MISMATCH) {
		trace_count(&c->count.errors, 1);
		return comm_failed(c, rc, op, why);
	}
	why->rc = rc;
	if (*why->text) {
		trace_count(&c->count.errors, 1);
		snprintf(why->tensor, sizeof why->tensor, "%s",
			 op->name ? op->name : "");
	}
	return rc;
}

void op_run_slept(struct comm *c, berth_result rc)
{
	struct memory *m = &c->world->memory;

	trace_end_late(c->record, rc);
	atomic_store(&m->rank[m->local_rank].waits, 0);
	trace_count(&c->count.wait_ns, clock_ns() - c->begun_ns);
	c->begun_ns = 0;
}

const char *op_run_event(berth_kind kind)
{
	static const char *const name[KIND_COUNT] = {
		"",          "ALLREDUCE", "REDUCE",   "REDUCESCATTER",
		"ALLGATHER", "BROADCAST", "ALLTOALL", "BARRIER",
		"GATHER",    "SCATTER",   "SEND",     "RECV"
	};

	return name[kind];
}

berth_result comm_run(struct comm *c, const struct op *op, struct failure *why)
{
	struct memory *m = &c->world->memory;
	uint64_t deadline_ns = 0, begun_ns = 0;
	struct coll coll = op->coll;
	berth_result rc;

	if (c->broken)
		return comm_broken(c, why);
	if (op->timeout_ms || c->world->timeout_ms)
		deadline_ns = comm_deadline(c, op);
	if (timeline_runs)
		begun_ns = clock_ns();
	c->seq++;
	c->op = op;
	c->record = trace_begin(m, &coll, op->name, c->id, c->seq, BOOT_RECORD_RUNS);
	why->text[0] = '\0';
	why->rc = BERTH_OK;
	why->nmissing = 0;
	rc = op_run_perform(c, op, &coll, deadline_ns, why);
	if (rc)
		rc = fail(c, rc, op, why);
	op_run_end(c, rc);
	if (begun_ns)
		timeline_event(op->name ? op->name : "", op_run_event(coll.kind),
			       begun_ns, clock_ns());
	c->op = NULL;
	if (rc == BERTH_MISMATCH && !*why->text)
		return rc;
	trace_count(&c->count.operations, 1);
	trace_count(&c->count.bytes, coll.count * kern_size(coll.type));
	return rc;
}
