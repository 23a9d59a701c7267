#include "lib/backend/coll.h"

#include <string.h>

static uint64_t even(uint64_t count, unsigned n, unsigned i)
{
	return count / n + (i < count % n);
}

uint64_t coll_part(const struct coll *c, unsigned n, unsigned i)
{
	return c->in_counts ? c->in_counts[i] : even(c->count, n, i);
}

uint64_t coll_got(const struct coll *c, unsigned n, unsigned i)
{
	if (c->out_counts)
		return c->out_counts[i];
	return c->kind == BERTH_ALLGATHER ? c->count : c->count / n;
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
