#include "lib/backend/shm_internal.h"

#include <string.h>

/* Do BYTES at AT lie in the heap, as the type of W's elements needs it? */
static bool lies_in_heap(const struct shm_op *w, uint64_t at, uint64_t bytes)
{
	const struct shm_config *c = &w->s->config;

	return at <= c->heap_bytes && bytes <= c->heap_bytes - at && at % w->size == 0;
}

static uint64_t offset_in_heap(const struct shm_op *w, const void *p, uint64_t bytes)
{
	const unsigned char *heap = w->s->config.heap, *array = p;

	if (!heap || array < heap || !lies_in_heap(w, (uint64_t)(array - heap), bytes))
		return NOWHERE;
	return (uint64_t)(array - heap);
}

/* Bytes of IN of a rank that gives data. */
static uint64_t in_bytes(const struct shm_op *w)
{
	uint64_t bytes = w->c->count * w->size;

	return w->c->kind == BERTH_SCATTER ? bytes * w->s->n : bytes;
}

/* Does IN stay unchanged until the others have read it?  The result of a reducescatter
 * may overwrite it.  In an allgather, another rank's part may.  In a reducescatter, no
 * other rank reads this rank's own part. */
static bool is_kept(const struct shm_op *w)
{
	const struct coll *c = w->c;
	const unsigned char *in = c->in, *out = c->out;
	uint64_t bytes = c->count * w->size;

	if (c->kind == BERTH_REDUCESCATTER)
		return out >= in + bytes || out + bytes <= in ||
		       (w->size == w->out_size &&
			out == in + coll_part_at(c, w->s->n, w->s->me) * w->size);
	return c->kind != BERTH_ALLGATHER || in != out ||
	       !coll_got_at(c, w->s->n, w->s->me);
}

void shm_direct_say(const struct shm_op *w, struct line *mine)
{
	const struct coll *c = w->c;

	mine->u.far.in = is_kept(w) ? offset_in_heap(w, c->in, in_bytes(w)) : NOWHERE;
	mine->u.far.out = offset_in_heap(w, c->out, c->count * w->size);
	if (!coll_gives(c, w->s->me)) /* can it be read? */
		mine->u.far.in = w->s->config.heap ? 0 : NOWHERE;
}

/* Notes where rank R's arrays lie, as R says.  If they are not in the heap, *DIRECT
 * becomes false. */
static berth_result hear_place(const struct shm_op *w, unsigned r, bool *direct)
{
	const struct line *line = &w->s->line[w->s->seq & 1][r];
	struct place *p = &w->s->place[r];
	const berth_kind kind = w->c->kind;
	/* Bytes of R's IN that others read, and whether they write its OUT. */
	const uint64_t read = !coll_gives(w->c, r) ? 0
			      : kind == BERTH_ALLGATHER
				      ? coll_got(w->c, w->s->n, r) * w->size
				      : in_bytes(w);
	const bool written =
		kind == BERTH_ALLREDUCE || (kind == BERTH_REDUCE && r == w->c->root);

	p->in = atomic_load_explicit(&line->u.far.in, memory_order_relaxed);
	p->out = atomic_load_explicit(&line->u.far.out, memory_order_relaxed);
	if (p->in == NOWHERE || (written && p->out == NOWHERE)) {
		*direct = false;
		return BERTH_OK;
	}
	if (lies_in_heap(w, p->in, read) &&
	    (!written || lies_in_heap(w, p->out, w->c->count * w->out_size)))
		return BERTH_OK;
	w->s->different[0] = r;
	w->s->ndifferent = 1;
	return BERTH_PEER_LOST;
}

berth_result shm_direct_hear(const struct shm_op *w, bool *direct)
{
	berth_result rc = BERTH_OK;

	*direct = w->c->kind != BERTH_ALLTOALL && w->s->config.heap;
	for (unsigned r = 0; !rc && *direct && r < w->s->n; r++)
		rc = hear_place(w, r, direct);
	if (rc)
		shm_break(w->s, rc);
	return rc;
}

static unsigned char *direct_their(const struct shm_op *w, uint64_t offset,
				   uint64_t element)
{
	return (unsigned char *)w->s->config.heap + offset + element * w->size;
}

/* ---- reductions by parts: rank i reduces part i ---- */

/* Reduces this rank's part into all outputs.  If the outputs fit a cache, it reduces
 * into its own alone. */
static void reduce_part(struct shm_op *w, uint64_t each)
{
	struct shm *s = w->s;
	uint64_t at = least(s->me * each, w->c->count);
	uint64_t n = least((s->me + 1) * each, w->c->count) - at;
	unsigned ndst = 0;

	for (unsigned r = 0; r < s->n; r++) {
		s->src[r] = direct_their(w, s->place[r].in, at);
		if (w->c->kind == BERTH_REDUCE ? r == w->c->root
					       : w->stream || r == s->me)
			s->dst[ndst++] = direct_their(w, s->place[r].out, at);
	}
	if (n)
		kern_reduce(&w->kern, s->dst, ndst, s->src, s->n, n, w->stream);
	if (w->stream)
		kern_fence();
}

static berth_result direct_reduce(struct shm_op *w)
{
	struct shm *s = w->s;
	uint64_t each = shm_op_part(w, w->c->count);
	berth_result rc = BERTH_OK;

	reduce_part(w, each);
	post_from(&s->wait, &s->reduced[s->me].post, s->base);
	for (unsigned i = 1; !rc && i < s->n; i++) {
		unsigned r = (s->me + i) % s->n;
		uint64_t at = least(r * each, w->c->count);
		uint64_t n = least((r + 1) * each, w->c->count) - at;

		rc = wait_for(&s->wait, &s->reduced[r].post, s->base);
		if (!rc && n && !w->stream && w->c->kind == BERTH_ALLREDUCE)
			kern_copy(shm_op_out(w, at),
				  direct_their(w, s->place[r].out, at), n * w->size,
				  false);
	}
	return rc;
}

/* ---- kinds in which each rank fetches for itself ---- */

static void fetch_sum(struct shm_op *w)
{
	struct shm *s = w->s;
	uint64_t at = coll_part_at(w->c, s->n, s->me), n = coll_part(w->c, s->n, s->me);

	for (unsigned r = 0; r < s->n; r++)
		s->src[r] = direct_their(w, s->place[r].in, at);
	if (n)
		kern_reduce(&w->kern, &(void *){ w->c->out }, 1, s->src, s->n, n,
			    w->stream);
}

/* Copies the data of the others, in the order of their ranks. */
static void fetch_all(struct shm_op *w)
{
	struct shm *s = w->s;
	const struct coll *c = w->c;

	for (unsigned i = 1; i < s->n; i++) {
		unsigned r = (s->me + i) % s->n;

		kern_copy(shm_op_out(w, coll_got_at(c, s->n, r)),
			  direct_their(w, s->place[r].in, 0),
			  coll_got(c, s->n, r) * w->size, w->stream);
	}
}

static void direct_fetch(struct shm_op *w)
{
	struct shm *s = w->s;
	const struct coll *c = w->c;

	if (c->kind != BERTH_REDUCESCATTER)
		coll_keep_own(c, s->n, s->me);
	if (c->kind == BERTH_REDUCESCATTER)
		fetch_sum(w);
	else if (!coll_gets(c, s->me))
		return;
	else if (c->kind == BERTH_ALLGATHER || c->kind == BERTH_GATHER)
		fetch_all(w);
	else
		kern_copy(c->out,
			  direct_their(w, s->place[c->root].in,
				       c->kind == BERTH_SCATTER ? s->me * c->count : 0),
			  c->count * w->size, w->stream);
	if (w->stream)
		kern_fence();
}

berth_result shm_run_direct(struct shm_op *w)
{
	struct shm *s = w->s;
	berth_result rc = BERTH_OK;

	s->base++;
	if (w->c->kind == BERTH_ALLREDUCE || w->c->kind == BERTH_REDUCE)
		rc = direct_reduce(w);
	else
		direct_fetch(w);
	post_from(&s->wait, &s->done[s->me].post, s->base);
	/* wait until the others have read: then the arrays are this rank's alone
	 * again */
	for (unsigned r = 0; !rc && r < s->n; r++)
		if (r != s->me)
			rc = wait_for(&s->wait, &s->done[r].post, s->base);
	return rc;
}
