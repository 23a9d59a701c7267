/* reference.h - what the members of a process set give to an operation, and
 * what each of them has to get: one element at a time, as berth.h says it. */
#ifndef BERTH_TESTS_PROGRAM_REFERENCE_H
#define BERTH_TESTS_PROGRAM_REFERENCE_H

#include <stdlib.h>

#include "tests/helpers/reference.h"

/* A process set as this program knows it; N is 0 where this rank is in none. */
struct group {
	berth_set *set;
	uint64_t id;
	int n, me; /* ME: -1 if this rank is not in it */
	int member[REFERENCE_RANKS], host[REFERENCE_RANKS]; /* in its world */
};

/* A decision on which all ranks agree; ID names what it is about. */
static unsigned choose(uint64_t id, unsigned k, unsigned below)
{
	return (unsigned)(noise(id * 0x2545f4914f6cdd1du + k) % below);
}

/* One of this rank alone. */
static unsigned own(uint64_t id, unsigned k, unsigned below)
{
	return choose(id + ((uint64_t)rank + 1) * 0xd1342543de82ef95u, k, below);
}

static uint64_t part_of(uint64_t id, uint64_t k)
{
	return noise(id ^ (k + 1) * 0xda942042e4dd58b5u);
}

/* ---- elements that are given ---- */

enum { PLAIN_VALUES = 2001, VALUES = 2048 };

struct value {
	uint64_t bits;
	double is;
};

static struct value values[TYPE_COUNT][VALUES];

static void make_values(void)
{
	static const double special[] = { -0.0,    INFINITY, -INFINITY, NAN, 65504.0,
					  0x1p127, 0x1p-149, 0x1p-24,   448, -57344.0 };

	for (int t = 0; t < TYPE_COUNT; t++)
		for (int k = 0; is_float((berth_type)t) && k < VALUES; k++) {
			struct value *v = &values[t][k];

			write_float(&v->bits, (berth_type)t,
				    k < PLAIN_VALUES ? (double)(k - 1000) / 617
						     : special[k % 10]);
			v->is = read_float(&v->bits, (berth_type)t);
		}
}

static bool has_sign(berth_type t)
{
	return t == BERTH_I8 || t == BERTH_I16 || t == BERTH_I32 || t == BERTH_I64;
}

/* The lowest bytes of X as T has them, with its sign. */
static uint64_t wrapped(uint64_t x, berth_type t)
{
	const unsigned shift = (unsigned)(64 - 8 * type_bytes[t]);

	return has_sign(t) ? (uint64_t)((int64_t)(x << shift) >> shift)
			   : x << shift >> shift;
}

/* Elements that SOURCE, a rank, gives to DEST, a place, or 0. */
struct giver {
	uint64_t id;
	berth_type type;
	bool wild; /* with infinities, NaNs, and numbers at the ends of the type */
};

static uint64_t given_noise(const struct giver *g, int source, int dest, uint64_t i)
{
	return noise(g->id + i * 0x9e3779b97f4a7c15u +
		     (uint64_t)(source * 64 + dest) * 0xbf58476d1ce4e5b9u);
}

static const struct value *given_value(const struct giver *g, uint64_t x)
{
	return &values[g->type][x % (g->wild ? VALUES : PLAIN_VALUES)];
}

static uint64_t given_bits(const struct giver *g, int source, int dest, uint64_t i)
{
	const uint64_t x = given_noise(g, source, dest, i);

	if (is_float(g->type))
		return given_value(g, x)->bits;
	return g->type == BERTH_BOOL ? x & 1 : wrapped(x, g->type);
}

/* ---- reductions ---- */

struct reduction {
	const struct group *group;
	struct giver giver;
	berth_op op;
	double prescale, postscale;
	bool in_order;   /* of places, wherever these are; and each pass of the GPU
			  * over an array rounds to the type */
	uint64_t joined; /* a bit for each place that gives nothing */
};

static double combine_floats(double a, double b, berth_op op)
{
	if (op != BERTH_MIN && op != BERTH_MAX)
		return combine(a, b, op);
	if (a != a || b != b)
		return NAN;
	if (a == b)
		return (op == BERTH_MIN) == (signbit(a) != 0) ? a : b;
	return combine(a, b, op);
}

static double scaled_float(double x, double factor, berth_type t)
{
	return factor == 1 ? x : accumulated(x * accumulated(factor, t), t);
}

/* A partial result, which may be of no rank yet. */
struct partial {
	double x;
	bool is_there;
};

static void add_partial(struct partial *to, struct partial more, berth_op op,
			berth_type t)
{
	if (to->is_there && more.is_there)
		to->x = accumulated(combine_floats(to->x, more.x, op), t);
	else if (more.is_there)
		*to = more;
}

static bool is_sum(berth_op op)
{
	return op == BERTH_SUM || op == BERTH_AVG;
}

/* X behind a pass of the GPU. */
static double passed(const struct reduction *r, double x)
{
	uint64_t bits = 0;

	if (!r->in_order)
		return x;
	write_float(&bits, r->giver.type, x);
	return read_float(&bits, r->giver.type);
}

/* A rank that has joined gives zeros to a sum, and nothing to what has none.  On a
 * device these are not scaled: a zero keeps its sign. */
static struct partial of_place(const struct reduction *r, int place, uint64_t i)
{
	const struct giver *g = &r->giver;
	const int source = r->group->member[place];
	struct partial p = { .is_there = true };

	if (r->joined >> place & 1)
		p.is_there = is_sum(r->op);
	else
		p.x = given_value(g, given_noise(g, source, 0, i))->is;
	if (r->in_order && r->joined >> place & 1)
		return p;
	p.x = scaled_float(p.x, r->prescale, g->type);
	if (r->prescale != 1)
		p.x = passed(r, p.x);
	return p;
}

/* The result of the members on HOST, in their order. */
static struct partial of_host(const struct reduction *r, int host, uint64_t i)
{
	struct partial all = { 0 };

	for (int k = 0; k < r->group->n; k++)
		if (r->in_order || r->group->host[k] == host)
			add_partial(&all, of_place(r, k, i), r->op, r->giver.type);
	return all;
}

/* The result of the hosts AT, AT + STEP, AT + 2 STEP, ... of N. */
static struct partial of_hosts(const struct reduction *r, const int *host, int n,
			       int at, int step, uint64_t i)
{
	struct partial all;

	if (at + step >= n)
		return of_host(r, host[at], i);
	all = of_hosts(r, host, n, at, 2 * step, i);
	add_partial(&all, of_hosts(r, host, n, at + step, 2 * step, i), r->op,
		    r->giver.type);
	return all;
}

/* The hosts of a set, in the order of their first members. */
static int hosts_of(const struct group *g, int *host)
{
	int n = 0, k;

	for (int i = 0; i < g->n; i++) {
		for (k = 0; k < n && host[k] != g->host[i]; k++)
			;
		if (k == n)
			host[n++] = g->host[i];
	}
	return n;
}

static uint64_t reduced_floats(const struct reduction *r, uint64_t i)
{
	const berth_type t = r->giver.type;
	int host[REFERENCE_RANKS], n = r->in_order ? 1 : hosts_of(r->group, host);
	/* NCCL averages where the number of ranks is a power of two */
	const bool divides = r->op == BERTH_AVG && r->group->n & (r->group->n - 1);
	double x = of_hosts(r, host, n, 0, 1, i).x;
	uint64_t bits = 0;

	if (divides)
		x = passed(r, x);
	if (r->op == BERTH_AVG)
		x = accumulated(x / r->group->n, t);
	if (r->postscale != 1 && !divides)
		x = passed(r, x);
	write_float(&bits, t, scaled_float(x, r->postscale, t));
	return bits;
}

static uint64_t scaled_integer(uint64_t x, double factor, berth_type t)
{
	const double end = ldexp(1, 8 * (int)type_bytes[t] - has_sign(t));
	const unsigned unused = (unsigned)(64 - 8 * type_bytes[t]);
	double y;

	if (factor == 1 || t == BERTH_BOOL)
		return x;
	y = (has_sign(t) ? (double)(int64_t)x : (double)x) * factor;
	if (y >= end) /* the greatest is END - 1 */
		return (has_sign(t) ? (uint64_t)INT64_MAX : UINT64_MAX) >> unused;
	if (has_sign(t))
		return (uint64_t)(y <= -end ? INT64_MIN >> unused : (int64_t)y);
	return y <= 0 ? 0 : (uint64_t)y;
}

static uint64_t combine_integers(uint64_t a, uint64_t b, berth_op op, berth_type t)
{
	const bool less = has_sign(t) ? (int64_t)b < (int64_t)a : b < a;

	switch (op) {
	case BERTH_MIN:
		return less ? b : a;
	case BERTH_MAX:
		return less ? a : b;
	case BERTH_PRODUCT:
		return a * b;
	case BERTH_BAND:
		return a & b;
	case BERTH_BOR:
		return a | b;
	case BERTH_BXOR:
		return a ^ b;
	default:
		return t == BERTH_BOOL ? a | b : a + b;
	}
}

static uint64_t reduced_integers(const struct reduction *r, uint64_t i)
{
	const berth_type t = r->giver.type;
	const uint64_t n = (uint64_t)r->group->n;
	uint64_t all = 0;
	bool is_first = true;

	for (int k = 0; k < r->group->n; k++) {
		uint64_t x = given_bits(&r->giver, r->group->member[k], 0, i);

		if (r->joined >> k & 1)
			continue;
		x = wrapped(scaled_integer(x, r->prescale, t), t);
		all = is_first ? x : wrapped(combine_integers(all, x, r->op, t), t);
		is_first = false;
	}
	if (r->op == BERTH_AVG)
		all = has_sign(t) ? (uint64_t)((int64_t)all / (int64_t)n) : all / n;
	return scaled_integer(all, r->postscale, t);
}

/* Element I of the result. */
static uint64_t reduced(const struct reduction *r, uint64_t i)
{
	return is_float(r->giver.type) ? reduced_floats(r, i) : reduced_integers(r, i);
}

/* In results, each NaN is as good as another one. */
static bool is_equal(uint64_t a, uint64_t b, berth_type t, bool is_result)
{
	double x, y;

	if (!memcmp(&a, &b, type_bytes[t]))
		return true;
	if (!is_result || !is_float(t))
		return false;
	x = read_float(&a, t);
	y = read_float(&b, t);
	return x != x && y != y;
}

#endif
