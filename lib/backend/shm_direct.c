#include "lib/backend/shm_internal.h"

#include <string.h>

static uint64_t offset_in_heap(const struct shm *s, const void *p, uint64_t bytes)
{
	size_t at = (size_t)((const unsigned char *)p -
			     (const unsigned char *)s->config.heap);

	if (!s->config.heap ||
	    (const unsigned char *)p < (const unsigned char *)s->config.heap ||
	    at > s->config.heap_bytes || bytes > s->config.heap_bytes - at)
		return NOWHERE;
	return at;
}

/* What others are to read stays as it is until they have: not where the result of a
 * reducescatter or, of an allgather, what comes from another rank overwrites it. */
static bool is_kept(const struct shm_op *w, uint64_t bytes)
{
	const struct coll *c = w->c;
	const unsigned char *in = c->in, *out = c->out;

	if (c->kind == BERTH_REDUCESCATTER)
		return out >= in + bytes || out + bytes <= in;
	return c->kind != BERTH_ALLGATHER || in != out ||
	       !coll_got_at(c, w->s->n, w->s->me);
}

void shm_direct_say(const struct shm_op *w, struct line *mine)
{
	const struct coll *c = w->c;
	uint64_t bytes = c->count * w->size;

	mine->u.far.in =
		is_kept(w, bytes) ? offset_in_heap(w->s, c->in, bytes) : NOWHERE;
	mine->u.far.out = offset_in_heap(w->s, c->out, bytes);
	if (c->kind == BERTH_BROADCAST && w->s->me != c->root) /* can it be read? */
		mine->u.far.in = w->s->config.heap ? 0 : NOWHERE;
}

bool shm_is_direct(const struct shm_op *w)
{
	const struct line *line = w->s->line[w->s->seq & 1];
	enum berth_kind kind = w->c->kind;

	if (kind == BERTH_ALLTOALL)
		return false;
	for (unsigned r = 0; r < w->s->n; r++)
		if (line[r].u.far.in == NOWHERE ||
		    (kind == BERTH_ALLREDUCE && line[r].u.far.out == NOWHERE))
			return false;
	return kind != BERTH_REDUCE || line[w->c->root].u.far.out != NOWHERE;
}

static unsigned char *their(const struct shm_op *w, uint64_t offset, uint64_t element)
{
	return (unsigned char *)w->s->config.heap + offset + element * w->size;
}

/* ---- what is reduced by parts, rank i all of part i ---- */

/* This rank's part, into all outputs, or, as they fit a cache, its own alone. */
static void reduce_part(struct shm_op *w, uint64_t each)
{
	struct shm *s = w->s;
	const struct line *line = s->line[s->seq & 1];
	uint64_t at = least(s->me * each, w->c->count);
	uint64_t n = least((s->me + 1) * each, w->c->count) - at;
	unsigned ndst = 0;

	for (unsigned r = 0; r < s->n; r++) {
		s->src[r] = their(w, line[r].u.far.in, at);
		if (w->c->kind == BERTH_REDUCE ? r == w->c->root
					       : w->stream || r == s->me)
			s->dst[ndst++] = their(w, line[r].u.far.out, at);
	}
	if (n)
		kern_reduce(&w->kern, s->dst, ndst, s->src, s->n, n, w->stream);
	if (w->stream)
		kern_fence();
}

static berth_result reduce(struct shm_op *w)
{
	struct shm *s = w->s;
	const struct line *line = s->line[s->seq & 1];
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
			kern_copy(shm_op_out(w, at), their(w, line[r].u.far.out, at),
				  n * w->size, false);
	}
	return rc;
}

/* ---- what each fetches for itself ---- */

static void fetch(struct shm_op *w)
{
	struct shm *s = w->s;
	const struct coll *c = w->c;
	const struct line *line = s->line[s->seq & 1];
	uint64_t at = coll_part_at(c, s->n, s->me);

	switch (c->kind) {
	case BERTH_BROADCAST:
		if (s->me != c->root || c->out != c->in)
			kern_copy(c->out, their(w, line[c->root].u.far.in, 0),
				  c->count * w->size, w->stream);
		break;
	case BERTH_REDUCESCATTER:
		for (unsigned r = 0; r < s->n; r++)
			s->src[r] = their(w, line[r].u.far.in, at);
		if (coll_part(c, s->n, s->me))
			kern_reduce(&w->kern, &(void *){ c->out }, 1, s->src, s->n,
				    coll_part(c, s->n, s->me), w->stream);
		break;
	default: /* allgather */
		for (unsigned i = 0; i < s->n; i++) {
			unsigned r = (s->me + i) % s->n;
			unsigned char *to = shm_op_out(w, coll_got_at(c, s->n, r));

			if (r != s->me || to != c->in)
				kern_copy(to, their(w, line[r].u.far.in, 0),
					  coll_got(c, s->n, r) * w->size, w->stream);
		}
	}
	if (w->stream)
		kern_fence();
}

berth_result shm_run_direct(struct shm_op *w)
{
	struct shm *s = w->s;
	berth_result rc = BERTH_OK;

	s->base++;
	if (w->c->kind == BERTH_ALLREDUCE || w->c->kind == BERTH_REDUCE)
		rc = reduce(w);
	else
		fetch(w);
	post_from(&s->wait, &s->done[s->me].post, s->base);
	/* the others have read what is to be ours alone again */
	for (unsigned r = 0; !rc && r < s->n; r++)
		if (r != s->me)
			rc = wait_for(&s->wait, &s->done[r].post, s->base);
	return rc;
}
