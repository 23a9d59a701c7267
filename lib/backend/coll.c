#include "lib/backend/coll.h"

#include <string.h>

static uint64_t coll_even(uint64_t count, unsigned n, unsigned i)
{
	return count / n + (i < count % n);
}

uint64_t coll_part(const struct coll *c, unsigned n, unsigned i)
{
	if (c->in_counts)
		return c->in_counts[i];
	return c->kind == BERTH_SCATTER ? c->count : coll_even(c->count, n, i);
}

uint64_t coll_got(const struct coll *c, unsigned n, unsigned i)
{
	if (c->out_counts)
		return c->out_counts[i];
	return c->kind == BERTH_ALLTOALL ? c->count / n : c->count;
}

uint64_t coll_part_at(const struct coll *c, unsigned n, unsigned i)
{
	uint64_t at = 0;

	for (unsigned k = 0; k < i; k++)
		at += coll_part(c, n, k);
	return at;
}

uint64_t coll_got_at(const struct coll *c, unsigned n, unsigned i)
{
	uint64_t at = 0;

	for (unsigned k = 0; k < i; k++)
		at += coll_got(c, n, k);
	return at;
}

static uint64_t largest_of(const uint64_t *counts, unsigned n)
{
	uint64_t largest = 0;

	for (unsigned r = 0; r < n; r++)
		if (counts[r] > largest)
			largest = counts[r];
	return largest;
}

uint64_t coll_largest(const struct coll *c, unsigned n)
{
	switch (c->kind) {
	case BERTH_ALLTOALL:
		return c->in_counts ? c->largest : c->count / n;
	case BERTH_ALLGATHER:
		return c->out_counts ? largest_of(c->out_counts, n) : c->count;
	case BERTH_REDUCESCATTER:
		return c->in_counts ? largest_of(c->in_counts, n)
				    : coll_even(c->count, n, 0);
	default:
		return c->count;
	}
}

bool coll_gives(const struct coll *c, unsigned i)
{
	if (c->kind == BERTH_BROADCAST || c->kind == BERTH_SCATTER)
		return i == c->root;
	return c->kind != BERTH_GATHER || i != c->root;
}

bool coll_gets(const struct coll *c, unsigned i)
{
	if (c->kind == BERTH_BROADCAST || c->kind == BERTH_SCATTER)
		return i != c->root;
	return (c->kind != BERTH_GATHER && c->kind != BERTH_REDUCE) || i == c->root;
}

void coll_keep_own(const struct coll *c, unsigned n, unsigned me)
{
	const size_t size = kern_size(c->type);
	bool cut = c->kind == BERTH_ALLTOALL || c->kind == BERTH_SCATTER;
	bool joined = c->kind == BERTH_ALLTOALL || c->kind == BERTH_ALLGATHER ||
		      c->kind == BERTH_GATHER;
	bool rooted = c->kind != BERTH_ALLTOALL && c->kind != BERTH_ALLGATHER;
	uint64_t own = c->kind == BERTH_ALLTOALL ? coll_part(c, n, me) : c->count;
	const unsigned char *from = c->in;
	unsigned char *to = c->out;

	if (!own || (rooted && me != c->root))
		return;
	if (cut)
		from += coll_part_at(c, n, me) * size;
	if (joined)
		to += coll_got_at(c, n, me) * size;
	if (from != to)
		memmove(to, from, own * size);
}

void coll_alone(const struct coll *c)
{
	struct kern k = { .how = KERN_PLAIN };

	if (coll_reduces(c->kind))
		coll_kern(&k, c, c->in_form, c->out_form);
	if (k.how != KERN_PLAIN || c->in_form != c->out_form)
		kern_reduce(&k, &(void *){ c->out }, 1, &(const void *){ c->in }, 1,
			    c->count, false);
	else if (c->count && c->in != c->out)
		memmove(c->out, c->in, c->count * kern_size(c->type));
}
