#include "lib/shm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/kern.h"

enum {
	LINE_BYTES = 128, /* two: the neighbour is fetched with it */
	INLINE_BYTES = 48,
	FLAT_BYTES = 4096,
	SLOTS = 4,
	CHUNK_BYTES = 256 << 10,
	PART_BYTES = 64, /* parts of a chunk begin at a multiple */
	DIFFERENT_MOST = 64
};

/* What one rank says of one operation. */
struct line {
	_Alignas(LINE_BYTES) struct post post; /* signature, sequence number */
	union {
		unsigned char data[INLINE_BYTES];
		struct {
			uint64_t in, out; /* offsets in the heap, or NOWHERE */
			uint64_t most;    /* elements of its largest part */
		} far;
	} u;
};
#define NOWHERE UINT64_MAX

struct flag {
	_Alignas(LINE_BYTES) struct post post;
};

struct region {
	_Atomic uint32_t broken;
};

struct shm {
	struct shm_config config;
	unsigned n, me;
	struct region *region;
	struct line *line[2]; /* by the parity of the number, one a rank */
	struct flag *staged, *reduced, *done; /* one a rank */
	unsigned char *flat[2], *window;
	uint32_t seq;  /* of the last operation */
	uint32_t base; /* chunks that have gone through the window */
	struct wait wait;
	const void **src; /* room for one pointer a rank, and one more of dst */
	void **dst;
	unsigned *different;
	size_t ndifferent;
};

/* ---- the region ---- */

struct layout {
	size_t line[2], staged, reduced, done, flat[2], window, bytes;
};

static size_t take(size_t *at, size_t bytes, size_t align)
{
	size_t here = (*at + align - 1) / align * align;

	*at = here + bytes;
	return here;
}

static struct layout lay_out(unsigned n)
{
	struct layout l;
	size_t at = sizeof(struct region);

	for (int i = 0; i < 2; i++)
		l.line[i] = take(&at, n * sizeof(struct line), LINE_BYTES);
	l.staged = take(&at, n * sizeof(struct flag), LINE_BYTES);
	l.reduced = take(&at, n * sizeof(struct flag), LINE_BYTES);
	l.done = take(&at, n * sizeof(struct flag), LINE_BYTES);
	for (int i = 0; i < 2; i++)
		l.flat[i] = take(&at, (size_t)n * FLAT_BYTES, 4096);
	l.window = take(&at, (size_t)n * SLOTS * CHUNK_BYTES, 4096);
	l.bytes = (at + 4095) / 4096 * 4096;
	return l;
}

size_t shm_bytes(unsigned n)
{
	return lay_out(n).bytes;
}

static void point(struct shm *s, unsigned char *region)
{
	struct layout l = lay_out(s->n);

	s->region = (struct region *)region;
	for (int i = 0; i < 2; i++) {
		s->line[i] = (struct line *)(region + l.line[i]);
		s->flat[i] = region + l.flat[i];
	}
	s->staged = (struct flag *)(region + l.staged);
	s->reduced = (struct flag *)(region + l.reduced);
	s->done = (struct flag *)(region + l.done);
	s->window = region + l.window;
}

static void leave(void *group)
{
	struct shm *s = group;

	if (!s)
		return;
	free(s->src);
	free(s->dst);
	free(s->different);
	free(s);
}

struct shm *shm_join(const struct shm_config *config)
{
	struct shm *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->config = *config;
	s->n = config->n;
	s->me = config->me;
	if (!s->config.cache_bytes)
		s->config.cache_bytes = 32 << 20;
	s->src = calloc(s->n, sizeof *s->src);
	s->dst = calloc(s->n + 1, sizeof *s->dst);
	s->different = calloc(DIFFERENT_MOST, sizeof *s->different);
	if (!s->src || !s->dst || !s->different) {
		leave(s);
		return NULL;
	}
	point(s, config->region);
	wait_tune(&s->wait, s->n, config->cores);
	s->wait.broken = &s->region->broken;
	s->wait.idle = config->idle;
	s->wait.ctx = config->ctx;
	return s;
}

static void break_for(struct shm *s, berth_result result)
{
	uint32_t none = 0;

	atomic_compare_exchange_strong(&s->region->broken, &none, (uint32_t)result);
	for (unsigned r = 0; r < s->n; r++) {
		for (int i = 0; i < 2; i++)
			post_wake(&s->line[i][r].post);
		post_wake(&s->staged[r].post);
		post_wake(&s->reduced[r].post);
		post_wake(&s->done[r].post);
	}
}

/* ---- the agreement ---- */

static struct line *own_line(struct shm *s)
{
	return &s->line[s->seq & 1][s->me];
}

static void say(struct shm *s, uint32_t signature)
{
	post(&own_line(s)->post, (uint64_t)signature << 32 | s->seq);
}

static void note_different(struct shm *s, unsigned r)
{
	if (s->ndifferent < DIFFERENT_MOST)
		s->different[s->ndifferent++] = r;
}

/* A rank that is not there when time is over; all that are missing are named. */
static berth_result late(struct shm *s, berth_result why)
{
	if (why != BERTH_TIMEOUT)
		return why;
	for (unsigned r = 0; r < s->n; r++)
		if (!wait_reached(atomic_load(&s->line[s->seq & 1][r].post.value),
				  s->seq))
			note_different(s, r);
	break_for(s, BERTH_TIMEOUT);
	return why;
}

/* Until all have said what they call for. */
static berth_result hear(struct shm *s, uint32_t signature)
{
	struct line *line = s->line[s->seq & 1];
	berth_result rc;

	for (unsigned r = 0; r < s->n; r++) {
		if (r == s->me)
			continue;
		rc = wait_for(&s->wait, &line[r].post, s->seq);
		if (rc)
			return late(s, rc);
		if (atomic_load_explicit(&line[r].post.value, memory_order_relaxed) >>
			    32 !=
		    signature)
			note_different(s, r);
	}
	return s->ndifferent ? BERTH_MISMATCH : BERTH_OK;
}

static berth_result agree(struct shm *s, uint32_t signature)
{
	say(s, signature);
	return hear(s, signature);
}

static size_t others(const void *group, unsigned *which, size_t most)
{
	const struct shm *s = group;
	size_t n = s->ndifferent < most ? s->ndifferent : most;

	memcpy(which, s->different, n * sizeof *which);
	return s->ndifferent;
}

static berth_result explain(void *group, const char *text, const char **said)
{
	enum { EXPLANATION = 0x45585031 };
	struct shm *s = group;
	unsigned char *slots;
	size_t n = strnlen(text, FLAT_BYTES - 1);
	berth_result rc;

	s->seq++;
	s->ndifferent = 0;
	slots = s->flat[s->seq & 1];
	memcpy(slots + (size_t)s->me * FLAT_BYTES, text, n);
	slots[(size_t)s->me * FLAT_BYTES + n] = '\0';
	rc = agree(s, EXPLANATION);
	for (unsigned r = 0; r < s->n; r++) {
		slots[(size_t)r * FLAT_BYTES + FLAT_BYTES - 1] = '\0';
		said[r] = (const char *)slots + (size_t)r * FLAT_BYTES;
	}
	return rc;
}

/* ---- what fits beside the line ---- */

static berth_result run_inline(struct shm *s, const struct coll *c, kern_reduce *reduce,
			       size_t bytes)
{
	struct line *line = s->line[s->seq & 1];
	berth_result rc;

	memcpy(own_line(s)->u.data, c->in, bytes);
	rc = agree(s, c->signature);
	if (rc)
		return rc;
	for (unsigned r = 0; r < s->n; r++)
		s->src[r] = line[r].u.data;
	reduce(&(void *){ c->out }, 1, s->src, s->n, c->count, false);
	return BERTH_OK;
}

static berth_result run_flat(struct shm *s, const struct coll *c, kern_reduce *reduce,
			     size_t bytes)
{
	unsigned char *slots = s->flat[s->seq & 1];
	berth_result rc;

	memcpy(slots + (size_t)s->me * FLAT_BYTES, c->in, bytes);
	rc = agree(s, c->signature);
	if (rc)
		return rc;
	for (unsigned r = 0; r < s->n; r++)
		s->src[r] = r == s->me ? c->in : slots + (size_t)r * FLAT_BYTES;
	reduce(&(void *){ c->out }, 1, s->src, s->n, c->count, false);
	return BERTH_OK;
}

/* ---- through the window ---- */

/* One operation on its way. */
struct way {
	struct shm *s;
	const struct coll *c;
	kern_reduce *reduce;
	size_t size;   /* of an element */
	uint64_t each; /* elements of a chunk, or of one rank's part of it */
	uint64_t rounds;
	bool stream; /* results go past the caches */
	bool two_shot;
};

static unsigned char *slot(const struct shm *s, unsigned r, uint64_t k)
{
	return s->window +
	       ((size_t)r * SLOTS + (s->base + (uint32_t)k) % SLOTS) * CHUNK_BYTES;
}

static const unsigned char *in_at(const struct way *w, uint64_t element)
{
	return (const unsigned char *)w->c->in + element * w->size;
}

static unsigned char *out_at(const struct way *w, uint64_t element)
{
	return (unsigned char *)w->c->out + element * w->size;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Elements of LEFT_IN_ALL that round K has. */
static uint64_t of_round(const struct way *w, uint64_t all, uint64_t k)
{
	return all > k * w->each ? least(w->each, all - k * w->each) : 0;
}

/* Part R of a chunk of LEN elements: from *AT, how many. */
static uint64_t part(const struct way *w, uint64_t len, unsigned r, uint64_t *at)
{
	uint64_t step = PART_BYTES / w->size, each;

	each = ((len + w->s->n - 1) / w->s->n + step - 1) / step * step;
	*at = least(r * each, len);
	return least((r + 1) * each, len) - *at;
}

static void stage_reduction(struct way *w, uint64_t k)
{
	uint64_t len = of_round(w, w->c->count, k), at, n;
	unsigned char *to = slot(w->s, w->s->me, k);
	const unsigned char *from = in_at(w, k * w->each);

	n = part(w, len, w->s->me, &at);
	kern_copy(to, from, at * w->size, w->s->config.far);
	kern_copy(to + (at + n) * w->size, from + (at + n) * w->size,
		  (len - at - n) * w->size, w->s->config.far);
}

static bool wants_result(const struct way *w)
{
	return w->c->kind == BERTH_ALLREDUCE || w->c->root == w->s->me;
}

static void reduce_part(struct way *w, uint64_t k)
{
	struct shm *s = w->s;
	uint64_t len = of_round(w, w->c->count, k), at, n = part(w, len, s->me, &at);
	unsigned ndst = 0;

	for (unsigned r = 0; r < s->n; r++)
		s->src[r] = r == s->me ? in_at(w, k * w->each + at)
				       : slot(s, r, k) + at * w->size;
	s->dst[ndst++] = slot(s, s->me, k) + at * w->size;
	if (wants_result(w))
		s->dst[ndst++] = out_at(w, k * w->each + at);
	if (n)
		w->reduce(s->dst, ndst, s->src, s->n, n, false);
}

static berth_result take_reduction(struct way *w, uint64_t k)
{
	struct shm *s = w->s;
	uint64_t len = of_round(w, w->c->count, k), at, n;
	berth_result rc;

	for (unsigned i = 1; wants_result(w) && i < s->n; i++) {
		unsigned r = (s->me + i) % s->n;

		rc = wait_for(&s->wait, &s->reduced[r].post, s->base + (uint32_t)k + 1);
		if (rc)
			return rc;
		n = part(w, len, r, &at);
		kern_copy(out_at(w, k * w->each + at), slot(s, r, k) + at * w->size,
			  n * w->size, w->stream);
	}
	return BERTH_OK;
}

/* Piece K of what goes to each rank, side by side. */
static void stage_parts(struct way *w, uint64_t k)
{
	struct shm *s = w->s;

	for (unsigned r = 0; r < s->n; r++) {
		uint64_t n = of_round(w, coll_part(w->c, s->n, r), k);

		if (r != s->me && n)
			kern_copy(slot(s, s->me, k) + r * w->each * w->size,
				  in_at(w, coll_part_at(w->c, s->n, r) + k * w->each),
				  n * w->size, s->config.far);
	}
}

static void take_sum(struct way *w, uint64_t k)
{
	struct shm *s = w->s;
	uint64_t n = of_round(w, coll_part(w->c, s->n, s->me), k);

	for (unsigned r = 0; r < s->n; r++)
		s->src[r] =
			r == s->me ? in_at(w, coll_part_at(w->c, s->n, r) + k * w->each)
				   : slot(s, r, k) + s->me * w->each * w->size;
	if (n)
		w->reduce(&(void *){ out_at(w, k * w->each) }, 1, s->src, s->n, n,
			  w->stream);
}

static void take_pieces(struct way *w, uint64_t k)
{
	struct shm *s = w->s;
	bool all = w->c->kind == BERTH_ALLGATHER; /* the same piece for everybody */

	for (unsigned i = 1; i < s->n; i++) {
		unsigned r = (s->me + i) % s->n;
		uint64_t n = of_round(w, coll_got(w->c, s->n, r), k);

		if (n)
			kern_copy(out_at(w, coll_got_at(w->c, s->n, r) + k * w->each),
				  slot(s, r, k) + (all ? 0 : s->me * w->each * w->size),
				  n * w->size, w->stream);
	}
}

static void stage(struct way *w, uint64_t k)
{
	struct shm *s = w->s;
	uint64_t n;

	switch (w->c->kind) {
	case BERTH_ALLREDUCE:
	case BERTH_REDUCE:
		stage_reduction(w, k);
		break;
	case BERTH_BROADCAST:
		if (w->c->root != s->me)
			break;
		/* fall through */
	case BERTH_ALLGATHER:
		n = of_round(w, w->c->count, k);
		if (n)
			kern_copy(slot(s, s->me, k), in_at(w, k * w->each), n * w->size,
				  s->config.far);
		break;
	default:
		stage_parts(w, k);
	}
	if (s->config.far)
		kern_fence();
}

static berth_result hear_staged(struct way *w, uint64_t k)
{
	struct shm *s = w->s;
	berth_result rc = BERTH_OK;

	for (unsigned r = 0; !rc && r < s->n; r++)
		if (r != s->me && (w->c->kind != BERTH_BROADCAST || r == w->c->root))
			rc = wait_for(&s->wait, &s->staged[r].post,
				      s->base + (uint32_t)k + 1);
	return rc;
}

static berth_result take_round(struct way *w, uint64_t k)
{
	struct shm *s = w->s;
	berth_result rc;

	if (w->two_shot)
		return take_reduction(w, k);
	rc = hear_staged(w, k);
	if (rc)
		return rc;
	if (w->c->kind == BERTH_REDUCESCATTER)
		take_sum(w, k);
	else if (w->c->kind != BERTH_BROADCAST)
		take_pieces(w, k);
	else if (w->c->root != s->me)
		kern_copy(out_at(w, k * w->each), slot(s, w->c->root, k),
			  of_round(w, w->c->count, k) * w->size, w->stream);
	return BERTH_OK;
}

/* Nobody reads any more what the slot of round K held before. */
static berth_result await_slot(struct way *w, uint64_t k)
{
	struct shm *s = w->s;
	uint32_t free_at = s->base + (uint32_t)k + 1 - SLOTS;
	berth_result rc = BERTH_OK;

	for (unsigned r = 0; !rc && r < s->n; r++)
		if (r != s->me)
			rc = wait_for(&s->wait, &s->done[r].post, free_at);
	return rc;
}

static berth_result stage_to(struct way *w, uint64_t *staged, uint64_t until)
{
	struct shm *s = w->s;
	berth_result rc;

	for (; *staged < least(until, w->rounds); ++*staged) {
		rc = await_slot(w, *staged);
		if (rc)
			return rc;
		stage(w, *staged);
		post(&s->staged[s->me].post, s->base + (uint32_t)*staged + 1);
	}
	return BERTH_OK;
}

static berth_result reduce_to(struct way *w, uint64_t *reduced, uint64_t until)
{
	struct shm *s = w->s;
	berth_result rc;

	for (; *reduced < least(until, w->rounds); ++*reduced) {
		rc = hear_staged(w, *reduced);
		if (rc)
			return rc;
		reduce_part(w, *reduced);
		post(&s->reduced[s->me].post, s->base + (uint32_t)*reduced + 1);
	}
	return BERTH_OK;
}

/* Two chunks ahead is staged, one ahead reduced, while one is taken. */
static berth_result go(struct way *w)
{
	struct shm *s = w->s;
	uint64_t staged = 0, reduced = 0;
	berth_result rc = BERTH_OK;

	for (uint64_t k = 0; k < w->rounds; k++) {
		rc = stage_to(w, &staged, k + 2 + w->two_shot);
		if (!rc && w->two_shot)
			rc = reduce_to(w, &reduced, k + 2);
		if (!rc)
			rc = take_round(w, k);
		if (rc)
			return rc;
		post(&s->done[s->me].post, s->base + (uint32_t)k + 1);
	}
	s->base += (uint32_t)w->rounds;
	if (w->stream)
		kern_fence();
	return BERTH_OK;
}

/* ---- what the ranks call for ---- */

/* Of an allgather or broadcast, where the rank's own is already. */
static void copy_own(struct way *w)
{
	struct shm *s = w->s;
	uint64_t at =
		w->c->kind == BERTH_BROADCAST ? 0 : coll_got_at(w->c, s->n, s->me);
	uint64_t from =
		w->c->kind == BERTH_ALLTOALL ? coll_part_at(w->c, s->n, s->me) : 0;
	uint64_t n = w->c->kind == BERTH_ALLTOALL ? coll_part(w->c, s->n, s->me)
						  : w->c->count;

	if (w->c->kind == BERTH_BROADCAST && w->c->root != s->me)
		return;
	if (n && out_at(w, at) != in_at(w, from))
		memmove(out_at(w, at), in_at(w, from), n * w->size);
}

/* Elements of the largest part that this rank gives or gets. */
static uint64_t largest(const struct way *w)
{
	const struct coll *c = w->c;
	uint64_t most = 0;

	if (c->kind == BERTH_BROADCAST || c->kind == BERTH_ALLREDUCE ||
	    c->kind == BERTH_REDUCE || c->kind == BERTH_ALLGATHER)
		return c->count;
	for (unsigned r = 0; r < w->s->n; r++)
		if (coll_part(c, w->s->n, r) > most)
			most = coll_part(c, w->s->n, r);
	return most;
}

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

/* All of them have both arrays in the heap. */
static bool all_in_heap(const struct shm *s)
{
	const struct line *line = s->line[s->seq & 1];

	for (unsigned r = 0; r < s->n; r++)
		if (line[r].u.far.in == NOWHERE || line[r].u.far.out == NOWHERE)
			return false;
	return s->config.heap != NULL;
}

static uint64_t largest_of_all(const struct shm *s)
{
	const struct line *line = s->line[s->seq & 1];
	uint64_t most = 0;

	for (unsigned r = 0; r < s->n; r++)
		if (line[r].u.far.most > most)
			most = line[r].u.far.most;
	return most;
}

/* Rank i reduces part i of all arrays, in place.  Push: into all outputs, which are
 * not read soon.  Pull: into its own, from which the others copy it while it is in a
 * cache. */
static berth_result run_direct(struct way *w)
{
	struct shm *s = w->s;
	const struct line *line = s->line[s->seq & 1];
	uint64_t at, n = part(w, w->c->count, s->me, &at), theirs;
	uint32_t turn = s->base + 1;
	berth_result rc = BERTH_OK;

	s->base += 1;
	for (unsigned r = 0; r < s->n; r++) {
		s->src[r] = (unsigned char *)s->config.heap + line[r].u.far.in +
			    at * w->size;
		s->dst[r] = (unsigned char *)s->config.heap + line[r].u.far.out +
			    at * w->size;
	}
	if (!w->stream)
		s->dst[0] = s->dst[s->me];
	if (n)
		w->reduce(s->dst, w->stream ? s->n : 1, s->src, s->n, n, w->stream);
	if (w->stream)
		kern_fence();
	post(&s->reduced[s->me].post, turn);
	for (unsigned i = 1; !rc && i < s->n; i++) {
		unsigned r = (s->me + i) % s->n;

		rc = wait_for(&s->wait, &s->reduced[r].post, turn);
		theirs = part(w, w->c->count, r, &at);
		if (!rc && !w->stream && theirs)
			memcpy(out_at(w, at),
			       (unsigned char *)s->config.heap + line[r].u.far.out +
				       at * w->size,
			       theirs * w->size);
	}
	post(&s->staged[s->me].post, turn);
	post(&s->done[s->me].post, turn);
	/* the others have copied what is to be ours alone again */
	for (unsigned r = 0; !rc && !w->stream && r < s->n; r++)
		if (r != s->me)
			rc = wait_for(&s->wait, &s->done[r].post, turn);
	return rc;
}

static berth_result run_large(struct shm *s, const struct coll *c, kern_reduce *reduce)
{
	struct way w = { .s = s, .c = c, .reduce = reduce, .size = kern_size(c->type) };
	struct line *mine = own_line(s);
	uint64_t bytes = c->count * w.size;
	berth_result rc;

	w.two_shot = c->kind == BERTH_ALLREDUCE || c->kind == BERTH_REDUCE;
	mine->u.far.most = largest(&w);
	mine->u.far.in =
		c->kind == BERTH_ALLREDUCE ? offset_in_heap(s, c->in, bytes) : NOWHERE;
	mine->u.far.out = offset_in_heap(s, c->out, bytes);
	rc = agree(s, c->signature);
	if (rc)
		return rc;
	w.stream = 2 * bytes * s->n >= s->config.cache_bytes / 4 * 3;
	if (c->kind == BERTH_ALLREDUCE && all_in_heap(s))
		return run_direct(&w);
	w.each = CHUNK_BYTES / w.size;
	if (c->kind == BERTH_REDUCESCATTER || c->kind == BERTH_ALLTOALL)
		w.each = CHUNK_BYTES / s->n / PART_BYTES * PART_BYTES / w.size;
	w.rounds = (largest_of_all(s) + w.each - 1) / w.each;
	if (c->kind == BERTH_BROADCAST || c->kind == BERTH_ALLGATHER ||
	    c->kind == BERTH_ALLTOALL)
		copy_own(&w);
	return go(&w);
}

static berth_result run(void *group, const struct coll *c, uint64_t deadline_ns)
{
	struct shm *s = group;
	kern_reduce *reduce = kern_reduce_of(c->type, c->op);
	size_t bytes = c->count * kern_size(c->type);

	if (atomic_load_explicit(&s->region->broken, memory_order_relaxed))
		return (berth_result)atomic_load(&s->region->broken);
	s->seq++;
	s->ndifferent = 0;
	s->wait.deadline_ns = deadline_ns;
	if (c->kind == BERTH_BARRIER)
		return agree(s, c->signature);
	if (c->kind == BERTH_ALLREDUCE && bytes <= INLINE_BYTES)
		return run_inline(s, c, reduce, bytes);
	if (c->kind == BERTH_ALLREDUCE && bytes <= FLAT_BYTES)
		return run_flat(s, c, reduce, bytes);
	return run_large(s, c, reduce);
}

static void end(void *group, berth_result result, unsigned lost)
{
	struct shm *s = group;

	(void)lost; /* for who hears it over a connection */
	break_for(s, result);
}

const struct backend shm_backend = { "shm", run, others, explain, end, leave };
