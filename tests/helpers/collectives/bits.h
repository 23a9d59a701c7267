/* bits.h - the bits of a reduction are those of the reference, whether it is called or
 * submitted, alone or together with others, early or late. */
#ifndef BERTH_TESTS_BITS_H
#define BERTH_TESTS_BITS_H

#include "tests/helpers/verify.h"
#include "tests/helpers/calls.h"

enum { BITS_TENSORS = 24, BITS_MOST = 3000 };

struct bits_tensor {
	struct berth_desc d;
	char name[24];
	unsigned number; /* of what the ranks give */
	berth_request *request;
	void *in, *out;
};

static const berth_type bits_types[] = { BERTH_F32, BERTH_BF16,    BERTH_F16,
					 BERTH_F64, BERTH_F8_E4M3, BERTH_F8_E5M2,
					 BERTH_I32 };

/* Tensor I of STEP: the same on all ranks. */
static void bits_fill(struct bits_tensor *t, unsigned i, unsigned step)
{
	static const double third = 1.0 / 3;
	const uint64_t x = noise(i * 977u + 1);
	const berth_type type =
		bits_types[x % (sizeof bits_types / sizeof *bits_types)];

	t->number = step * BITS_TENSORS + i;
	snprintf(t->name, sizeof t->name, "bits %u", i);
	t->d = (struct berth_desc)BERTH_DESC(.name = t->name, .in = t->in,
					     .out = x >> 8 & 1 ? t->in : t->out,
					     .count = 1 + (x >> 16) % BITS_MOST,
					     .type = type,
					     .op = x >> 10 & 1 ? BERTH_AVG : BERTH_SUM);
	if (is_float(type) && x >> 12 & 1)
		t->d.prescale = &third;
	for (uint64_t k = 0; k < t->d.count; k++)
		give((char *)t->in + k * type_bytes[type], type, k, rank, t->number);
}

static void bits_check(const struct bits_tensor *t)
{
	const struct berth_desc *d = &t->d;

	for (uint64_t k = 0; k<d->count; k += d->count> 400 ? 7 : 1)
		check_element((const char *)d->out + k * type_bytes[d->type], k, d,
			      t->number, "bits");
}

/* Each rank in an order of its own, with pauses of its own. */
static void bits_step(struct bits_tensor *all, unsigned step)
{
	unsigned order[BITS_TENSORS];

	for (unsigned i = 0; i < BITS_TENSORS; i++) {
		bits_fill(&all[i], i, step);
		order[i] = i;
	}
	for (unsigned i = BITS_TENSORS; i-- > 1;) {
		unsigned k = (unsigned)(noise(step * 64 + i + (unsigned)rank * 7919) %
					(i + 1)),
			 was = order[i];

		order[i] = order[k];
		order[k] = was;
	}
	for (unsigned i = 0; i < BITS_TENSORS; i++) {
		struct bits_tensor *t = &all[order[i]];

		if (noise(step + i * 31 + (unsigned)rank * 101) % 5 == 0)
			usleep((useconds_t)(noise(i + step * 7) % 400));
		FINE(call_submit(BERTH_ALLREDUCE, &t->d, 1, &t->request));
	}
	for (unsigned i = 0; i < BITS_TENSORS; i++) {
		FINE(berth_wait(all[i].request, -1));
		bits_check(&all[i]);
	}
}

static void bits(void)
{
	struct bits_tensor all[BITS_TENSORS];

	find_hosts();
	for (unsigned i = 0; i < BITS_TENSORS; i++) {
		all[i].in = malloc(BITS_MOST * 8);
		all[i].out = malloc(BITS_MOST * 8);
	}
	for (unsigned step = 0; step < (getenv("ALL") ? 100 : 20); step++)
		bits_step(all, step);
	for (unsigned i = 0; i < BITS_TENSORS; i++) {
		bits_fill(&all[i], i, 1000);
		FINE(call_allreduce(&all[i].d));
		bits_check(&all[i]);
		free(all[i].in);
		free(all[i].out);
	}
}

#endif
