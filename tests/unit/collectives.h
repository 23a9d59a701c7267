/* collectives.h - every kind of operation of a back end against a plain reference, with
 * the same bits on all ranks; and what goes wrong. */
#ifndef BERTH_TESTS_COLLECTIVES_H
#define BERTH_TESTS_COLLECTIVES_H

#include "ranks.h"

#include <time.h>

#include "lib/backend/backend.h"

struct group {
	const struct backend *back;
	void *group;
	/* Of a back end whose sums are in another order than that of ranks: 128
	 * words that all ranks see, to compare the bits they got.  NULL: they are
	 * the reference's. */
	uint64_t *hash;
};

/* ---- reductions ---- */

static void *expected(const struct ranks *r, const struct coll *c, unsigned op)
{
	size_t size = kern_size(c->type);
	unsigned char *all = malloc((r->n + 1) * (c->count * size + 64));
	const void *src[64];

	for (unsigned k = 0; k < r->n; k++) {
		src[k] = all + (k + 1) * (c->count * size + 64) / 64 * 64;
		ranks_fill((void *)src[k], c->type, c->count, k, op);
	}
	kern_reduce_of(c->type, c->op)(&(void *){ all }, 1, src, r->n, c->count, false);
	return all;
}

static double as_double(berth_type type, const void *p, uint64_t i)
{
	uint32_t bits;
	float f;

	switch (type) {
	case BERTH_F32:
		return ((const float *)p)[i];
	case BERTH_F64:
		return ((const double *)p)[i];
	case BERTH_F16:
		return (double)((const _Float16 *)p)[i];
	default:
		bits = (uint32_t)((const uint16_t *)p)[i] << 16;
		memcpy(&f, &bits, 4);
		return f;
	}
}

/* The same but for the order in which it was rounded. */
static bool is_near(berth_type type, const void *got, const void *want, uint64_t n)
{
	double most = type == BERTH_F64 ? 1e-12 : type == BERTH_F32 ? 1e-5 : 0.1;

	for (uint64_t i = 0; i < n; i++) {
		double a = as_double(type, got, i), b = as_double(type, want, i),
		       d = a - b;

		if (!((d < 0 ? -d : d) <= most * (1 + (b < 0 ? -b : b))))
			return false;
	}
	return true;
}

static bool is_float(berth_type t)
{
	return t == BERTH_F16 || t == BERTH_BF16 || t == BERTH_F32 || t == BERTH_F64;
}

/* All ranks have the same bits: by what each leaves in memory that all see. */
static void check_same(struct ranks *r, struct group *g, const void *p, size_t bytes,
		       unsigned op)
{
	struct coll barrier = { .kind = BERTH_BARRIER, .signature = op };
	uint64_t hash = 14695981039346656037u, *all = g->hash + op % 2 * 64;

	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ ((const unsigned char *)p)[i]) * 1099511628211u;
	all[r->me] = hash;
	RANKS_ASSERT(r, !g->back->run(g->group, &barrier, 0), "barrier");
	for (unsigned k = 0; k < r->n; k++)
		RANKS_ASSERT(r, all[k] == hash, "operation %u: other bits on rank %u",
			     op, k);
}

static void check_reduction(struct ranks *r, struct group *g, struct coll *c, void *in,
			    void *out, unsigned op)
{
	size_t bytes = c->count * kern_size(c->type);
	unsigned char *want = expected(r, c, op);
	berth_result rc;
	bool fine;

	c->in = in;
	c->out = out;
	c->signature = op;
	ranks_fill(in, c->type, c->count, r->me, op);
	rc = g->back->run(g->group, c, 0);
	RANKS_ASSERT(r, !rc, "operation %u: %d", op, rc);
	if (c->kind == BERTH_ALLREDUCE || c->root == r->me) {
		fine = g->hash && is_float(c->type)
			       ? is_near(c->type, out, want, c->count)
			       : !memcmp(out, want, bytes);
		RANKS_ASSERT(r, fine, "kind %d %s %s, %zu elements, %s: wrong", c->kind,
			     kern_type_name(c->type), kern_op_name(c->op),
			     (size_t)c->count, in == out ? "in place" : "apart");
	}
	if (g->hash && c->kind == BERTH_ALLREDUCE)
		check_same(r, g, out, bytes, op);
	free(want);
}

static void check_reductions(struct ranks *r, struct group *g)
{
	static const uint64_t counts[] = { 0,    1,    3,    12,    13,   500,
					   1023, 1025, 5003, 33001, 90011 };
	unsigned char *a = malloc(90011 * 8 + 64), *b = malloc(90011 * 8 + 64);
	unsigned op = 1;

	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		for (berth_type t = 0; t < BERTH_TYPES; t++)
			for (berth_op o = 0; o <= BERTH_BXOR; o++) {
				struct coll c = { .kind = op % 5 ? BERTH_ALLREDUCE
								 : BERTH_REDUCE,
						  .count = counts[i],
						  .type = t,
						  .op = o,
						  .root = op % r->n };

				if (!kern_reduce_of(t, o) ||
				    (counts[i] > 6000 && (op + o + t) % r->n > 1))
					continue;
				check_reduction(r, g, &c, a + op % 4 * kern_size(t),
						op % 3 ? b : a + op % 4 * kern_size(t),
						op);
				op++;
			}
	free(a);
	free(b);
}

/* ---- data that move ---- */

enum { EACH = 90001 };

static uint32_t word(unsigned from, unsigned to, uint64_t i, unsigned op)
{
	return (uint32_t)(i * 31 + from * 1000003 + to * 7919 + op * 104729);
}

static void check_gather(struct ranks *r, struct group *g, uint64_t count, bool uneven,
			 unsigned op)
{
	uint64_t counts[64], at = 0, all = 0;
	uint32_t *in, *out;
	struct coll c = { .kind = BERTH_ALLGATHER, .type = BERTH_U32, .signature = op };

	for (unsigned k = 0; k < r->n; k++) {
		counts[k] = uneven ? count * k / 2 : count;
		at += k < r->me ? counts[k] : 0;
		all += counts[k];
	}
	in = ranks_array(r, counts[r->me] * 4 + 4);
	out = ranks_array(r, all * 4 + 4);
	for (uint64_t i = 0; i < counts[r->me]; i++)
		in[i] = word(r->me, 0, i, op);
	c.count = counts[r->me];
	c.out_counts = uneven ? counts : NULL;
	c.out = out;
	c.in = in;
	if (op % 3) { /* in place, or it lies where it goes to */
		c.in = op % 3 == 1 ? out : out + at;
		memcpy((void *)c.in, in, c.count * 4);
	}
	RANKS_ASSERT(r, !g->back->run(g->group, &c, 0), "allgather");
	at = 0;
	for (unsigned k = 0; k < r->n; k++)
		for (uint64_t i = 0; i < counts[k]; i++)
			RANKS_ASSERT(r, out[at++] == word(k, 0, i, op),
				     "allgather of %zu: from %u [%zu]", (size_t)count,
				     k, (size_t)i);
	ranks_free(r, in);
	ranks_free(r, out);
}

static void check_broadcast(struct ranks *r, struct group *g, uint64_t count,
			    unsigned op)
{
	struct coll c = { .kind = BERTH_BROADCAST,
			  .type = BERTH_U32,
			  .signature = op,
			  .count = count,
			  .root = op % r->n };
	uint32_t *buf = memset(ranks_array(r, count * 4 + 4), 0, count * 4 + 4);

	for (uint64_t i = 0; r->me == c.root && i < count; i++)
		buf[i] = word(c.root, 0, i, op);
	c.in = c.out = buf;
	RANKS_ASSERT(r, !g->back->run(g->group, &c, 0), "broadcast");
	for (uint64_t i = 0; i < count; i++)
		RANKS_ASSERT(r, buf[i] == word(c.root, 0, i, op),
			     "broadcast of %zu: [%zu]", (size_t)count, (size_t)i);
	RANKS_ASSERT(r, !buf[count], "broadcast wrote too much");
	ranks_free(r, buf);
}

static void check_exchange(struct ranks *r, struct group *g, uint64_t count,
			   bool uneven, unsigned op)
{
	uint64_t give[64], get[64], at = 0, all = 0, in_all = 0;
	struct coll c = { .kind = BERTH_ALLTOALL, .type = BERTH_U32, .signature = op };
	uint32_t *in, *out;

	for (unsigned k = 0; k < r->n; k++) {
		give[k] = uneven ? count * ((r->me + 2 * k) % 3) : count;
		get[k] = uneven ? count * ((k + 2 * r->me) % 3) : count;
		in_all += give[k];
		all += get[k];
	}
	in = ranks_array(r, in_all * 4 + 4);
	out = op % 2 && !uneven ? in : ranks_array(r, all * 4 + 4);
	for (unsigned k = 0; k < r->n; k++)
		for (uint64_t i = 0; i < give[k]; i++)
			in[at++] = word(r->me, k, i, op);
	c.count = in_all;
	c.in = in;
	c.out = out;
	c.in_counts = uneven ? give : NULL;
	c.out_counts = uneven ? get : NULL;
	RANKS_ASSERT(r, !g->back->run(g->group, &c, 0), "alltoall");
	at = 0;
	for (unsigned k = 0; k < r->n; k++)
		for (uint64_t i = 0; i < get[k]; i++)
			RANKS_ASSERT(r, out[at++] == word(k, r->me, i, op),
				     "alltoall of %zu: from %u [%zu]", (size_t)count, k,
				     (size_t)i);
	if (out != in)
		ranks_free(r, out);
	ranks_free(r, in);
}

static void check_scatter(struct ranks *r, struct group *g, uint64_t count, bool uneven,
			  unsigned op)
{
	uint64_t counts[64], at = 0, all = 0;
	struct coll c = { .kind = BERTH_REDUCESCATTER,
			  .type = BERTH_I32,
			  .op = BERTH_SUM,
			  .signature = op };
	uint32_t *in, *out;

	for (unsigned k = 0; k < r->n; k++) {
		counts[k] = uneven ? count * k : count / r->n + (k < count % r->n);
		at += k < r->me ? counts[k] : 0;
		all += counts[k];
	}
	in = ranks_array(r, all * 4 + 4);
	out = ranks_array(r, counts[r->me] * 4 + 4);
	for (uint64_t i = 0; i < all; i++)
		in[i] = word(r->me, 0, i, op);
	c.count = all;
	c.in_counts = uneven ? counts : NULL;
	c.in = in;
	c.out = out;
	RANKS_ASSERT(r, !g->back->run(g->group, &c, 0), "reducescatter");
	for (uint64_t i = 0; i < counts[r->me]; i++) {
		uint32_t sum = 0;

		for (unsigned k = 0; k < r->n; k++)
			sum += word(k, 0, at + i, op);
		RANKS_ASSERT(r, out[i] == sum, "reducescatter of %zu: [%zu]",
			     (size_t)count, (size_t)i);
	}
	ranks_free(r, in);
	ranks_free(r, out);
}

static void check_moves(struct ranks *r, struct group *g)
{
	static const uint64_t counts[] = { 0, 1, 17, 1000, EACH };
	unsigned op = 1;

	for (int turn = 0; turn < 4; turn++)
		for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
			check_gather(r, g, counts[i], turn & 1, op++);
			check_broadcast(r, g, counts[i], op++);
			check_exchange(r, g, counts[i] / (turn & 1 ? 3 : 1), turn & 1,
				       op++);
			check_scatter(r, g, counts[i], turn & 1, op++);
			RANKS_ASSERT(
				r,
				!g->back->run(g->group,
					      &(struct coll){ .kind = BERTH_BARRIER,
							      .signature = op },
					      0),
				"barrier");
			op++;
		}
}

/* ---- what goes wrong ---- */

/* A large array that is summed in place is as it was. */
static void check_large_mismatch(struct ranks *r, struct group *g)
{
	enum { MOST = 100000 };
	static float x[MOST];
	char text[] = "?";
	const char *said[8];

	for (unsigned turn = 0; turn < 3; turn++) {
		const size_t counts[] = { MOST, MOST / 2, 2 };
		struct coll c = { .kind = BERTH_ALLREDUCE,
				  .type = BERTH_F32,
				  .count = r->me == 1 ? counts[turn] : MOST,
				  .in = x,
				  .out = x,
				  .signature = r->me == 1 ? 7 : 9 };

		for (unsigned i = 0; i < MOST; i++)
			x[i] = (float)(r->me + i % 7);
		RANKS_ASSERT(r, g->back->run(g->group, &c, 0) == BERTH_MISMATCH,
			     "no mismatch");
		for (unsigned i = r->me == 1 && turn == 2 ? 2 : 0; i < MOST; i++)
			RANKS_ASSERT(r, x[i] == (float)(r->me + i % 7), "turn %u: [%u]",
				     turn, i);
		RANKS_ASSERT(r, !g->back->explain(g->group, text, said), "explain");
	}
}

static void check_mismatch(struct ranks *r, struct group *g)
{
	unsigned which[8];
	const char *said[8];
	char text[32];
	float x[2000] = { 0 };
	struct coll c = { .kind = BERTH_ALLREDUCE,
			  .type = BERTH_F32,
			  .count = r->me == 1 ? 2000 : 2,
			  .in = x,
			  .out = x,
			  .signature = r->me == 1 ? 7 : 9 };

	for (int turn = 0; turn < 3; turn++) {
		RANKS_ASSERT(r, g->back->run(g->group, &c, 0) == BERTH_MISMATCH,
			     "no mismatch");
		RANKS_ASSERT(r, g->back->others(g->group, which, 8) >= 1, "others");
		RANKS_ASSERT(r, r->me == 1 || which[0] == 1, "who: %u", which[0]);
		snprintf(text, sizeof text, "I am %u", r->me);
		RANKS_ASSERT(r, !g->back->explain(g->group, text, said), "explain");
		for (unsigned k = 0; k < r->n; k++) {
			snprintf(text, sizeof text, "I am %u", k);
			RANKS_ASSERT(r, !strcmp(said[k], text), "said: %s", said[k]);
		}
		/* and it goes on */
		RANKS_ASSERT(r,
			     !g->back->run(g->group,
					   &(struct coll){ .kind = BERTH_ALLREDUCE,
							   .type = BERTH_F32,
							   .count = 2000,
							   .in = x,
							   .out = x,
							   .signature = 3 },
					   0),
			     "after it");
	}
	check_large_mismatch(r, g);
}

#endif
