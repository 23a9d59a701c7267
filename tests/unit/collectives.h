/* collectives.h - every kind of operation of a back end against a plain reference, with
 * the same bits on all ranks; and what goes wrong. */
#ifndef BERTH_TESTS_COLLECTIVES_H
#define BERTH_TESTS_COLLECTIVES_H

#include "ranks.h"

#include <time.h>

#include "lib/backend/backend.h"
#include "lib/backend/coll_rows.h"

struct group {
	const struct backend *back;
	void *group;
	/* The number of a rank's host; numbers begin with 0 in the order of ranks.
	 * NULL: all ranks are on one host. */
	unsigned (*host_of)(unsigned rank, unsigned n);
};

/* ---- reductions: the reference, in the order that berth.h says ---- */

struct reference {
	const struct coll *c;
	unsigned hosts;
	unsigned char *share[64]; /* partial sums of each host */
};

static size_t partial_bytes(const struct coll *c)
{
	return c->count * kern_size(kern_accumulator(c->type)) + 64;
}

/* What host HOST has, of its ranks in their order. */
static void *share_of(const struct ranks *r, const struct group *g,
		      const struct coll *c, unsigned host, unsigned op)
{
	size_t each = c->count * kern_size(c->type) / 64 * 64 + 64;
	unsigned char *all = malloc(r->n * each), *sum = malloc(partial_bytes(c));
	const void *src[64];
	unsigned n = 0;
	struct kern k;

	for (unsigned rank = 0; rank < r->n; rank++) {
		if (g->host_of && g->host_of(rank, r->n) != host)
			continue;
		src[n] = all + n * each;
		ranks_fill((void *)(uintptr_t)src[n++], c->type, c->count, rank, op);
	}
	kern_make(&k, c->type, c->op, &c->scale, KERN_ELEMENTS, KERN_PARTIAL);
	kern_reduce(&k, &(void *){ sum }, 1, src, n, c->count, false);
	free(all);
	return sum;
}

/* What hosts I, I + STEP, ... have, into the share of I. */
static void add_hosts(struct reference *f, unsigned i, unsigned step)
{
	const unsigned other = i + step;
	struct kern k;

	if (other >= f->hosts)
		return;
	add_hosts(f, i, 2 * step);
	add_hosts(f, other, 2 * step);
	kern_make(&k, f->c->type, f->c->op, &f->c->scale, KERN_PARTIAL, KERN_PARTIAL);
	kern_reduce(&k, &(void *){ f->share[i] }, 1,
		    (const void *[]){ f->share[i], f->share[other] }, 2, f->c->count,
		    false);
}

static void *expected(const struct ranks *r, const struct group *g,
		      const struct coll *c, unsigned op)
{
	unsigned char *all = malloc(c->count * kern_size(c->type) + 64);
	struct reference f = { .c = c, .hosts = 1 };
	struct kern k;

	for (unsigned rank = 0; g->host_of && rank < r->n; rank++)
		if (g->host_of(rank, r->n) >= f.hosts)
			f.hosts = g->host_of(rank, r->n) + 1;
	for (unsigned h = 0; h < f.hosts; h++)
		f.share[h] = share_of(r, g, c, h, op);
	add_hosts(&f, 0, 1);
	kern_make(&k, c->type, c->op, &c->scale, KERN_PARTIAL, KERN_ELEMENTS);
	kern_reduce(&k, &(void *){ all }, 1, (const void *[]){ f.share[0] }, 1,
		    c->count, false);
	for (unsigned h = 0; h < f.hosts; h++)
		free(f.share[h]);
	return all;
}

/* ---- reductions ---- */

/* What this rank gets of C, and from which element on. */
static uint64_t got_of(const struct ranks *r, const struct coll *c, uint64_t *at)
{
	*at = 0;
	if (c->kind == BERTH_REDUCESCATTER) {
		*at = coll_part_at(c, r->n, r->me);
		return coll_part(c, r->n, r->me);
	}
	return c->kind == BERTH_ALLREDUCE || c->root == r->me ? c->count : 0;
}

static void check_reduction(struct ranks *r, struct group *g, struct coll *c, void *in,
			    void *out, unsigned op)
{
	const size_t size = kern_size(c->type);
	unsigned char *want = expected(r, g, c, op);
	uint64_t at, n = got_of(r, c, &at);
	berth_result rc;

	c->in = in;
	c->out = out;
	c->signature = op;
	ranks_fill(in, c->type, c->count, r->me, op);
	rc = g->back->begin(g->group, c, 0);
	RANKS_ASSERT(r, !rc, "operation %u: %d", op, rc);
	RANKS_ASSERT(r, !n || !memcmp(out, want + at * size, n * size),
		     "kind %d %s %s, %zu elements, %s, scales %d %u %d: wrong", c->kind,
		     kern_type_name(c->type), kern_op_name(c->op), (size_t)c->count,
		     in == out ? "in place" : "apart", c->scale.has_prescale,
		     c->scale.divide, c->scale.has_postscale);
	free(want);
}

/* Averages, and other scales now and then. */
static struct kern_scale scale_of(const struct ranks *r, berth_op op, unsigned number)
{
	struct kern_scale s = { 0 };

	if (op >= BERTH_BAND)
		return s;
	s.divide = op == BERTH_SUM && number % 2 ? r->n : 0;
	s.has_prescale = number % 3 == 1;
	s.prescale = 0.3;
	s.has_postscale = number % 5 == 2;
	s.postscale = 1.7;
	return s;
}

static enum berth_kind kind_of(unsigned number)
{
	return number % 5 == 0   ? BERTH_REDUCE
	       : number % 7 == 3 ? BERTH_REDUCESCATTER
				 : BERTH_ALLREDUCE;
}

/* Bytes of IN in front of what this rank gets, where OUT may be. */
static size_t kept_at(const struct ranks *r, const struct coll *c)
{
	return c->kind == BERTH_REDUCESCATTER
		       ? coll_part_at(c, r->n, r->me) * kern_size(c->type)
		       : 0;
}

static void check_reductions(struct ranks *r, struct group *g)
{
	static const uint64_t counts[] = { 0,    1,    3,    12,    13,   500,
					   1023, 1025, 5003, 33001, 90011 };
	unsigned char *a = malloc(90011 * 8 + 64), *b = malloc(90011 * 8 + 64);
	unsigned op = 1;

	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		for (berth_type t = 0; t < TYPE_COUNT; t++)
			for (berth_op o = 0; o <= BERTH_BXOR; o++) {
				struct coll c = { .kind = kind_of(op),
						  .count = counts[i],
						  .type = t,
						  .op = o,
						  .root = op % r->n,
						  .scale = scale_of(r, o, op) };
				unsigned char *in = a + op % 4 * kern_size(t);
				unsigned char *kept = in + kept_at(r, &c);

				if (!kern_is_defined(t, o) ||
				    (counts[i] > 6000 && (op + o + t) % r->n > 1))
					continue;
				check_reduction(r, g, &c, in, op % 3 ? b : kept, op);
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
	RANKS_ASSERT(r, !g->back->begin(g->group, &c, 0), "allgather");
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
	RANKS_ASSERT(r, !g->back->begin(g->group, &c, 0), "broadcast");
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
	struct coll c = { .kind = BERTH_ALLTOALL,
			  .type = BERTH_U32,
			  .largest = 2 * count,
			  .signature = op };
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
	RANKS_ASSERT(r, !g->back->begin(g->group, &c, 0), "alltoall");
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
	out = op % 3 ? ranks_array(r, counts[r->me] * 4 + 4) : in + at;
	for (uint64_t i = 0; i < all; i++)
		in[i] = word(r->me, 0, i, op);
	c.count = all;
	c.in_counts = uneven ? counts : NULL;
	c.in = in;
	c.out = out;
	RANKS_ASSERT(r, !g->back->begin(g->group, &c, 0), "reducescatter");
	for (uint64_t i = 0; i < counts[r->me]; i++) {
		uint32_t sum = 0;

		for (unsigned k = 0; k < r->n; k++)
			sum += word(k, 0, at + i, op);
		RANKS_ASSERT(r, out[i] == sum, "reducescatter of %zu: [%zu]",
			     (size_t)count, (size_t)i);
	}
	if (op % 3)
		ranks_free(r, out);
	ranks_free(r, in);
}

/* Each to the root; which may have its own where it goes to. */
static void check_to_root(struct ranks *r, struct group *g, uint64_t count, unsigned op)
{
	struct coll c = { .kind = BERTH_GATHER,
			  .type = BERTH_U32,
			  .count = count,
			  .root = op / 2 % r->n,
			  .signature = op };
	uint32_t *in = ranks_array(r, count * 4 + 4);
	uint32_t *out = ranks_array(r, r->n * count * 4 + 4);
	bool is_root = r->me == c.root;

	memset(out, 0xee, r->n * count * 4 + 4);
	c.in = is_root && op % 2 ? out + r->me * count : in;
	c.out = out;
	for (uint64_t i = 0; i < count; i++)
		((uint32_t *)(uintptr_t)c.in)[i] = word(r->me, 0, i, op);
	RANKS_ASSERT(r, !g->back->begin(g->group, &c, 0), "gather");
	for (uint64_t i = 0; i < r->n * count; i++)
		RANKS_ASSERT(r,
			     out[i] == (is_root ? word((unsigned)(i / count), 0,
						       i % count, op)
						: 0xeeeeeeee),
			     "gather of %zu: [%zu]", (size_t)count, (size_t)i);
	RANKS_ASSERT(r, out[r->n * count] == 0xeeeeeeee, "gather wrote too much");
	ranks_free(r, in);
	ranks_free(r, out);
}

/* The root to each; which may leave its own where it is. */
static void check_from_root(struct ranks *r, struct group *g, uint64_t count,
			    unsigned op)
{
	struct coll c = { .kind = BERTH_SCATTER,
			  .type = BERTH_U32,
			  .count = count,
			  .root = op / 2 % r->n,
			  .signature = op };
	uint32_t *in = ranks_array(r, r->n * count * 4 + 4);
	uint32_t *out = ranks_array(r, count * 4 + 4), *got;

	for (uint64_t i = 0; i < r->n * count; i++)
		in[i] = word(r->me, (unsigned)(i / count), i % count, op);
	out[count] = 0xeeeeeeee;
	got = r->me == c.root && op % 2 ? in + r->me * count : out;
	c.in = r->me == c.root || op % 4 > 1 ? in : NULL;
	c.out = got;
	RANKS_ASSERT(r, !g->back->begin(g->group, &c, 0), "scatter");
	for (uint64_t i = 0; i < count; i++)
		RANKS_ASSERT(r, got[i] == word(c.root, r->me, i, op),
			     "scatter of %zu: [%zu]", (size_t)count, (size_t)i);
	RANKS_ASSERT(r, out[count] == 0xeeeeeeee, "scatter wrote too much");
	ranks_free(r, in);
	ranks_free(r, out);
}

/* ---- what ranks know only of their own ---- */

/* Elements that rank I gives to rank K: of an allgather, the same to all. */
static uint64_t row_count(unsigned i, unsigned k, uint64_t count, bool gather)
{
	return gather ? count * ((i + 1) % 3) / 2 : count * ((i + 2 * k) % 3) / 2;
}

struct rows_check {
	struct ranks *r;
	uint64_t count, get[64], all;
	void *out;
	bool differs; /* settle() says that */
};

static berth_result settle(void *ctx, struct coll *c)
{
	struct rows_check *x = ctx;
	const unsigned n = x->r->n, me = x->r->me;
	const bool gather = c->kind == BERTH_ALLGATHER;

	for (unsigned i = 0; i < n; i++) {
		const uint64_t *row = c->rows->all + i * c->rows->words;

		for (unsigned k = 0; k < (gather ? 1 : n); k++)
			RANKS_ASSERT(x->r, row[k] == row_count(i, k, x->count, gather),
				     "row %u of %u: [%u] is %zu", i, n, k,
				     (size_t)row[k]);
		RANKS_ASSERT(x->r, row[c->rows->words - 1] == 1000 + i, "end of row");
		x->all += x->get[i] = row[gather ? 0 : me];
	}
	if (x->differs)
		return BERTH_MISMATCH;
	c->out = x->out = ranks_array(x->r, x->all * 4 + 4);
	((uint32_t *)x->out)[x->all] = 0xeeeeeeee;
	c->in_counts = gather ? NULL : c->rows->mine;
	c->out_counts = x->get;
	c->largest = x->count;
	return BERTH_OK;
}

static void check_rows(struct ranks *r, struct group *g, uint64_t count, bool gather,
		       bool differs, unsigned op)
{
	uint64_t mine[65], all[64 * 65], at = 0, words = gather ? 2 : r->n + 1;
	struct rows_check x = { .r = r, .count = count, .differs = differs };
	struct coll_rows rows = { r->n, r->me, mine, words, all, settle, &x };
	struct coll c = { .kind = gather ? BERTH_ALLGATHER : BERTH_ALLTOALL,
			  .type = BERTH_U32,
			  .rows = &rows,
			  .signature = op };
	uint32_t *in, *out;
	berth_result rc;

	for (unsigned k = 0; k < words - 1; k++)
		c.count += mine[k] = row_count(r->me, k, count, gather);
	mine[words - 1] = 1000 + r->me;
	c.in = in = ranks_array(r, c.count * 4 + 4);
	for (unsigned k = 0; k < words - 1; k++)
		for (uint64_t i = 0; i < mine[k]; i++)
			in[at++] = word(r->me, k, i, op);
	rc = coll_run_rows(g->back, g->group, &c, 0);
	RANKS_ASSERT(r, rc == (differs ? BERTH_MISMATCH : BERTH_OK), "rows: %d", rc);
	at = 0;
	out = x.out;
	for (unsigned k = 0; out && k < r->n; k++)
		for (uint64_t i = 0; i < x.get[k]; i++)
			RANKS_ASSERT(r, out[at++] == word(k, gather ? 0 : r->me, i, op),
				     "rows of %zu: from %u [%zu]", (size_t)count, k,
				     (size_t)i);
	RANKS_ASSERT(r, !out || out[at] == 0xeeeeeeee, "rows: wrote too much");
	ranks_free(r, in);
	ranks_free(r, out);
}

static void check_all_rows(struct ranks *r, struct group *g)
{
	static const uint64_t counts[] = { 0, 2, 6, 12, 140, 2000, 9000, EACH - 1 };
	unsigned op = 1000;

	for (int turn = 0; turn < 3; turn++)
		for (size_t i = 0; i < sizeof counts / sizeof *counts; i++, op += 6) {
			check_rows(r, g, counts[i], turn & 1, false, op);
			check_rows(r, g, counts[i], !(turn & 1), turn > 1, op + 2);
			check_broadcast(r, g, counts[i], op + 4);
		}
}

static void check_moves(struct ranks *r, struct group *g)
{
	static const uint64_t counts[] = { 0, 1, 5, 17, 140, 1000, EACH };
	unsigned op = 1;

	for (int turn = 0; turn < 4; turn++)
		for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
			check_gather(r, g, counts[i], turn & 1, op++);
			check_broadcast(r, g, counts[i], op++);
			check_exchange(r, g, counts[i] / (turn & 1 ? 3 : 1), turn & 1,
				       op++);
			check_scatter(r, g, counts[i], turn & 1, op++);
			check_to_root(r, g, counts[i], op++);
			check_from_root(r, g, counts[i], op++);
			RANKS_ASSERT(
				r,
				!g->back->begin(g->group,
						&(struct coll){ .kind = BERTH_BARRIER,
								.signature = op },
						0),
				"barrier");
			op++;
		}
	check_all_rows(r, g);
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
		RANKS_ASSERT(r, g->back->begin(g->group, &c, 0) == BERTH_MISMATCH,
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
		RANKS_ASSERT(r, g->back->begin(g->group, &c, 0) == BERTH_MISMATCH,
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
			     !g->back->begin(g->group,
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
