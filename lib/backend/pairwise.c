#include "lib/backend/pairwise.h"

#include <string.h>

enum {
	BLOCK_BYTES = 2048, /* the arrays of a level stay in the nearest cache */
	LEVELS = 32
};

/* One block of all arrays. */
struct block {
	const struct coll *c;
	const void *const *src;
	unsigned n;
	size_t in_bytes; /* of an element */
	uint64_t from, count;
	enum kern_form in;
	unsigned char (*room)[2][BLOCK_BYTES]; /* two for each level */
};

/* The combined array of some hosts.  For one host, it has the form IN. */
struct share {
	const void *at;
	enum kern_form form;
};

static struct share pairwise_lift(const struct block *b, struct share s, void *room)
{
	struct kern k;

	if (s.form == KERN_PARTIAL)
		return s;
	coll_kern(&k, b->c, s.form, KERN_PARTIAL);
	kern_reduce(&k, &room, 1, &s.at, 1, b->count, false);
	return (struct share){ room, KERN_PARTIAL };
}

/* Writes X op Y, in the form OUT, to DST. */
static void pairwise_combine(const struct block *b, struct share x, struct share y,
			     unsigned level, enum kern_form out, void *dst)
{
	struct kern k;

	if (x.form != y.form) {
		x = pairwise_lift(b, x, b->room[level][0]);
		y = pairwise_lift(b, y, b->room[level][1]);
	}
	coll_kern(&k, b->c, x.form, out);
	kern_reduce(&k, &dst, 1, (const void *[]){ x.at, y.at }, 2, b->count, false);
}

/* S(I, STEP), at ROOM unless it is that of one host. */
static struct share share_of(const struct block *b, unsigned i, unsigned step,
			     unsigned level, void *room)
{
	struct share x, y;

	if (i + step >= b->n)
		return (struct share){
			(const unsigned char *)b->src[i] + b->from * b->in_bytes, b->in
		};
	x = share_of(b, i, 2 * step, level + 1, b->room[level][0]);
	y = share_of(b, i + step, 2 * step, level + 1, b->room[level][1]);
	pairwise_combine(b, x, y, level, KERN_PARTIAL, room);
	return (struct share){ room, KERN_PARTIAL };
}

/* At a level behind the last, each share is that of one host. */
static unsigned levels_of(unsigned n)
{
	unsigned levels = 1;

	while (levels < 32 && n > 1u << levels)
		levels++;
	return levels;
}

void pairwise_reduce(const struct coll *c, void *dst, const void *const *src,
		     unsigned n, uint64_t count, enum kern_form in)
{
	unsigned char room[levels_of(n)][2][BLOCK_BYTES];
	struct kern k;
	struct block b = { .c = c, .src = src, .n = n, .in = in, .room = room };
	uint64_t most;

	coll_kern(&k, c, in, KERN_PARTIAL);
	b.in_bytes = k.in_bytes;
	most = BLOCK_BYTES / k.out_bytes;
	for (; b.from < count; b.from += b.count) {
		struct share x, y;

		b.count = count - b.from < most ? count - b.from : most;
		x = share_of(&b, 0, 2, 1, room[0][0]);
		y = share_of(&b, 1, 2, 1, room[0][1]);
		pairwise_combine(&b, x, y, 0, KERN_ELEMENTS,
				 (unsigned char *)dst + b.from * kern_size(c->type));
	}
}
