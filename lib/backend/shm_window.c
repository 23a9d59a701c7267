#include "lib/backend/shm_internal.h"

#include <string.h>

/* Does each rank get another part of the data that one rank gives?  Then a slot has the
 * parts side by side. */
static bool has_parts(berth_kind kind)
{
	return kind == BERTH_REDUCESCATTER || kind == BERTH_ALLTOALL ||
	       kind == BERTH_SCATTER;
}

/* Stages piece K of the part of each rank, side by side. */
static void stage_parts(struct shm_op *w, uint64_t k)
{
	struct shm *s = w->s;

	for (unsigned r = 0; r < s->n; r++) {
		uint64_t n = shm_op_of_round(w, coll_part(w->c, s->n, r), k);

		if (r != s->me && n)
			kern_copy(
				shm_op_slot(w, s->me, k) + r * w->each * w->size,
				shm_op_in(w, coll_part_at(w->c, s->n, r) + k * w->each),
				n * w->size, s->past);
	}
}

static void take_sum(struct shm_op *w, uint64_t k)
{
	struct shm *s = w->s;
	uint64_t n = shm_op_of_round(w, coll_part(w->c, s->n, s->me), k);

	for (unsigned r = 0; r < s->n; r++)
		s->src[r] = r == s->me
				    ? shm_op_in(w, coll_part_at(w->c, s->n, r) +
							   k * w->each)
				    : shm_op_slot(w, r, k) + s->me * w->each * w->size;
	if (n)
		kern_reduce(&w->kern, &(void *){ shm_op_out(w, k * w->each) }, 1,
			    s->src, s->n, n, w->stream);
}

/* Copies the pieces that lie AT bytes into the slots of the others. */
static void take_pieces(struct shm_op *w, uint64_t k, size_t at)
{
	struct shm *s = w->s;

	for (unsigned i = 1; i < s->n; i++) {
		unsigned r = (s->me + i) % s->n;
		uint64_t n = shm_op_of_round(w, coll_got(w->c, s->n, r), k);

		if (n)
			kern_copy(
				shm_op_out(w, coll_got_at(w->c, s->n, r) + k * w->each),
				shm_op_slot(w, r, k) + at, n * w->size, w->stream);
	}
}

static void window_stage(struct shm_op *w, uint64_t k)
{
	struct shm *s = w->s;
	const unsigned char *in = w->c->in;
	uint64_t n;

	if (!coll_gives(w->c, s->me))
		return;
	if (has_parts(w->c->kind)) {
		stage_parts(w, k);
	} else {
		/* In an allgather, coll_keep_own() has copied IN to OUT, since IN may
		 * be OUT, where the parts of others come. */
		if (w->c->kind == BERTH_ALLGATHER)
			in = shm_op_out(w, coll_got_at(w->c, s->n, s->me));
		n = shm_op_of_round(w, w->c->count, k);
		if (n)
			kern_copy(shm_op_slot(w, s->me, k), in + k * w->each * w->size,
				  n * w->size, s->past);
	}
	if (s->past)
		kern_fence();
}

static berth_result window_take_round(struct shm_op *w, uint64_t k)
{
	struct shm *s = w->s;
	size_t at = has_parts(w->c->kind) ? s->me * w->each * w->size : 0;
	uint64_t n = shm_op_of_round(w, w->c->count, k);
	berth_result rc = BERTH_OK;

	if (!coll_gets(w->c, s->me))
		return BERTH_OK;
	for (unsigned r = 0; !rc && r < s->n; r++)
		if (r != s->me && coll_gives(w->c, r))
			rc = wait_for(&s->wait, &s->staged[r].post,
				      s->base + (uint32_t)k + 1);
	if (rc)
		return rc;
	if (w->c->kind == BERTH_REDUCESCATTER)
		take_sum(w, k);
	else if (w->c->kind != BERTH_BROADCAST && w->c->kind != BERTH_SCATTER)
		take_pieces(w, k, at);
	else if (n)
		kern_copy(shm_op_out(w, k * w->each),
			  shm_op_slot(w, w->c->root, k) + at, n * w->size, w->stream);
	return BERTH_OK;
}

static berth_result stage_to(struct shm_op *w, uint64_t *staged, uint64_t until)
{
	struct shm *s = w->s;
	berth_result rc;

	for (; *staged < least(until, w->rounds); ++*staged) {
		rc = shm_op_await_slot(w, *staged);
		if (rc)
			return rc;
		window_stage(w, *staged);
		post_from(&s->wait, &s->staged[s->me].post,
			  s->base + (uint32_t)*staged + 1);
	}
	return BERTH_OK;
}

/* Stages one chunk ahead while it takes one. */
static berth_result window_go(struct shm_op *w)
{
	struct shm *s = w->s;
	uint64_t staged = 0;
	berth_result rc = BERTH_OK;

	for (uint64_t k = 0; k < w->rounds; k++) {
		rc = stage_to(w, &staged, k + 2);
		if (!rc)
			rc = window_take_round(w, k);
		if (rc)
			return rc;
		post_from(&s->wait, &s->done[s->me].post, s->base + (uint32_t)k + 1);
	}
	return BERTH_OK;
}

/* ---- the operations ---- */

/* There are two chunks, so that one is staged while the other is reduced.  A chunk is
 * large enough to be worth its flags.  All chunks under way stay in the caches. */
static size_t reduction_chunk(const struct shm *s, uint64_t bytes)
{
	uint64_t each = (bytes / 2 + PART_BYTES * s->n - 1) / (PART_BYTES * s->n) *
			PART_BYTES * s->n;

	if (each < CHUNK_LEAST_BYTES)
		each = CHUNK_LEAST_BYTES;
	return least(each, s->chunk_bytes) / PART_BYTES * PART_BYTES;
}

/* Each rank has to map all slots that are used.  (16 ranks on 2 cores took 450 us for
 * 16 KiB, and 78 once they had mapped 16 MiB, after some 50 ms.) */
static uint32_t slots_of(const struct shm *s, size_t slot_bytes)
{
	size_t most = SLOTS * (size_t)CHUNK_BYTES / slot_bytes,
	       few = SLOTS_BYTES / s->n / slot_bytes;

	return (uint32_t)(few > most ? most : few > SLOTS ? few : SLOTS);
}

static berth_result by_slots(struct shm_op *w, uint64_t bytes)
{
	struct shm *s = w->s;
	berth_kind kind = w->c->kind;
	bool reduces = kind == BERTH_ALLREDUCE || kind == BERTH_REDUCE;

	w->slot_bytes = reduces ? reduction_chunk(s, bytes) : s->chunk_bytes;
	w->slots = slots_of(s, w->slot_bytes);
	w->each = w->slot_bytes / w->size;
	if (has_parts(kind))
		w->each = w->slot_bytes / s->n / PART_BYTES * PART_BYTES / w->size;
	w->rounds = (coll_largest(w->c, s->n) + w->each - 1) / w->each;
	if (reduces)
		return shm_two_shot(w);
	if (kind != BERTH_REDUCESCATTER)
		coll_keep_own(w->c, s->n, s->me);
	return window_go(w);
}

static berth_result shm_window_turns(struct shm_op *w, uint64_t bytes)
{
	struct shm *s = w->s;
	berth_result rc;

	rc = w->c->kind == BERTH_ALLREDUCE && shm_is_pair(s) ? shm_pair(w)
							     : by_slots(w, bytes);
	s->base += (uint32_t)w->rounds;
	if (w->stream) /* the next reader, in any thread, has to see it */
		kern_fence();
	return rc;
}

berth_result shm_run_large(struct shm *s, const struct coll *c)
{
	struct shm_op w = { .s = s, .c = c, .size = kern_size(c->type) };
	struct line *mine = shm_own_line(s);
	uint64_t bytes = c->count * w.size;
	berth_result rc;
	bool direct;

	w.out_size = w.size;
	if (coll_reduces(c->kind)) {
		coll_kern(&w.kern, c, c->in_form, c->out_form);
		w.size = w.kern.in_bytes;
		w.out_size = w.kern.out_bytes;
	}
	shm_direct_say(&w, mine);
	shm_probe_say(s, mine);
	rc = shm_agree(s, c->signature);
	if (!rc)
		rc = shm_probe_hear(s);
	if (rc)
		return rc;
	w.stream = bytes >= shm_stream_bytes(s);
	rc = shm_direct_hear(&w, &direct);
	if (rc || direct)
		return rc ? rc : shm_run_direct(&w);
	return shm_window_turns(&w, bytes);
}

berth_result shm_run_window(struct shm *s, const struct coll *c)
{
	struct shm_op w = { .s = s, .c = c, .size = kern_size(c->type) };

	w.out_size = w.size;
	return shm_window_turns(&w, c->count * w.size);
}
