#include "lib/backend/shm_internal.h"

#include <string.h>

/* What is small enough that each rank can have it read before it has heard of the
 * others: it is stored beside the line (48 bytes) or in a room of its own, then the
 * line is posted.  After the agreement each rank reads what it needs, and nobody waits
 * for that: the operation after the next one is the first that stores there again. */

/* Rank R's room for BYTES in operation SEQ.
 *
 * Two ranks swap theirs: what one has read it writes next, when its lines are with it
 * already, and each line changes sides once an operation instead of twice: 32 KiB 4.2
 * us, and 5.3 with rooms of their own.
 *
 * More ranks have two each, which are best for what comes from the nearest cache, or
 * more, so as to find one sooner whose lines the others have let go of: 16 KiB took 2.9
 * us with 2 slots, 2.2 with 16.  Odd operations have odd slots, however many there are:
 * never the slot that others may still read. */
unsigned char *shm_flat(const struct shm *s, unsigned r, uint32_t seq, size_t bytes)
{
	unsigned slots = bytes <= FLAT_NEAR_BYTES ? 2 : FLAT_SLOTS, slot = seq % slots;

	if (shm_is_pair(s)) {
		r ^= seq & 1;
		slot = 0;
	}
	return s->flat + ((size_t)r * FLAT_SLOTS + slot) * s->flat_bytes;
}

/* ---- reductions ---- */

/* Where this rank's part of C begins, and its elements; of all kinds but reducescatter
 * it is the whole array. */
static inline uint64_t own_part(const struct shm *s, const struct coll *c, uint64_t *n)
{
	*n = c->count;
	if (c->kind != BERTH_REDUCESCATTER)
		return 0;
	*n = coll_part(c, s->n, s->me);
	return coll_part_at(c, s->n, s->me);
}

/* As many elements as there are vectors for are reduced, of which only the first bytes
 * mean something: the rest is zero, lest it be slow numbers. */
static void reduce_beside(struct shm *s, const struct coll *c, const struct kern *kern,
			  unsigned char *mine)
{
	enum { WIDEST = 4 /* f32 of one byte */ };
	struct line *line = s->line[s->seq & 1];
	_Alignas(64) unsigned char out[INLINE_ROOM_BYTES * WIDEST];
	uint64_t n, at = own_part(s, c, &n);

	for (unsigned r = 0; r < s->n; r++)
		s->src[r] = r == s->me ? mine : line[r].u.data;
	kern_reduce(kern, &(void *){ out }, 1, s->src, s->n,
		    INLINE_ROOM_BYTES / kern->in_bytes, false);
	shm_copy(c->out, out + at * kern->out_bytes, n * kern->out_bytes);
}

static berth_result run_beside(struct shm *s, const struct coll *c, size_t bytes)
{
	_Alignas(64) unsigned char mine[INLINE_ROOM_BYTES] = { 0 };
	struct kern kern;
	berth_result rc;

	shm_copy_small(mine, c->in, bytes);
	memset(shm_own_line(s)->u.data, 0, INLINE_BYTES);
	shm_copy_small(shm_own_line(s)->u.data, c->in, bytes);
	shm_say(s, c->signature);
	coll_kern(&kern, c, c->in_form, c->out_form);
	rc = shm_read_signatures(s, c->signature);
	if (!rc && coll_gets(c, s->me))
		reduce_beside(s, c, &kern, mine);
	return rc;
}

/* The lines of this rank's room in the next operation, if that is alike. */
static void own_next(const struct shm *s, size_t bytes)
{
	if (!shm_is_pair(s))
		cache_own(shm_flat(s, s->me, s->seq + 1, bytes), bytes);
}

/* N bytes into this rank's room for BYTES. */
static void stage(const struct shm *s, const struct coll *c, size_t n, size_t bytes)
{
	unsigned char *mine = shm_flat(s, s->me, s->seq, bytes);

	if (s->past && bytes > FLAT_NEAR_BYTES) {
		kern_copy(mine, c->in, n, true);
		kern_fence();
	} else if (n) {
		memcpy(mine, c->in, n);
	}
	if (bytes <= GIVE_BYTES)
		cache_give(mine, bytes);
}

static void reduce_flat(struct shm *s, const struct coll *c, const struct kern *kern,
			size_t bytes)
{
	uint64_t n, at = own_part(s, c, &n);

	for (unsigned r = 0; r < s->n; r++) {
		const unsigned char *room =
			r == s->me ? c->in : shm_flat(s, r, s->seq, bytes);

		s->src[r] = room + at * kern->in_bytes;
	}
	if (n)
		kern_reduce(kern, &(void *){ c->out }, 1, s->src, s->n, n, false);
}

static berth_result run_flat(struct shm *s, const struct coll *c, size_t bytes)
{
	bool gets = coll_gets(c, s->me);
	bool gives = c->kind != BERTH_REDUCE || !gets;
	struct kern kern;
	berth_result rc;

	if (gives)
		stage(s, c, bytes, bytes);
	shm_say(s, c->signature);
	if (gives && bytes > FLAT_NEAR_BYTES)
		own_next(s, bytes);
	coll_kern(&kern, c, c->in_form, c->out_form);
	rc = shm_read_signatures(s, c->signature);
	if (rc)
		return rc;
	if (gives && bytes <= FLAT_NEAR_BYTES)
		own_next(s, bytes);
	if (gets)
		reduce_flat(s, c, &kern, bytes);
	return BERTH_OK;
}

/* ---- what moves ---- */

/* Bytes between the parts of an alltoall or scatter in a room: counts of other ranks
 * need not be known for it. */
static inline size_t stride_of(const struct shm *s, const struct coll *c)
{
	return c->kind == BERTH_ALLTOALL || c->kind == BERTH_SCATTER
		       ? coll_largest(c, s->n) * kern_size(c->type)
		       : 0;
}

static inline unsigned char *room_of(const struct shm *s, unsigned r, size_t bytes)
{
	return bytes <= INLINE_BYTES ? s->line[s->seq & 1][r].u.data
				     : shm_flat(s, r, s->seq, bytes);
}

/* Parts of any size, at their places. */
static void give_parts(const struct shm *s, const struct coll *c, unsigned char *room)
{
	const size_t size = kern_size(c->type), stride = stride_of(s, c);
	const unsigned char *from = c->in;

	for (unsigned r = 0; r < s->n; r++) {
		size_t n = c->in_counts[r] * size;

		if (r != s->me) /* which may be larger than the largest of the others */
			shm_copy(room + r * stride, from, n);
		from += n;
	}
}

static void give(const struct shm *s, const struct coll *c, size_t bytes)
{
	unsigned char *room = room_of(s, s->me, bytes);
	/* which is less than other ranks give, perhaps */
	size_t n = c->kind == BERTH_ALLGATHER ? c->count * kern_size(c->type) : bytes;

	if (c->kind == BERTH_ALLTOALL && c->in_counts)
		give_parts(s, c, room);
	else if (bytes <= INLINE_BYTES)
		shm_copy_small(room, c->in, n);
	else
		stage(s, c, n, bytes);
}

/* Parts of others into OUT, in the order of ranks. */
static void take_parts(const struct shm *s, const struct coll *c, size_t bytes)
{
	const size_t size = kern_size(c->type), at = s->me * stride_of(s, c);
	unsigned char *to = c->out;

	for (unsigned r = 0; r < s->n; r++) {
		size_t n = coll_got(c, s->n, r) * size;

		if (r != s->me)
			shm_copy(to, room_of(s, r, bytes) + at, n);
		to += n;
	}
}

static void take(const struct shm *s, const struct coll *c, size_t bytes)
{
	coll_keep_own(c, s->n, s->me);
	if (!coll_gets(c, s->me))
		return;
	if (c->kind == BERTH_BROADCAST || c->kind == BERTH_SCATTER)
		shm_copy(c->out, room_of(s, c->root, bytes) + s->me * stride_of(s, c),
			 c->count * kern_size(c->type));
	else
		take_parts(s, c, bytes);
}

static berth_result move(struct shm *s, const struct coll *c, size_t bytes)
{
	bool gives = coll_gives(c, s->me);
	berth_result rc;

	if (gives)
		give(s, c, bytes);
	shm_say(s, c->signature);
	rc = shm_read_signatures(s, c->signature);
	if (rc)
		return rc;
	if (gives && bytes > INLINE_BYTES)
		own_next(s, bytes);
	take(s, c, bytes);
	return BERTH_OK;
}

/* ---- which of them ---- */

size_t shm_small_bytes(const struct shm *s, const struct coll *c)
{
	const size_t size = kern_size(c->type);

	switch (c->kind) {
	case BERTH_ALLTOALL:
	case BERTH_SCATTER:
		return s->n * coll_largest(c, s->n) * size;
	case BERTH_ALLGATHER:
		return coll_largest(c, s->n) * size;
	default:
		return c->count * size;
	}
}

/* Between two ranks of which one alone stores, lines change sides twice an operation.
 * What the window does may go past the caches instead: a broadcast of 32 KiB from one
 * L3 to another took 15 us here, 5 there. */
size_t shm_small_most(const struct shm *s, const struct coll *c)
{
	bool one_sided = !coll_gives(c, !c->root) || !coll_gets(c, !c->root);

	if (s->n == 2 && one_sided && s->flat_bytes > FLAT_NEAR_BYTES)
		return FLAT_NEAR_BYTES;
	return s->flat_bytes > INLINE_BYTES ? s->flat_bytes : INLINE_BYTES;
}

berth_result shm_run_small(struct shm *s, const struct coll *c, size_t bytes)
{
	if (!coll_reduces(c->kind))
		return move(s, c, bytes);
	return bytes <= INLINE_BYTES ? run_beside(s, c, bytes) : run_flat(s, c, bytes);
}
