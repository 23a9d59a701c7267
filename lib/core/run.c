#include "lib/core/run.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/kern.h"
#include "lib/base/rank_text.h"
#include "lib/core/adasum.h"
#include "lib/core/comm.h"
#include "lib/core/comm_device.h"
#include "lib/core/op_counts.h"
#include "lib/core/queue.h"
#include "lib/core/request.h"
#include "lib/core/rest.h"
#include "lib/core/totals.h"
#include "lib/core/works.h"
#include "lib/core/world.h"

enum {
	ALIGN = 64,
	APART_BYTES = 2 << 20 /* a device's array of so many is not packed */
};

/* ---- ranks that called for different things ---- */

bool run_has_joined(const char *said)
{
	return said[0] == RUN_JOINED[0];
}

/* The words of the operation that it called for. */
static const char *run_words(const char *said)
{
	const char *line = strchr(said, '\n');

	return line ? line + 1 : said;
}

/* Places that called for the same as place FIRST, as far as words tell. */
static size_t run_same_as(const struct comm *c, const char **said, unsigned first,
			  unsigned *rank)
{
	size_t n = 0;

	for (unsigned i = 0; i < c->members->n; i++)
		if (!strcmp(run_words(said[i]), run_words(said[first])))
			rank[n++] = c->members->rank[i];
	return n;
}

static bool run_is_first(const char **said, unsigned place)
{
	for (unsigned i = 0; i < place; i++)
		if (!strcmp(run_words(said[i]), run_words(said[place])))
			return false;
	return true;
}

void run_say_sides(struct comm *c, const struct op *op, const char **said,
		   struct failure *why)
{
	unsigned *rank = comm_scratch(c, c->members->n * sizeof *rank);
	char ranks[128];
	size_t at, sides = 0;

	at = (size_t)snprintf(why->text, sizeof why->text,
			      "the ranks called for different things: ");
	for (unsigned i = 0; i < c->members->n && sides < 3; i++) {
		size_t n;

		if (!run_is_first(said, i) || run_has_joined(said[i]))
			continue;
		n = rank ? run_same_as(c, said, i, rank) : 0;
		rank_text(ranks, sizeof ranks, rank, n);
		at += (size_t)snprintf(why->text + at, sizeof why->text - at,
				       "%s%s %s for %s", sides++ ? "; " : "",
				       n == 1 ? "rank" : "ranks", ranks,
				       run_words(said[i]));
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

bool run_are_alike(const struct comm *c, const char **said)
{
	berth_memory memory = BERTH_HOST;
	bool differ = false;
	const char *words;
	uint32_t first = 0;
	struct op op;

	for (unsigned i = 0; i < c->members->n; i++) {
		if (op_decode(&op, said[i], c->members->n, &words) ||
		    (i && op_alike(&op) != first))
			return false;
		differ |= i && op.memory != memory;
		first = op_alike(&op);
		memory = op.memory;
	}
	return differ; /* if not, the rank lies that led here */
}

/* ---- with ranks that have joined ---- */

uint32_t run_joined_signature(uint32_t signature)
{
	return signature ^ 0x4a4f494e;
}

/* Can a rank without data take part in OP? */
static bool run_may_join(const struct op *op)
{
	return op->coll.kind == BERTH_ALLREDUCE || op->coll.kind == BERTH_BARRIER;
}

berth_result run_refuse_joined(struct comm *c, const struct op *op, const char **said,
			       struct failure *why)
{
	unsigned *rank = comm_scratch(c, c->members->n * sizeof *rank);
	char words[OP_WORDS_BYTES], ranks[128];
	size_t n = 0;

	if (run_may_join(op))
		return BERTH_OK;
	for (unsigned i = 0; rank && i < c->members->n; i++)
		if (run_has_joined(said[i]))
			rank[n++] = c->members->rank[i];
	rank_text(ranks, sizeof ranks, rank, n);
	op_words(words, sizeof words, op);
	memset(why, 0, sizeof *why);
	why->rc = BERTH_STATE;
	snprintf(why->tensor, sizeof why->tensor, "%s", op->name ? op->name : "");
	snprintf(why->text, sizeof why->text,
		 "%s: rank%s %s ha%s joined: only allreduce and barrier can go on",
		 words, n == 1 ? "" : "s", ranks, n == 1 ? "s" : "ve");
	return BERTH_STATE;
}

/* A scaled product, least or greatest of which a rank gives what changes nothing: the
 * others scale theirs, since that would be scaled, too. */
static bool run_scales_apart(const struct coll *c)
{
	return c->scale.has_prescale && c->op != BERTH_SUM;
}

static berth_result run_scale_apart(struct comm *c, struct coll *coll)
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

/* A step of the caller's own data.  A large one is timed: two looks at the clock take
 * 0.5 % of 64 KiB in memory. */
static berth_result run_step(struct comm *c, const struct coll *coll,
			     uint64_t deadline_ns)
{
	const uint64_t bytes = coll->count * kern_size(coll->type);
	uint64_t begun_ns;
	berth_result rc;

	if (bytes < TOTALS_LARGE || coll->rows)
		return comm_step(c, coll, deadline_ns);
	begun_ns = clock_ns();
	rc = comm_step(c, coll, deadline_ns);
	if (!rc)
		totals_large(totals_of(&c->world->memory), coll->kind, bytes,
			     c->members->n, clock_ns() - begun_ns);
	return rc;
}

static berth_result run_sum(struct comm *c, bool adasum, const struct coll *coll,
			    uint64_t deadline_ns)
{
	return adasum ? adasum_run(c, coll, deadline_ns)
		      : run_step(c, coll, deadline_ns);
}

/* The work of OP, if it is on a device, needs nothing of its caller's any more. */
static void run_let_go(struct comm *c, struct op *op)
{
	if (!c->work)
		return;
	op->marked = false;
	works_let_go(c->work);
	c->work = NULL;
}

berth_result run_with_joined(struct comm *c, struct op *op, uint64_t deadline_ns)
{
	struct coll again = op->coll;
	berth_result rc = BERTH_OK;

	again.signature = run_joined_signature(op->coll.signature);
	if (op_is_work(op)) {
		again.scales_apart = run_scales_apart(&again);
		rc = comm_device_run(c, op, &again, deadline_ns);
		run_let_go(c, op);
		return rc;
	}
	if (run_scales_apart(&again))
		rc = run_scale_apart(c, &again);
	return rc ? rc : run_sum(c, op->adasum, &again, deadline_ns);
}

/* As run_neutral(), on a device, which has it done when this returns or later.
 * BERTH_UNSUPPORTED is common to all ranks. */
static berth_result run_neutral_there(struct comm *c, struct op *op,
				      uint64_t deadline_ns)
{
	struct coll *coll = &op->coll;
	berth_result rc;

	op->device = comm_device_last();
	coll->has_none = coll_reduces(coll->kind);
	coll->scales_apart = run_scales_apart(coll);
	op_fill_neutral(coll->neutral, coll, 1);
	coll->signature = run_joined_signature(coll->signature);
	rc = comm_device_run(c, op, coll, deadline_ns);
	run_let_go(c, op);
	return rc;
}

static berth_result run_neutral(struct comm *c, struct op *op, uint64_t deadline_ns)
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
	if (run_scales_apart(coll))
		coll->scale.has_prescale = false;
	coll->in = coll->out = p;
	coll->signature = run_joined_signature(coll->signature);
	rc = run_sum(c, op->adasum, coll, deadline_ns);
	free(p);
	return rc;
}

berth_result run_without_data(struct comm *c, const char **said, uint64_t deadline_ns)
{
	const char *code = NULL, *words;
	struct op op;

	for (unsigned i = 0; i < c->members->n; i++) {
		if (run_has_joined(said[i]))
			continue;
		if (code && strcmp(code, said[i]))
			return BERTH_OK; /* an error of theirs */
		code = said[i];
	}
	if (!code || op_decode(&op, code, c->members->n, &words) || !run_may_join(&op))
		return BERTH_OK;
	return op_is_work(&op) ? run_neutral_there(c, &op, deadline_ns)
			       : run_neutral(c, &op, deadline_ns);
}

/* ---- the operation ---- */

/* A small array that is summed in place may have been written before ranks, more than
 * two, find that they differ (backend.h): it is kept, since the sum may be done anew,
 * without a plan or with ranks that have joined. */
static berth_result run_in_place(struct comm *c, const struct coll *coll,
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

static bool run_needs_care(const struct comm *c, const struct coll *coll)
{
	return coll->kind == BERTH_ALLREDUCE && coll->in == coll->out && coll->count &&
	       !c->back->leaves_out && c->members->n > 2 &&
	       coll->count * kern_size(coll->type) <= BACKEND_EARLY_BYTES;
}

berth_result run_op(struct comm *c, const struct op *op, struct coll *coll,
		    uint64_t deadline_ns, struct failure *why)
{
	berth_result rc;

	if (op->own_counts)
		return op_counts_run(c, op, coll, deadline_ns, why);
	if (op_is_work(op))
		return comm_device_run(c, op, coll, deadline_ns);
	if (c->members->n == 1) {
		coll_alone(coll);
		return BERTH_OK;
	}
	if (op->adasum)
		rc = adasum_run(c, coll, deadline_ns);
	else if (run_needs_care(c, coll))
		rc = run_in_place(c, coll, deadline_ns);
	else
		rc = run_step(c, coll, deadline_ns);
	return rc;
}

static berth_result run_failed(struct comm *c, berth_result rc, const struct op *op,
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

void run_slept(struct comm *c, berth_result rc)
{
	struct memory *m = &c->world->memory;

	trace_end_late(c->record, rc);
	atomic_store(&m->rank[m->local_rank].waits, 0);
	trace_count(&c->count.wait_ns, clock_ns() - c->begun_ns);
	c->begun_ns = 0;
}

/* The operation itself, in the timeline. */
static void run_note_op(const struct comm *c, const struct op *op, uint64_t begun_ns,
			uint64_t called_ns, uint32_t part)
{
	static const char *const name[KIND_COUNT] = {
		"",          "ALLREDUCE", "REDUCE",   "REDUCESCATTER",
		"ALLGATHER", "BROADCAST", "ALLTOALL", "BARRIER",
		"GATHER",    "SCATTER",   "SEND",     "RECV"
	};
	const struct coll *coll = &op->coll;
	const struct timeline_op o = { .set = c->id,
				       .seq = c->seq,
				       .part = part,
				       .of = c->members->n,
				       .world = c->world->who.epoch,
				       .called_ns = called_ns,
				       .bytes = coll->count * kern_size(coll->type),
				       .like = coll->count << 16 |
					       (uint64_t)coll->kind << 8 | coll->type };

	timeline_operation(op->name ? op->name : "", name[coll->kind], begun_ns,
			   clock_ns(), &o);
}

berth_result run_blocking(struct comm *c, const struct op *op, struct failure *why)
{
	struct memory *m = &c->world->memory;
	struct boot_rank *me = totals_of(m);
	uint64_t deadline_ns = 0, begun_ns = 0, asleep_ns;
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
	rc = run_op(c, op, &coll, deadline_ns, why);
	if (rc)
		rc = run_failed(c, rc, op, why);
	asleep_ns = c->begun_ns;
	run_end(c, rc);
	if (asleep_ns)
		totals_blocked(clock_ns() - asleep_ns);
	if (begun_ns)
		run_note_op(c, op, begun_ns, begun_ns, 0);
	c->op = NULL;
	if (rc == BERTH_MISMATCH && !*why->text)
		return rc;
	trace_count(&c->count.operations, 1);
	trace_count(&c->count.bytes, coll.count * kern_size(coll.type));
	totals_add(me, coll.kind, coll.count * kern_size(coll.type), op->name);
	return rc;
}

/* ---- requests together, in host memory ---- */

static size_t run_padded(const struct op *op)
{
	return (op->coll.count * kern_size(op->coll.type) + ALIGN - 1) / ALIGN * ALIGN;
}

void run_free_fusion(struct memory *m, struct fusion *f)
{
	if (f->at && f->is_heap)
		memory_free(m, f->at);
	else
		free(f->at);
	*f = (struct fusion){ 0 };
}

static bool run_has_fusion(struct memory *m, struct fusion *f, size_t bytes)
{
	if (bytes <= f->bytes)
		return true;
	run_free_fusion(m, f);
	f->at = memory_alloc(m, bytes);
	f->is_heap = f->at;
	if (!f->at)
		f->at = aligned_alloc(ALIGN, bytes);
	if (f->at)
		f->bytes = bytes;
	return f->at;
}

static size_t run_fused_bytes(struct berth_request **r, size_t n)
{
	size_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < r[i]->n; k++)
			bytes += run_padded(&r[i]->op[k]);
	return bytes;
}

static void run_pack(struct berth_set *s, struct berth_request **r, size_t n)
{
	unsigned char *to = s->fusion.at;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < r[i]->n; k++) {
			const struct op *op = &r[i]->op[k];
			size_t bytes = op->coll.count * kern_size(op->coll.type);

			kern_copy(to, op->coll.in, bytes, false);
			if (run_padded(op) > bytes)
				memset(to + bytes, 0, run_padded(op) - bytes);
			to += run_padded(op);
		}
}

static void run_unpack(struct berth_set *s, struct berth_request **r, size_t n)
{
	const unsigned char *from = s->fusion.at;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < r[i]->n; k++) {
			const struct op *op = &r[i]->op[k];

			kern_copy(op->coll.out, from,
				  op->coll.count * kern_size(op->coll.type), false);
			from += run_padded(op);
		}
}

static void run_note_times(struct berth_request **r, size_t n, const char *what,
			   uint64_t begun_ns)
{
	uint64_t now = clock_ns();

	for (size_t i = 0; i < n; i++)
		timeline_event(r[i]->op->name ? r[i]->op->name : "", what, begun_ns,
			       now);
}

/* Where the back end takes the arrays as they lie, nothing is packed. */
static bool run_in_pieces(struct berth_set *s, struct berth_request **r, size_t n,
			  struct coll *coll)
{
	const struct comm *c = &s->comm;
	size_t pieces = 0, size = kern_size(coll->type);
	uint64_t at = 0;

	if (!c->back->pieces_bytes || c->members->n == 1)
		return false;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < r[i]->n; k++) {
			const struct op *op = &r[i]->op[k];

			if (pieces == SET_PIECES)
				return false;
			s->piece[pieces++] =
				(struct coll_piece){ op->coll.in, op->coll.out, at };
			at += op->coll.count;
			pieces -= !op->coll.count;
		}
	if (at * size <= c->back->pieces_bytes)
		return false;
	coll->count = at;
	coll->piece = s->piece;
	coll->npieces = pieces;
	return true;
}

static berth_result run_as_they_lie(struct berth_set *s, struct berth_request **r,
				    size_t n, const struct coll *coll,
				    uint64_t deadline_ns)
{
	uint64_t begun_ns = timeline_runs ? clock_ns() : 0;
	berth_result rc = run_step(&s->comm, coll, deadline_ns);

	for (size_t i = 0; begun_ns && i < n; i++)
		run_note_op(&s->comm, r[i]->op, begun_ns, r[i]->submitted_ns,
			    (uint32_t)i);
	return rc;
}

/* ---- requests together, on a device ---- */

static size_t run_bytes(const struct op *op)
{
	return op->coll.count * kern_size(op->coll.type);
}

/* COLL of all that is packed, at the end. */
static void run_add_packed(struct work *w, struct berth_request **r, size_t n,
			   struct coll_piece *piece)
{
	struct coll packed = r[0]->op->coll;

	packed.in = packed.out = NULL;
	packed.count = 0;
	packed.piece = piece;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < r[i]->n; k++) {
			const struct op *op = &r[i]->op[k];

			if (!op->coll.count || run_bytes(op) >= APART_BYTES)
				continue;
			piece[packed.npieces++] =
				(struct coll_piece){ op->coll.in, op->coll.out,
						     packed.count };
			packed.count += op->coll.count;
		}
	if (packed.npieces)
		w->coll[w->device.n++] = packed;
}

/* A coll for each large array, and one for the others. */
static struct work *run_make_fused(struct berth_set *s, struct berth_request **r,
				   size_t n)
{
	size_t ops = 0, large = 0;
	struct work *w;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < r[i]->n; k++, ops++)
			large += run_bytes(&r[i]->op[k]) >= APART_BYTES;
	w = comm_device_work(&s->comm, r[0]->op,
			     (struct work_room){ .colls = large + 1,
						 .pieces = ops,
						 .ready = ops,
						 .requests = n });
	if (!w)
		return NULL;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < r[i]->n; k++) {
			const struct op *op = &r[i]->op[k];

			if (run_bytes(op) >= APART_BYTES)
				w->coll[w->device.n++] = op->coll;
			if (op->mark)
				w->ready[w->device.nready++] = op->mark;
			comm_device_limit(w, op);
		}
	/* pieces stand behind the requests */
	run_add_packed(w, r, n, (struct coll_piece *)(w->request + n));
	return w;
}

static berth_result run_on_device(struct berth_set *s, struct berth_request **r,
				  size_t n, uint32_t signature, uint64_t deadline_ns)
{
	struct work *w = run_make_fused(s, r, n);
	berth_result rc;

	if (!w)
		return BERTH_MEMORY;
	request_attach(w, r, n);
	rc = comm_device_begin(&s->comm, w, signature, deadline_ns);
	if (rc)
		request_detach(w);
	for (size_t i = 0; !rc && i < n; i++) /* the marks are the work's now */
		for (size_t k = 0; k < r[i]->n; k++)
			r[i]->op[k].marked = false;
	works_let_go(w);
	return rc;
}

/* ---- a bucket of requests ---- */

static berth_result run_together(struct berth_set *s, struct berth_request **r,
				 size_t n, uint32_t signature, uint64_t deadline_ns)
{
	size_t bytes = run_fused_bytes(r, n);
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
		return run_on_device(s, r, n, signature, deadline_ns);
	if (run_in_pieces(s, r, n, &coll))
		return run_as_they_lie(s, r, n, &coll, deadline_ns);
	if (!run_has_fusion(&s->world->memory, &s->fusion, bytes))
		return BERTH_MEMORY;
	coll.in = coll.out = s->fusion.at;
	run_pack(s, r, n);
	if (begun_ns) {
		run_note_times(r, n, "MEMCPY_IN_FUSION_BUFFER", begun_ns);
		begun_ns = clock_ns();
	}
	if (s->members.n > 1)
		rc = run_step(&s->comm, &coll, deadline_ns);
	else
		coll_alone(&coll);
	if (begun_ns) {
		for (size_t i = 0; i < n; i++)
			run_note_op(&s->comm, r[i]->op, begun_ns, r[i]->submitted_ns,
				    (uint32_t)i);
		begun_ns = clock_ns();
	}
	if (!rc)
		run_unpack(s, r, n);
	if (begun_ns)
		run_note_times(r, n, "MEMCPY_OUT_FUSION_BUFFER", begun_ns);
	return rc;
}

static berth_result run_one(struct berth_set *s, const struct op *op, uint32_t part,
			    uint64_t called_ns, uint32_t signature,
			    uint64_t deadline_ns, struct failure *why)
{
	struct comm *c = &s->comm;
	struct coll coll = op->coll;
	uint64_t begun_ns = timeline_runs ? clock_ns() : 0;
	berth_result rc;

	coll.signature = signature;
	rc = run_op(c, op, &coll, deadline_ns, why);
	if (begun_ns)
		run_note_op(c, op, begun_ns, called_ns, part);
	return rc;
}

static berth_result run_each(struct berth_set *s, struct berth_request *r,
			     uint32_t signature, uint64_t deadline_ns,
			     struct failure *why)
{
	berth_result rc = BERTH_OK;

	for (size_t k = 0; !rc && k < r->n; k++) {
		s->beginning = op_is_device(&r->op[k]) ? r : NULL;
		rc = run_one(s, &r->op[k], (uint32_t)k, r->submitted_ns,
			     signature + (uint32_t)k, deadline_ns, why);
		run_let_go(&s->comm, &r->op[k]);
	}
	s->beginning = NULL;
	return rc;
}

static uint64_t run_earliest(struct berth_request **r, size_t n)
{
	uint64_t at = 0;

	for (size_t i = 0; i < n; i++)
		if (r[i]->deadline_ns && (!at || r[i]->deadline_ns < at))
			at = r[i]->deadline_ns;
	return at;
}

static bool run_is_fused(const struct berth_set *s, const struct berth_request *r)
{
	return r->unit.fuse_key && s->plan.fusion_bytes;
}

static void run_count(struct berth_set *s, struct berth_request **r, size_t n,
		      berth_result rc)
{
	struct boot_rank *me = totals_of(&s->world->memory);
	size_t ops = 0, bytes = 0;

	for (size_t i = 0; i < n; i++) {
		ops += r[i]->n;
		for (size_t k = 0; k < r[i]->n; k++) {
			const struct op *op = &r[i]->op[k];
			const size_t its = op->coll.count * kern_size(op->coll.type);

			bytes += its;
			totals_add(me, op->coll.kind, its, op->name);
		}
	}
	trace_count(&s->count.bytes, bytes);
	trace_count(&s->count.operations, ops);
	trace_count(&s->count.errors, rc != BERTH_OK);
	if (ops > 1 && run_is_fused(s, r[0]))
		trace_count(&s->count.fused, ops);
}

static void run_queue_times(struct berth_request **r, size_t n)
{
	uint64_t now = clock_ns();

	for (size_t i = 0; timeline_runs && i < n; i++)
		if (r[i]->submitted_ns)
			timeline_event(r[i]->op->name ? r[i]->op->name : "", "QUEUE",
				       r[i]->submitted_ns, now);
}

berth_result run_bucket(struct berth_set *s, struct berth_request **r, size_t n,
			uint32_t signature)
{
	struct comm *c = &s->comm;
	uint64_t deadline_ns = run_earliest(r, n);
	struct failure why = { .rc = BERTH_OK };
	berth_result rc;

	c->seq++;
	c->op = r[0]->op;
	c->record = trace_begin(&s->world->memory, &c->op->coll, c->op->name, c->id,
				c->seq, BOOT_RECORD_RUNS);
	for (size_t i = 0; i < n; i++)
		request_become(r[i],
			       r[i]->ndevice ? REQUEST_PROMISED : REQUEST_RUNNING);
	rest_call_others(s);
	if (timeline_runs)
		run_queue_times(r, n);
	if (run_is_fused(s, r[0]) && (n > 1 || r[0]->n > 1))
		rc = run_together(s, r, n, signature, deadline_ns);
	else
		rc = run_each(s, r[0], signature, deadline_ns, &why);
	run_end(c, rc);
	if (rc && rc != BERTH_MISMATCH)
		rc = comm_failed(c, rc, r[0]->op, &why);
	why.rc = rc;
	c->op = &s->idle;
	if (rc == BERTH_MISMATCH && !*why.text) {
		for (size_t i = 0; i < n; i++)
			request_become(r[i], REQUEST_QUEUED);
		return rc;
	}
	run_count(s, r, n, rc);
	queue_complete(s, r, n, rc, &why);
	/* what all ranks come to alike breaks nothing */
	return rc == BERTH_MISMATCH || rc == BERTH_UNSUPPORTED ? BERTH_OK : rc;
}
