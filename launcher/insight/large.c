#include "launcher/insight/large.h"

#include <stdlib.h>
#include <string.h>

static struct large_sum *large_find(struct large *l, const char *kind, uint32_t size)
{
	struct large_sum *sum;

	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].size == size && !strcmp(l->v[i].kind, kind))
			return &l->v[i];
	if (l->n == LARGE_MOST)
		return NULL;
	l->v = xreallocarray(l->v, l->n + 1, sizeof *l->v);
	sum = &l->v[l->n++];
	*sum = (struct large_sum){ .size = size };
	memcpy(sum->kind, kind, strlen(kind) + 1);
	return sum;
}

const char *large_add(struct large *l, const struct wire_large_ops *m)
{
	const struct wire_large_ops none = { 0 }, *old = &none;
	const size_t letters = strspn(m->kind, "abcdefghijklmnopqrstuvwxyz");
	struct large_sum *sum = NULL;

	if (m->size < 64 && letters && letters < sizeof sum->kind && !m->kind[letters])
		sum = large_find(l, m->kind, m->size);
	if (!sum)
		return "malformed 'large_ops' message";
	if (sum->last.init_round == m->init_round && sum->last.epoch == m->epoch &&
	    sum->last.ops <= m->ops && sum->last.bytes <= m->bytes &&
	    sum->last.bus_bytes <= m->bus_bytes && sum->last.us <= m->us)
		old = &sum->last;
	sum->ops += (double)(m->ops - old->ops);
	sum->bytes += (double)(m->bytes - old->bytes);
	sum->bus_bytes += (double)(m->bus_bytes - old->bus_bytes);
	sum->s += (double)(m->us - old->us) / 1e6;
	sum->last = *m;
	sum->last.kind = ""; /* the frame's */
	return NULL;
}

void large_free(struct large *l)
{
	free(l->v);
	*l = (struct large){ 0 };
}
