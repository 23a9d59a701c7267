#include "lib/core/adasum.h"

#include <stdlib.h>

#include "lib/base/kern.h"
#include "lib/base/kern_half.h"

static double element(const void *p, berth_type type, uint64_t i)
{
	switch (type) {
	case BERTH_F64:
		return ((const double *)p)[i];
	case BERTH_F32:
		return (double)((const float *)p)[i];
	case BERTH_F16:
		return (double)f16_float(((const uint16_t *)p)[i]);
	default:
		return (double)bf16_float(((const uint16_t *)p)[i]);
	}
}

static void set_element(void *p, berth_type type, uint64_t i, double x)
{
	switch (type) {
	case BERTH_F64:
		((double *)p)[i] = x;
		break;
	case BERTH_F32:
		((float *)p)[i] = (float)x;
		break;
	case BERTH_F16:
		((uint16_t *)p)[i] = float_f16((float)x);
		break;
	default:
		((uint16_t *)p)[i] = float_bf16((float)x);
	}
}

/* OUT = what A and B become; both partners call it with the same two. */
static void combine(void *out, const void *a, const void *b, berth_type type,
		    uint64_t n)
{
	double aa = 0, bb = 0, ab = 0, ka, kb;

	for (uint64_t i = 0; i < n; i++) {
		double x = element(a, type, i), y = element(b, type, i);

		aa += x * x;
		bb += y * y;
		ab += x * y;
	}
	ka = aa > 0 ? 1 - ab / (2 * aa) : 1;
	kb = bb > 0 ? 1 - ab / (2 * bb) : 1;
	for (uint64_t i = 0; i < n; i++)
		set_element(out, type, i,
			    ka * element(a, type, i) + kb * element(b, type, i));
}

struct pairing {
	struct comm *c;
	const struct coll *whole;
	uint64_t deadline_ns;
	uint64_t *give, *get; /* one for each rank */
	void *theirs;
};

/* Arrays go to TO and come from FROM; the number of ranks: neither.  All ranks. */
static berth_result exchange(struct pairing *p, unsigned to, unsigned from)
{
	const struct coll *whole = p->whole;
	struct coll coll = { .kind = BERTH_ALLTOALL,
			     .type = whole->type,
			     .in = whole->out,
			     .out = p->theirs,
			     .in_counts = p->give,
			     .out_counts = p->get,
			     .signature = whole->signature };

	for (unsigned i = 0; i < p->c->n; i++) {
		p->give[i] = i == to ? whole->count : 0;
		p->get[i] = i == from ? whole->count : 0;
	}
	coll.count = to < p->c->n ? whole->count : 0;
	return comm_step(p->c, &coll, p->deadline_ns);
}

static berth_result levels(struct pairing *p, unsigned power)
{
	const struct coll *whole = p->whole;
	unsigned n = p->c->n, me = p->c->me, extra = n - power;
	berth_result rc = BERTH_OK;

	/* ranks past the power of two give theirs to one below, and get the result */
	if (extra)
		rc = exchange(p, me >= power ? me - power : n,
			      me < extra ? me + power : n);
	if (!rc && extra && me < extra)
		combine(whole->out, whole->out, p->theirs, whole->type, whole->count);
	for (unsigned d = 1; !rc && d < power; d *= 2) {
		unsigned partner = me < power ? me ^ d : n;

		rc = exchange(p, partner, partner);
		if (rc || partner == n)
			continue;
		combine(whole->out, me < partner ? whole->out : p->theirs,
			me < partner ? p->theirs : whole->out, whole->type,
			whole->count);
	}
	if (!rc && extra)
		rc = exchange(p, me < extra ? me + power : n,
			      me >= power ? me - power : n);
	if (!rc && whole->count && me >= power)
		memcpy(whole->out, p->theirs, whole->count * kern_size(whole->type));
	return rc;
}

berth_result adasum_run(struct comm *c, const struct coll *whole, uint64_t deadline_ns)
{
	size_t bytes = whole->count * kern_size(whole->type);
	struct pairing p = { .c = c, .whole = whole, .deadline_ns = deadline_ns };
	struct coll barrier = { .kind = BERTH_BARRIER, .signature = whole->signature };
	unsigned power = 1;
	berth_result rc = BERTH_MEMORY;

	while (power * 2 <= c->n)
		power *= 2;
	p.give = calloc(c->n, sizeof *p.give);
	p.get = calloc(c->n, sizeof *p.get);
	p.theirs = comm_scratch(c, bytes);
	if (p.give && p.get && p.theirs) {
		rc = comm_step(c, &barrier, deadline_ns);
		if (!rc && bytes && whole->in != whole->out)
			memcpy(whole->out, whole->in, bytes);
		if (!rc)
			rc = levels(&p, power);
	}
	free(p.give);
	free(p.get);
	return rc;
}
