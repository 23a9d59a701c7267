/* operation.h - one operation of a random program: what it is, which all ranks
 * decide alike. */
#ifndef BERTH_TESTS_PROGRAM_OPERATION_H
#define BERTH_TESTS_PROGRAM_OPERATION_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/helpers/programs/reference.h"

enum counting { EVEN, KNOWN_COUNTS, OWN_COUNTS };

struct block {
	unsigned char *all, *data;
	size_t bytes; /* of DATA */
	size_t whole; /* of ALL */
	bool is_shared;
	void *device; /* the same there */
	size_t device_bytes;
};

struct operation {
	const struct group *group;
	uint64_t id;
	unsigned program, step;
	char name[24];
	bool has_name;
	berth_kind kind;
	berth_type type;
	berth_op op;
	int root; /* the peer of a message */
	enum counting counting;
	uint64_t count, tag, joined;
	double prescale, postscale;
	bool wild, is_any; /* ANY: a message from any rank */
	/* This rank's own: */
	struct berth_desc d;
	struct block in, out;
	bool in_place, keeps_in;
	uint64_t gives[REFERENCE_RANKS], gets[REFERENCE_RANKS];
	uint64_t received[REFERENCE_RANKS];
	int from;
	void *made;
	/* In the memory of a device: */
	bool mixed;               /* some ranks have it on a device, others don't */
	bool by_nccl;             /* else by the host */
	bool is_device, is_here;  /* is_here: it has been fetched */
	unsigned char *where_out; /* OUT on the host */
	void *ready, *made_there;
	size_t made_bytes;
};

/* Some arrays are in the memory of a stand-in device, and go by NCCL where it can, or
 * all by the host. */
enum { NO_DEVICES, BY_NCCL, BY_HOST };
static int with_devices;
static unsigned long checks;
/* Operations that are known to fail (PROGRAMS_KNOWN in the environment):
 *  - beside ranks that have joined, a prescaled product, least or greatest of a float
 *    narrower than f32 is rounded to its type before it is combined;
 *  - two threads of a rank block in operations of one set that have different names,
 *    and those of another rank in the other order: an error that they differ. */
static bool with_known;
static bool
	spoil; /* what comes is taken for wrong, so that a test of this test sees it */
static unsigned long program_seed;

__attribute__((format(printf, 2, 3), noreturn)) static void
fail_operation(const struct operation *o, const char *fmt, ...)
{
	va_list ap;
	char text[512];

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	fprintf(stderr,
		"seed %lu program %u step %u rank %d: kind %d type %d op %d count "
		"%" PRIu64
		" scales %g %g of %d ranks%s%s, %s counts%s%s: %s; last error: %s\n",
		program_seed, o->program, o->step, rank, (int)o->kind, (int)o->type,
		(int)o->op, o->count, o->prescale, o->postscale, o->group->n,
		o->has_name ? " " : "", o->has_name ? o->name : "",
		o->counting == EVEN           ? "even"
		: o->counting == KNOWN_COUNTS ? "known"
					      : "own",
		o->is_device  ? ", on a device"
		: o->in_place ? ", in place"
			      : "",
		o->in.is_shared || o->out.is_shared ? ", berth_alloc" : "", text,
		berth_last_error()->text);
	_exit(1);
}

static void expect_ok(const struct operation *o, berth_result rc, const char *what)
{
	if (rc)
		fail_operation(o, "%s: %s", what, berth_result_text(rc));
}

/* ---- what it is ---- */

static bool reduces(berth_kind kind)
{
	return kind <= BERTH_REDUCESCATTER;
}

/* Mostly small; and near the sizes at which the library changes its ways. */
static uint64_t random_count(uint64_t id, unsigned k, berth_type t)
{
	static const uint64_t few[] = { 0, 1, 1, 2, 3, 7, 8 };
	static const uint64_t borders[] = { 4096, 4096, 16384, 32768, 32768, 131072 };
	const unsigned way = choose(id, k, 100);
	const uint64_t bytes = type_bytes[t], near = choose(id, k + 1, 7);

	if (way < 40)
		return few[near];
	if (way < 65)
		return (40 + choose(id, k + 2, 17)) / bytes;
	if (way < 85)
		return choose(id, k + 2, 1000);
	if (way < 95)
		return borders[choose(id, k + 2, 6)] / bytes + near - 3;
	return choose(id, k + 2, way == 99 ? 1 << 20 : 1 << 16) / bytes;
}

static bool is_defined(berth_type t, berth_op op)
{
	if (op >= BERTH_BAND)
		return !is_float(t);
	return op != BERTH_AVG || t != BERTH_BOOL;
}

static void choose_reduction(struct operation *o)
{
	static const double scales[] = { 0.5, 1.0 / 3, 1.7, -2, 3, 1e-3 };

	for (unsigned k = 300; k == 300 || !is_defined(o->type, o->op); k++)
		o->op = (berth_op)choose(o->id, k, BERTH_ADASUM);
	if (o->op < BERTH_BAND && !choose(o->id, 11, 3))
		o->prescale = scales[choose(o->id, 12, 6)];
	if (o->op < BERTH_BAND && !choose(o->id, 13, 4))
		o->postscale = scales[choose(o->id, 14, 6)];
}

static bool has_nccl_type(berth_type t)
{
	return t <= BERTH_BOOL && t != BERTH_U16 && t != BERTH_I16;
}

/* Of each two places one has it on a device, the other not.  False: the places that
 * take part have it alike. */
static bool mix_memories(struct operation *o)
{
	const struct group *g = o->group;
	const unsigned odd = choose(o->id, 6, 2);
	unsigned has[2] = { 0 };

	for (int i = 0; i < g->n; i++)
		if (!(o->joined >> i & 1))
			has[((unsigned)i + odd) % 2]++;
	o->is_device = g->me >= 0 && ((unsigned)g->me + odd) % 2;
	return has[0] && has[1];
}

/* An operation of any kind, or of KIND. */
static void choose_operation(struct operation *o, berth_kind kind)
{
	static const berth_kind kinds[] = {
		BERTH_ALLREDUCE, BERTH_ALLREDUCE,     BERTH_ALLREDUCE,
		BERTH_ALLREDUCE, BERTH_REDUCE,        BERTH_REDUCE,
		BERTH_BARRIER,   BERTH_REDUCESCATTER, BERTH_REDUCESCATTER,
		BERTH_ALLGATHER, BERTH_ALLGATHER,     BERTH_ALLGATHER,
		BERTH_BROADCAST, BERTH_BROADCAST,     BERTH_ALLTOALL,
		BERTH_ALLTOALL,  BERTH_ALLTOALL,      BERTH_GATHER,
		BERTH_GATHER,    BERTH_SCATTER,       BERTH_SCATTER
	};

	o->kind = kind ? kind : kinds[choose(o->id, 1, sizeof kinds / sizeof *kinds)];
	o->type = (berth_type)choose(o->id, 2, TYPE_COUNT);
	o->root = (int)choose(o->id, 3, (unsigned)o->group->n);
	o->wild = !choose(o->id, 4, 6);
	o->prescale = o->postscale = 1;
	if (reduces(o->kind))
		choose_reduction(o);
	if (o->kind == BERTH_ALLGATHER || o->kind == BERTH_ALLTOALL)
		o->counting = (enum counting)choose(o->id, 5, 3);
	if (o->kind == BERTH_ALLTOALL && o->counting == KNOWN_COUNTS)
		o->counting = OWN_COUNTS; /* its counts are always exchanged */
	if (o->kind == BERTH_REDUCESCATTER)
		o->counting = (enum counting)choose(o->id, 5, 2);
	o->is_device = with_devices && choose(o->id, 6, 2);
	o->mixed = with_devices && !choose(o->id, 7, 6) && mix_memories(o);
	o->by_nccl = with_devices == BY_NCCL && !o->mixed &&
		     (!reduces(o->kind) ||
		      (has_nccl_type(o->type) && o->op < BERTH_BAND &&
		       (is_float(o->type) || (o->prescale == 1 && o->postscale == 1))));
	o->count = o->kind == BERTH_BARRIER ? 0 : random_count(o->id, 20, o->type);
}

static bool is_narrow(berth_type t)
{
	return is_float(t) && t != BERTH_F32 && t != BERTH_F64;
}

/* Elements that place FROM gives to place TO, of kinds that have parts. */
static uint64_t count_between(const struct operation *o, int from, int to)
{
	const uint64_t n = (uint64_t)o->group->n;
	const unsigned pair = 1000 + 64 * (unsigned)from + (unsigned)to;

	if (o->counting == EVEN)
		return o->kind == BERTH_REDUCESCATTER
			       ? o->count / n + ((uint64_t)to < o->count % n)
			       : o->count;
	if (!choose(o->id, pair, 4))
		return 0;
	return choose(o->id, 9000 + pair, 8) ? o->count / (1 + choose(o->id, pair, 5))
					     : choose(o->id, pair, 60);
}

/* The counts of this rank, and what is to come to it. */
static void find_counts(struct operation *o)
{
	const struct group *g = o->group;

	for (int k = 0; k < g->n; k++) {
		o->gives[k] = count_between(o, g->me, k);
		o->gets[k] = count_between(o, k, g->me);
		if (o->kind == BERTH_ALLGATHER)
			o->gets[k] = count_between(o, k, 0);
		if (o->kind == BERTH_REDUCESCATTER)
			o->gives[k] = count_between(o, 0, k);
	}
	if (o->kind == BERTH_ALLGATHER)
		o->gives[0] = count_between(o, g->me, 0);
}

static uint64_t total(const uint64_t *counts, int n)
{
	uint64_t all = 0;

	for (int k = 0; k < n; k++)
		all += counts[k];
	return all;
}

/* Elements that this rank gives in all, and gets. */
static uint64_t elements_in(const struct operation *o)
{
	const struct group *g = o->group;
	const bool is_root = g->me == o->root;

	switch (o->kind) {
	case BERTH_BROADCAST:
		return is_root ? o->count : 0;
	case BERTH_SCATTER:
		return is_root ? o->count * (uint64_t)g->n : 0;
	case BERTH_ALLGATHER:
		return o->gives[0];
	case BERTH_ALLTOALL:
	case BERTH_REDUCESCATTER:
		return total(o->gives, g->n);
	case BERTH_RECV:
		return 0;
	default:
		return o->count;
	}
}

static uint64_t elements_out(const struct operation *o)
{
	const struct group *g = o->group;
	const bool is_root = g->me == o->root;

	switch (o->kind) {
	case BERTH_REDUCE:
		return is_root ? o->count : 0;
	case BERTH_GATHER:
		return is_root ? o->count * (uint64_t)g->n : 0;
	case BERTH_REDUCESCATTER:
		return o->gives[g->me];
	case BERTH_ALLGATHER:
	case BERTH_ALLTOALL:
		return total(o->gets, g->n);
	case BERTH_SEND:
		return 0;
	default:
		return o->count;
	}
}

#endif
