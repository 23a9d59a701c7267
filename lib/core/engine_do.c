#include <stdlib.h>
#include <string.h>

#include "lib/base/kern.h"
#include "lib/core/engine_internal.h"

enum { ALIGN = 64 };

static size_t padded(const struct op *op)
{
	return (op->coll.count * kern_size(op->coll.type) + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- together ---- */

static bool has_fusion(struct engine *e, size_t bytes)
{
	struct memory *m = &e->comm->world->memory;

	if (bytes <= e->fusion_bytes)
		return true;
	if (e->fusion && e->fusion_is_heap)
		memory_free(m, e->fusion);
	else
		free(e->fusion);
	e->fusion_bytes = 0;
	e->fusion = memory_alloc(m, bytes);
	e->fusion_is_heap = e->fusion;
	if (!e->fusion)
		e->fusion = aligned_alloc(ALIGN, bytes);
	if (e->fusion)
		e->fusion_bytes = bytes;
	return e->fusion;
}

static size_t fused_bytes(struct berth_request **r, size_t n)
{
	size_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < r[i]->n; k++)
			bytes += padded(&r[i]->op[k]);
	return bytes;
}

static void pack(struct engine *e, struct berth_request **r, size_t n)
{
	unsigned char *to = e->fusion;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < r[i]->n; k++) {
			const struct op *op = &r[i]->op[k];
			size_t bytes = op->coll.count * kern_size(op->coll.type);

			kern_copy(to, op->coll.in, bytes, false);
			if (padded(op) > bytes)
				memset(to + bytes, 0, padded(op) - bytes);
			to += padded(op);
		}
}

static void unpack(struct engine *e, struct berth_request **r, size_t n)
{
	const unsigned char *from = e->fusion;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < r[i]->n; k++) {
			const struct op *op = &r[i]->op[k];

			kern_copy(op->coll.out, from,
				  op->coll.count * kern_size(op->coll.type), false);
			from += padded(op);
		}
}

static void note_times(struct berth_request **r, size_t n, const char *what,
		       uint64_t begun_ns)
{
	uint64_t now = clock_ns();

	for (size_t i = 0; i < n; i++)
		timeline_event(r[i]->op->name ? r[i]->op->name : "", what, begun_ns,
			       now);
}

/* Where the back end takes the arrays as they lie, nothing is packed. */
static bool in_pieces(struct engine *e, struct berth_request **r, size_t n,
		      struct coll *coll)
{
	const struct comm *c = e->comm;
	size_t pieces = 0, size = kern_size(coll->type);
	uint64_t at = 0;

	if (!c->back->pieces_bytes || c->members->n == 1)
		return false;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < r[i]->n; k++) {
			const struct op *op = &r[i]->op[k];

			if (pieces == ENGINE_PIECES)
				return false;
			e->piece[pieces++] =
				(struct coll_piece){ op->coll.in, op->coll.out, at };
			at += op->coll.count;
			pieces -= !op->coll.count;
		}
	if (at * size <= c->back->pieces_bytes)
		return false;
	coll->count = at;
	coll->piece = e->piece;
	coll->npieces = pieces;
	return true;
}

static berth_result as_they_lie(struct engine *e, struct berth_request **r, size_t n,
				const struct coll *coll, uint64_t deadline_ns)
{
	uint64_t begun_ns = timeline_runs ? clock_ns() : 0;
	berth_result rc = comm_step(e->comm, coll, deadline_ns);

	if (begun_ns)
		note_times(r, n, "ALLREDUCE", begun_ns);
	return rc;
}

static berth_result together(struct engine *e, struct berth_request **r, size_t n,
			     uint32_t signature, uint64_t deadline_ns)
{
	size_t bytes = fused_bytes(r, n);
	const struct coll *like = &r[0]->op->coll;
	struct coll coll = { .kind = BERTH_ALLREDUCE,
			     .type = like->type,
			     .op = like->op,
			     .scale = like->scale,
			     .count = bytes / kern_size(like->type),
			     .signature = signature };
	uint64_t begun_ns = timeline_runs ? clock_ns() : 0;
	berth_result rc = BERTH_OK;

	if (op_is_device(r[0]->op))
		return engine_do_on_device(e, r, n, signature, deadline_ns);
	if (in_pieces(e, r, n, &coll))
		return as_they_lie(e, r, n, &coll, deadline_ns);
	if (!has_fusion(e, bytes))
		return BERTH_MEMORY;
	coll.in = coll.out = e->fusion;
	pack(e, r, n);
	if (begun_ns) {
		note_times(r, n, "MEMCPY_IN_FUSION_BUFFER", begun_ns);
		begun_ns = clock_ns();
	}
	if (e->comm->members->n > 1)
		rc = comm_step(e->comm, &coll, deadline_ns);
	else
		coll_alone(&coll);
	if (begun_ns) {
		note_times(r, n, "ALLREDUCE", begun_ns);
		begun_ns = clock_ns();
	}
	if (!rc)
		unpack(e, r, n);
	if (begun_ns)
		note_times(r, n, "MEMCPY_OUT_FUSION_BUFFER", begun_ns);
	return rc;
}

/* ---- one by one ---- */

static berth_result one(struct engine *e, const struct op *op, uint32_t signature,
			uint64_t deadline_ns, struct failure *why)
{
	struct comm *c = e->comm;
	struct coll coll = op->coll;
	uint64_t begun_ns = timeline_runs ? clock_ns() : 0;
	berth_result rc;

	coll.signature = signature;
	rc = op_run_perform(c, op, &coll, deadline_ns, why);
	if (begun_ns)
		timeline_event(op->name ? op->name : "", op_run_event(coll.kind),
			       begun_ns, clock_ns());
	return rc;
}

static berth_result each(struct engine *e, struct berth_request *r, uint32_t signature,
			 uint64_t deadline_ns, struct failure *why)
{
	berth_result rc = BERTH_OK;

	e->beginning = r->ndevice ? r : NULL;
	for (size_t k = 0; !rc && k < r->n; k++) {
		rc = one(e, &r->op[k], signature + (uint32_t)k, deadline_ns, why);
		if (!rc && e->comm->work) {
			r->op[k].marked = false; /* it is the work's now */
			works_let_go(e->comm->work);
			e->comm->work = NULL;
		}
	}
	e->beginning = NULL;
	return rc;
}

/* ---- both ---- */

static uint64_t earliest(struct berth_request **r, size_t n)
{
	uint64_t at = 0;

	for (size_t i = 0; i < n; i++)
		if (r[i]->deadline_ns && (!at || r[i]->deadline_ns < at))
			at = r[i]->deadline_ns;
	return at;
}

static bool is_fused(const struct engine *e, const struct berth_request *r)
{
	return r->unit.fuse_key && e->fuse_bytes;
}

static void count(struct engine *e, struct berth_request **r, size_t n, berth_result rc)
{
	size_t ops = 0, bytes = 0;

	for (size_t i = 0; i < n; i++) {
		ops += r[i]->n;
		for (size_t k = 0; k < r[i]->n; k++)
			bytes += r[i]->op[k].coll.count *
				 kern_size(r[i]->op[k].coll.type);
	}
	trace_count(&e->count.bytes, bytes);
	trace_count(&e->count.operations, ops);
	trace_count(&e->count.errors, rc != BERTH_OK);
	if (ops > 1 && is_fused(e, r[0]))
		trace_count(&e->count.fused, ops);
}

static void queue_times(struct berth_request **r, size_t n)
{
	uint64_t now = clock_ns();

	for (size_t i = 0; timeline_runs && i < n; i++)
		if (r[i]->submitted_ns)
			timeline_event(r[i]->op->name ? r[i]->op->name : "", "QUEUE",
				       r[i]->submitted_ns, now);
}

berth_result engine_do(struct engine *e, struct berth_request **r, size_t n,
		       uint32_t signature)
{
	struct comm *c = e->comm;
	uint64_t deadline_ns = earliest(r, n);
	struct failure why = { .rc = BERTH_OK };
	berth_result rc;

	c->seq++;
	c->op = r[0]->op;
	c->record = trace_begin(&e->comm->world->memory, &c->op->coll, c->op->name,
				c->id, c->seq, BOOT_RECORD_RUNS);
	engine_call(e);
	if (timeline_runs)
		queue_times(r, n);
	if (is_fused(e, r[0]) && (n > 1 || r[0]->n > 1))
		rc = together(e, r, n, signature, deadline_ns);
	else
		rc = each(e, r[0], signature, deadline_ns, &why);
	op_run_end(c, rc);
	if (rc && rc != BERTH_MISMATCH)
		rc = comm_failed(c, rc, r[0]->op, &why);
	why.rc = rc;
	c->op = &e->idle;
	if (rc == BERTH_MISMATCH && !*why.text)
		return rc;
	count(e, r, n, rc);
	for (size_t i = 0; !rc && i < n; i++)
		engine_launched(r[i]);
	engine_complete(e, r, n, rc, &why);
	return rc == BERTH_MISMATCH ? BERTH_OK : rc;
}
