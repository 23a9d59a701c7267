#include "lib/backend/shm_internal.h"

#include <string.h>

/* Data that are so small that each rank stores them before it has heard of the others.
 * It stores them beside the line (48 bytes) or in a room of its own, then posts the
 * line.  After the agreement each rank reads what it needs.  No rank waits for that,
 * since the operation after the next one is the first that stores there again. */

/* Rank R's room for BYTES in operation SEQ.
 *
 * Two ranks swap their rooms.  A rank writes next where it has read, since it has those
 * cache lines already.  So each cache line changes sides once an operation instead of
 * twice.  (32 KiB: 4.2 us, and 5.3 with rooms of their own.)
 *
 * More ranks have two slots each, or more.  Two are best for data that come from the
 * nearest cache.  With more, a rank sooner finds one whose cache lines the others have
 * let go of (16 KiB: 2.9 us with 2 slots, 2.2 with 16).  Odd operations have odd slots,
 * whatever their number is.  So a rank never writes the slot that others may still
 * read. */
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

/* Where this rank's part of C begins.  *N becomes its elements.  For all kinds but
 * reducescatter it is the whole array. */
static inline uint64_t small_own_part(const struct shm *s, const struct coll *c,
				      uint64_t *n)
{
	*n = c->count;
	if (c->kind != BERTH_REDUCESCATTER)
		return 0;
	*n = coll_part(c, s->n, s->me);
	return coll_part_at(c, s->n, s->me);
}

/* Reduces whole vectors, though only their first bytes have a meaning.  The rest is
 * zero, since other bits could be numbers that are slow. */
static void reduce_beside(struct shm *s, const struct coll *c, const struct kern *kern,
			  unsigned char *mine)
{
	enum { WIDEST = 4 /* f32 of one byte */ };
	struct line *line = s->line[s->seq & 1];
	_Alignas(64) unsigned char out[INLINE_ROOM_BYTES * WIDEST];
	uint64_t n, at = small_own_part(s, c, &n);

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

/* Takes the cache lines of this rank's room in the next operation, if that is alike. */
static void own_next(const struct shm *s, size_t bytes)
{
	if (!shm_is_pair(s))
		cache_own(shm_flat(s, s->me, s->seq + 1, bytes), bytes);
}

/* Copies N bytes into this rank's room for BYTES. */
static void small_stage(const struct shm *s, const struct coll *c, size_t n,
			size_t bytes)
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
	uint64_t n, at = small_own_part(s, c, &n);

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
		small_stage(s, c, bytes, bytes);
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

/* ---- kinds that move data ---- */

/* Bytes from one part of an alltoall or scatter in a room to the next.  A rank can find
 * its part without the counts of other ranks. */
static inline size_t stride_of(const struct shm *s, const struct coll *c)
{
	return c->kind == BERTH_ALLTOALL || c->kind == BERTH_SCATTER
		       ? coll_largest(c, s->n) * kern_size(c->type)
		       : 0;
}

static inline unsigned char *small_room_of(const struct shm *s, unsigned r,
					   size_t bytes)
{
	return bytes <= INLINE_BYTES ? s->line[s->seq & 1][r].u.data
				     : shm_flat(s, r, s->seq, bytes);
}

/* Copies parts of any size to their positions. */
static void give_parts(const struct shm *s, const struct coll *c, unsigned char *room)
{
	const size_t size = kern_size(c->type), stride = stride_of(s, c);
	const unsigned char *from = c->in;

	for (unsigned r = 0; r < s->n; r++) {
		size_t n = c->in_counts[r] * size;

		if (r != s->me) /* its own may be larger than LARGEST */
			shm_copy(room + r * stride, from, n);
		from += n;
	}
}

static void small_give(const struct shm *s, const struct coll *c, size_t bytes)
{
	unsigned char *room = small_room_of(s, s->me, bytes);
	/* other ranks may give more */
	size_t n = c->kind == BERTH_ALLGATHER ? c->count * kern_size(c->type) : bytes;

	if (c->kind == BERTH_ALLTOALL && c->in_counts)
		give_parts(s, c, room);
	else if (bytes <= INLINE_BYTES)
		shm_copy_small(room, c->in, n);
	else
		small_stage(s, c, n, bytes);
}

/* Copies the parts of others into OUT, in the order of ranks. */
static void take_parts(const struct shm *s, const struct coll *c, size_t bytes)
{
	const size_t size = kern_size(c->type), at = s->me * stride_of(s, c);
	unsigned char *to = c->out;

	for (unsigned r = 0; r < s->n; r++) {
		size_t n = coll_got(c, s->n, r) * size;

		if (r != s->me)
			shm_copy(to, small_room_of(s, r, bytes) + at, n);
		to += n;
	}
}

static void small_take(const struct shm *s, const struct coll *c, size_t bytes)
{
	coll_keep_own(c, s->n, s->me);
	if (!coll_gets(c, s->me))
		return;
	if (c->kind == BERTH_BROADCAST || c->kind == BERTH_SCATTER)
		shm_copy(c->out,
			 small_room_of(s, c->root, bytes) + s->me * stride_of(s, c),
			 c->count * kern_size(c->type));
	else
		take_parts(s, c, bytes);
}

static berth_result small_move(struct shm *s, const struct coll *c, size_t bytes)
{
	bool gives = coll_gives(c, s->me);
	berth_result rc;

	if (gives)
		small_give(s, c, bytes);
	shm_say(s, c->signature);
	rc = shm_read_signatures(s, c->signature);
	if (rc)
		return rc;
	if (gives && bytes > INLINE_BYTES)
		own_next(s, bytes);
	small_take(s, c, bytes);
	return BERTH_OK;
}

/* ---- the choice ---- */

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

/* If only one of two ranks stores, cache lines change sides twice an operation.  The
 * window may go past the caches instead.  (A broadcast of 32 KiB from one L3 to another
 * took 15 us here, 5 there.) */
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
		return small_move(s, c, bytes);
	return bytes <= INLINE_BYTES ? run_beside(s, c, bytes) : run_flat(s, c, bytes);
}
