#include "lib/backend/shm_internal.h"

/* Reductions through the window, in two shots.  Rank i reduces part i of each chunk in
 * its own slot, and the others copy it from there.  Two ranks that store in their
 * caches do it in one shot. */

/* Bytes at a time, if one loop does several things.  A result is copied on while it is
 * in the nearest cache.  Reads of memory and of another rank's cache overlap.  (128 MiB
 * between two ranks: 28.2 ms with pieces of 4 KiB, 23.6 with these.) */
enum { PIECE_BYTES = 512, PAST_BYTES = 64 /* of a store past the caches */ };

/* One round of an operation. */
struct round {
	uint64_t k;
	uint64_t len, part; /* elements: of all parts, of each */
};

static struct round round_of(const struct shm_op *w, uint64_t k)
{
	struct round t = { .k = k, .len = shm_op_of_round(w, w->c->count, k) };

	t.part = shm_op_part(w, t.len);
	return t;
}

/* Elements of rank R's part from its element FROM on, at most MOST.  *AT becomes their
 * position in the round. */
static inline uint64_t reduce_cut(const struct round *t, unsigned r, uint64_t from,
				  uint64_t most, uint64_t *at)
{
	*at = r * t->part + from;
	if (from >= t->part || *at >= t->len)
		return 0;
	return least(least(t->part - from, t->len - *at), most);
}

/* The end of piece I, in elements. */
static inline uint64_t end_of_piece(const struct coll *c, size_t i)
{
	return i + 1 < c->npieces ? c->piece[i + 1].at : c->count;
}

/* The number of the piece that has ELEMENT: most often the one that was found last.
 * (99 MiB in 161 pieces: 2 of 30 ms were searches.) */
static inline size_t find_piece(struct shm_op *w, uint64_t element)
{
	const struct coll *c = w->c;
	size_t low = w->piece, high = c->npieces;

	if (c->piece[low].at <= element && element < end_of_piece(c, low))
		return low;
	for (low = 0; high - low > 1;) {
		size_t middle = (low + high) / 2;

		if (c->piece[middle].at <= element)
			low = middle;
		else
			high = middle;
	}
	w->piece = low;
	return low;
}

/* Sets *IN and *OUT to where the elements from ELEMENT on lie.  Returns how many of
 * them lie together, at most MOST. */
static inline uint64_t shm_reduce_span(struct shm_op *w, uint64_t element,
				       uint64_t most, const unsigned char **in,
				       unsigned char **out)
{
	const struct coll *c = w->c;
	const struct coll_piece *p;
	size_t i;

	if (!c->npieces) {
		*in = shm_op_in(w, element);
		*out = shm_op_out(w, element);
		return most;
	}
	i = find_piece(w, element);
	p = &c->piece[i];
	*in = (const unsigned char *)p->in + (element - p->at) * w->size;
	*out = (unsigned char *)p->out + (element - p->at) * w->size;
	return least(most, end_of_piece(c, i) - element);
}

static void reduce_stage(struct shm_op *w, const struct round *t, uint64_t from,
			 uint64_t most)
{
	struct shm *s = w->s;
	const unsigned char *in;
	unsigned char *out;
	uint64_t at, n, m;

	for (unsigned r = 0; r < s->n; r++) {
		n = r == s->me ? 0 : reduce_cut(t, r, from, most, &at);
		for (; n; n -= m, at += m) {
			m = shm_reduce_span(w, t->k * w->each + at, n, &in, &out);
			kern_copy(shm_op_slot(w, s->me, t->k) + at * w->size, in,
				  m * w->size, s->past);
		}
	}
}

static bool wants_result(const struct shm_op *w)
{
	return w->c->kind == BERTH_ALLREDUCE || w->c->root == w->s->me;
}

/* Reduces N elements that lie together, from element AT of the round on. */
static void reduce_span(struct shm_op *w, const struct round *t, uint64_t at,
			uint64_t n, const unsigned char *in, unsigned char *out)
{
	struct shm *s = w->s;
	_Alignas(64) unsigned char beside[PIECE_BYTES];
	unsigned char *mine = shm_op_slot(w, s->me, t->k) + at * w->size;
	bool wanted = wants_result(w), past = w->stream || s->past;

	for (unsigned r = 0; r < s->n; r++)
		s->src[r] = r == s->me ? in : shm_op_slot(w, r, t->k) + at * w->size;
	s->dst[0] = s->past ? beside : mine;
	s->dst[1] = out;
	kern_reduce(&w->kern, s->dst, past || !wanted ? 1 : 2, s->src, s->n, n, false);
	if (s->past)
		kern_copy(mine, beside, n * w->size, true);
	if (past && wanted)
		kern_copy(out, s->dst[0], n * w->size, w->stream);
}

static void shm_reduce(struct shm_op *w, const struct round *t, uint64_t from,
		       uint64_t most)
{
	const unsigned char *in;
	unsigned char *out;
	uint64_t at, n = reduce_cut(t, w->s->me, from, most, &at), m;

	for (; n; n -= m, at += m) {
		m = shm_reduce_span(w, t->k * w->each + at, n, &in, &out);
		reduce_span(w, t, at, m, in, out);
	}
}

static void reduce_take(struct shm_op *w, const struct round *t, uint64_t from,
			uint64_t most)
{
	struct shm *s = w->s;
	const unsigned char *in;
	unsigned char *out;
	uint64_t at, n, m;

	for (unsigned i = 1; wants_result(w) && i < s->n; i++) {
		unsigned r = (s->me + i) % s->n;

		n = reduce_cut(t, r, from, most, &at);
		for (; n; n -= m, at += m) {
			m = shm_reduce_span(w, t->k * w->each + at, n, &in, &out);
			kern_copy(out, shm_op_slot(w, r, t->k) + at * w->size,
				  m * w->size, w->stream);
		}
	}
}

/* ---- rounds, and their flags ---- */

berth_result shm_op_await_slot(struct shm_op *w, uint64_t k)
{
	struct shm *s = w->s;
	uint32_t free_at = s->base + (uint32_t)k + 1 - w->slots;
	berth_result rc = BERTH_OK;

	for (unsigned r = 0; !rc && r < s->n; r++)
		if (r != s->me)
			rc = wait_for(&s->wait, &s->done[r].post, free_at);
	return rc;
}

/* Waits until all others have come to round K. */
static berth_result await_flags(struct shm_op *w, struct flag *flags, uint64_t k)
{
	struct shm *s = w->s;
	berth_result rc = BERTH_OK;

	for (unsigned r = 0; !rc && r < s->n; r++)
		if (r != s->me)
			rc = wait_for(&s->wait, &flags[r].post,
				      s->base + (uint32_t)k + 1);
	return rc;
}

static void reduce_say(struct shm_op *w, struct flag *flags, uint64_t k)
{
	struct shm *s = w->s;

	if (s->past && flags != s->done)
		kern_fence();
	post_from(&s->wait, &flags[s->me].post, s->base + (uint32_t)k + 1);
}

static berth_result stage_round(struct shm_op *w, uint64_t k)
{
	struct round t = round_of(w, k);
	berth_result rc = shm_op_await_slot(w, k);

	if (rc)
		return rc;
	reduce_stage(w, &t, 0, UINT64_MAX);
	reduce_say(w, w->s->staged, k);
	return BERTH_OK;
}

static berth_result reduce_round(struct shm_op *w, uint64_t k)
{
	struct round t = round_of(w, k);
	berth_result rc = await_flags(w, w->s->staged, k);
	uint64_t most;

	if (rc)
		return rc;
	most = w->s->past ? PIECE_BYTES / w->size : t.part;
	for (uint64_t at = 0; at < t.part; at += most)
		shm_reduce(w, &t, at, most);
	reduce_say(w, w->s->reduced, k);
	return BERTH_OK;
}

static berth_result reduce_take_round(struct shm_op *w, uint64_t k)
{
	struct round t = round_of(w, k);
	berth_result rc = await_flags(w, w->s->reduced, k);

	if (rc)
		return rc;
	reduce_take(w, &t, 0, UINT64_MAX);
	reduce_say(w, w->s->done, k);
	return BERTH_OK;
}

/* For data in the caches: stages two chunks ahead, and reduces one ahead. */
static berth_result by_rounds(struct shm_op *w)
{
	uint64_t staged = 0, reduced = 0;
	berth_result rc = BERTH_OK;

	for (uint64_t k = 0; !rc && k < w->rounds; k++) {
		for (; !rc && staged < least(k + 3, w->rounds); staged++)
			rc = stage_round(w, staged);
		for (; !rc && reduced < least(k + 2, w->rounds); reduced++)
			rc = reduce_round(w, reduced);
		if (!rc)
			rc = reduce_take_round(w, k);
	}
	return rc;
}

/* For data that are not in the caches: stages round K, reduces round K - 1 and takes
 * round K - 2, piece by piece. */
static berth_result by_pieces(struct shm_op *w)
{
	const uint64_t most = PIECE_BYTES / w->size;
	struct round staged, reduced = { 0 }, taken = { 0 };
	berth_result rc = BERTH_OK;

	for (uint64_t k = 0; k < w->rounds + 2; k++) {
		if (k < w->rounds)
			rc = shm_op_await_slot(w, k);
		if (!rc && k >= 1 && k - 1 < w->rounds)
			rc = await_flags(w, w->s->staged, k - 1);
		if (!rc && k >= 2)
			rc = await_flags(w, w->s->reduced, k - 2);
		if (rc)
			return rc;
		staged = round_of(w, k);
		for (uint64_t at = 0; at < shm_op_part(w, w->each); at += most) {
			reduce_stage(w, &staged, at, most);
			shm_reduce(w, &reduced, at, most);
			reduce_take(w, &taken, at, most);
		}
		if (k < w->rounds)
			reduce_say(w, w->s->staged, k);
		if (k >= 1 && k - 1 < w->rounds)
			reduce_say(w, w->s->reduced, k - 1);
		if (k >= 2)
			reduce_say(w, w->s->done, k - 2);
		taken = reduced;
		reduced = staged;
	}
	return BERTH_OK;
}

berth_result shm_two_shot(struct shm_op *w)
{
	return w->stream ? by_pieces(w) : by_rounds(w);
}

/* ---- two ranks ---- */

/* Each rank reads all data of the other, and writes its next chunk where it has read
 * the last one.  It has those cache lines already, and the other rank does not want
 * them.  So a rank waits only for the data that the other stages.  (512 KiB: 55 us, by
 * two shots 69.) */
static unsigned char *pair_room(const struct shm_op *w, unsigned r, uint64_t k)
{
	uint32_t turn = w->s->base + (uint32_t)k;
	size_t room = turn % PAIRS * 2 + (r ^ (turn / PAIRS & 1));

	return w->s->window + room * PAIR_BYTES;
}

/* Elements of round K from element FROM on, at most MOST. */
static uint64_t pair_cut(const struct shm_op *w, uint64_t k, uint64_t from,
			 uint64_t most)
{
	uint64_t n = shm_op_of_round(w, w->c->count, k);

	return from < n ? least(most, n - from) : 0;
}

static void pair_stage(struct shm_op *w, uint64_t k, uint64_t from, uint64_t most)
{
	unsigned char *room = pair_room(w, w->s->me, k), *out;
	uint64_t n = pair_cut(w, k, from, most), m;
	const unsigned char *in;

	for (; n; n -= m, from += m) {
		m = shm_reduce_span(w, k * w->each + from, n, &in, &out);
		kern_copy(room + from * w->size, in, m * w->size, false);
	}
}

static void pair_reduce(struct shm_op *w, uint64_t k, uint64_t from, uint64_t most)
{
	unsigned me = w->s->me;
	unsigned char *room = pair_room(w, !me, k), *out;
	uint64_t n = pair_cut(w, k, from, most), m;
	const unsigned char *in;

	for (; n; n -= m, from += m) {
		m = shm_reduce_span(w, k * w->each + from, n, &in, &out);
		w->s->src[me] = in;
		w->s->src[!me] = room + from * w->size;
		kern_reduce(&w->kern, &(void *){ out }, 1, w->s->src, 2, m, w->stream);
	}
}

/* One step: stages chunk K, and reduces the one before it. */
static berth_result pair_step(struct shm_op *w, uint64_t k)
{
	berth_result rc = BERTH_OK;

	pair_stage(w, k, 0, w->each);
	if (k < w->rounds)
		reduce_say(w, w->s->staged, k);
	if (k)
		rc = await_flags(w, w->s->staged, k - 1);
	if (k && !rc)
		pair_reduce(w, k - 1, 0, w->each);
	return rc;
}

/* As pair_cut(), to the end of a cache line of OUT: what is stored past the caches has
 * whole lines.  Arrays that lie together in a round cut lines otherwise, two for each
 * piece. */
static uint64_t pair_cut_lines(struct shm_op *w, uint64_t k, uint64_t from,
			       uint64_t most)
{
	const uint64_t n = pair_cut(w, k, from, most);
	const unsigned char *in;
	unsigned char *out;
	uint64_t beyond;

	if (n < most)
		return n;
	shm_reduce_span(w, k * w->each + from + n - 1, 1, &in, &out);
	beyond = ((uintptr_t)out + w->out_size) % PAST_BYTES / w->out_size;
	return beyond < n ? n - beyond : n;
}

/* pair_step() for data that are not in the caches.  It goes piece by piece, so that
 * reads of memory and of the other's cache overlap. */
static berth_result pair_step_mixed(struct shm_op *w, uint64_t k)
{
	const uint64_t most = PIECE_BYTES / w->size;
	berth_result rc = k ? await_flags(w, w->s->staged, k - 1) : BERTH_OK;
	uint64_t reduced = 0, n;

	for (uint64_t at = 0; !rc && at < w->each; at += most) {
		pair_stage(w, k, at, most);
		n = k ? pair_cut_lines(w, k - 1, reduced, most) : 0;
		if (n)
			pair_reduce(w, k - 1, reduced, n);
		reduced += n;
	}
	if (!rc && k)
		pair_reduce(w, k - 1, reduced, w->each);
	if (!rc && k < w->rounds)
		reduce_say(w, w->s->staged, k);
	return rc;
}

berth_result shm_pair(struct shm_op *w)
{
	struct shm *s = w->s;
	berth_result rc = BERTH_OK;

	w->each = least(PAIR_BYTES, s->chunk_bytes) / w->size;
	w->rounds = (w->c->count + w->each - 1) / w->each;
	for (uint64_t k = 0; !rc && k <= w->rounds; k++)
		rc = w->stream ? pair_step_mixed(w, k) : pair_step(w, k);
	if (!rc && w->rounds) /* for the next operation that uses slots */
		reduce_say(w, s->done, w->rounds - 1);
	return rc;
}
