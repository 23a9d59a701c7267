/* program_operation.h - one operation of a random program: what it is, which all ranks
 * decide alike; its memory and its descriptor, which are each rank's own; its check. */
#ifndef BERTH_TESTS_PROGRAM_OPERATION_H
#define BERTH_TESTS_PROGRAM_OPERATION_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/helpers/program_reference.h"

enum {
	GUARD = 64, /* bytes before and behind an array that nobody may write */
	GUARD_BYTE = 0xa5,
	UNTOUCHED = 0x5a,
	CHECK_ALL = 1500, /* of larger arrays the ends, and a sample */
	SAMPLE = 150
};

enum counting { EVEN, KNOWN_COUNTS, OWN_COUNTS };

struct block {
	unsigned char *all, *data;
	size_t bytes; /* of DATA */
	bool is_shared;
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
	/* Of this rank: */
	struct berth_desc d;
	struct block in, out;
	bool in_place, keeps_in;
	uint64_t gives[REFERENCE_RANKS], gets[REFERENCE_RANKS];
	uint64_t received[REFERENCE_RANKS];
	int from;
	void *made;
};

static unsigned long checks;
/* What is known to fail (PROGRAMS_KNOWN in the environment):
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
		o->in_place ? ", in place" : "",
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

/* ---- memory ---- */

static void make_block(struct operation *o, struct block *b, size_t bytes, unsigned k)
{
	const size_t off =
		type_bytes[o->type] * own(o->id, k, 9) * !own(o->id, k + 1, 3);
	const size_t all = bytes + off + 2 * GUARD;

	b->is_shared = !own(o->id, k + 2, 3);
	b->bytes = bytes;
	b->all = b->is_shared ? berth_alloc(all, BERTH_HOST, 0) : malloc(all);
	if (!b->all)
		fail_operation(o, "no memory of %zu bytes", all);
	b->data = b->all + GUARD + off;
	memset(b->all, GUARD_BYTE, GUARD + off);
	memset(b->data, UNTOUCHED, bytes);
	memset(b->data + bytes, GUARD_BYTE, GUARD);
}

static void check_block(const struct operation *o, const struct block *b,
			const char *what)
{
	if (!b->all)
		return;
	for (const unsigned char *p = b->all; p < b->data; p++)
		if (*p != GUARD_BYTE)
			fail_operation(o, "byte %d before %s was written",
				       (int)(b->data - p), what);
	for (size_t k = 0; k < GUARD; k++)
		if (b->data[b->bytes + k] != GUARD_BYTE)
			fail_operation(o, "byte %zu behind %s was written", k, what);
}

static void free_block(struct block *b)
{
	if (b->is_shared)
		berth_free(b->all);
	else
		free(b->all);
}

/* In place: where this rank's part of the larger array begins, or the array. */
static uint64_t place_of_part(const struct operation *o)
{
	const struct group *g = o->group;

	if ((o->kind == BERTH_SCATTER || o->kind == BERTH_GATHER) && g->me != o->root)
		return 0;
	switch (o->kind) {
	case BERTH_REDUCESCATTER:
		return total(o->gives, g->me);
	case BERTH_SCATTER:
		return o->count * (uint64_t)g->me;
	case BERTH_GATHER:
		return own(o->id, 105, 2) ? 0 : o->count * (uint64_t)g->me;
	case BERTH_ALLGATHER: /* of own counts nobody knows where it is */
		return o->counting == OWN_COUNTS || own(o->id, 105, 2)
			       ? 0
			       : total(o->gets, g->me);
	default:
		return 0;
	}
}

/* One array where the operation is in place, or two. */
static void place_arrays(struct operation *o, unsigned char **in, unsigned char **out)
{
	const size_t bytes = type_bytes[o->type];
	const size_t ins = elements_in(o) * bytes, outs = elements_out(o) * bytes;
	const size_t part = place_of_part(o) * bytes;

	if (!o->in_place) {
		make_block(o, &o->in, ins, 110);
		make_block(o, &o->out, outs, 120);
		*in = o->in.data;
		*out = o->out.data;
		return;
	}
	make_block(o, &o->in, ins > outs ? ins : outs, 110);
	*in = *out = o->in.data;
	if (ins > outs)
		*out += part;
	else if (outs > ins)
		*in += part;
}

/* ---- what is given ---- */

static struct giver giver_of(const struct operation *o)
{
	return (struct giver){ .id = o->id, .type = o->type, .wild = o->wild };
}

/* Element I of IN; by parts where these have different ranks to go to. */
static void fill_part(const struct operation *o, unsigned char *p, int dest, uint64_t n)
{
	const struct giver g = giver_of(o);
	const size_t bytes = type_bytes[o->type];

	for (uint64_t i = 0; i < n; i++, p += bytes) {
		uint64_t x = given_bits(&g, rank, dest, i);

		memcpy(p, &x, bytes);
	}
}

static bool has_dests(berth_kind kind)
{
	return kind == BERTH_ALLTOALL || kind == BERTH_SCATTER;
}

static uint64_t dest_count(const struct operation *o, int dest)
{
	return o->kind == BERTH_SCATTER ? o->count : o->gives[dest];
}

static void fill_in(const struct operation *o, unsigned char *p)
{
	const uint64_t n = elements_in(o);

	if (!has_dests(o->kind)) {
		fill_part(o, p, 0, n);
		return;
	}
	for (int k = 0; n && k < o->group->n; k++) {
		fill_part(o, p, k, dest_count(o, k));
		p += dest_count(o, k) * type_bytes[o->type];
	}
}

/* ---- the descriptor ---- */

static void *give_memory(void *ctx, uint64_t bytes)
{
	struct operation *o = ctx;

	o->made = malloc(bytes);
	return o->made;
}

/* OUT is given, with room; or asked for; or made. */
static void describe_own_counts(struct operation *o)
{
	struct berth_desc *d = &o->d;
	const uint64_t n = elements_out(o);
	const unsigned way = o->in_place ? 0 : own(o->id, 130, 3);

	if (o->kind == BERTH_ALLTOALL)
		d->in_counts = o->gives;
	if (o->kind == BERTH_ALLGATHER || own(o->id, 131, 2))
		d->received = o->received;
	if (own(o->id, 132, 2))
		d->out_counts = o->gets;
	if (!d->out_counts || own(o->id, 133, 2))
		d->room = n + own(o->id, 134, 3);
	if (!way)
		return;
	d->out = NULL;
	d->room = 0;
	if (way == 1) {
		d->alloc = give_memory;
		d->alloc_ctx = o;
	} else {
		d->made = &o->made;
	}
}

static void describe_counts(struct operation *o)
{
	struct berth_desc *d = &o->d;

	if (o->kind == BERTH_ALLGATHER)
		d->count = o->gives[0];
	else if (o->kind == BERTH_ALLTOALL || o->kind == BERTH_REDUCESCATTER)
		d->count = total(o->gives, o->group->n);
	if (o->counting == OWN_COUNTS)
		describe_own_counts(o);
	else if (o->counting == KNOWN_COUNTS && o->kind == BERTH_ALLGATHER)
		d->out_counts = o->gets;
	else if (o->counting == KNOWN_COUNTS)
		d->in_counts = o->gives;
}

static void describe_message(struct operation *o)
{
	struct berth_desc *d = &o->d;

	d->tag = o->tag;
	d->root = o->root;
	if (o->kind != BERTH_RECV)
		return;
	if (o->is_any)
		d->root = BERTH_ANY;
	d->room = o->count + own(o->id, 135, 3) * !o->count;
	d->received = own(o->id, 136, 2) ? o->received : NULL;
	d->from = &o->from;
	o->from = -2;
}

/* All is decided; make what this rank brings. */
static void prepare(struct operation *o)
{
	struct berth_desc *d = &o->d;
	unsigned char *in, *out;
	const bool is_message = o->kind >= BERTH_SEND;

	find_counts(o);
	o->in_place = !is_message && !own(o->id, 100, 3);
	place_arrays(o, &in, &out);
	fill_in(o, in);
	o->keeps_in = !o->in_place;
	*d = (struct berth_desc)
		BERTH_DESC(.kind = o->kind, .type = o->type, .op = o->op,
			   .root = o->root, .name = o->has_name ? o->name : NULL,
			   .set = o->group->set, .in = in, .out = out,
			   .count = o->count,
			   .shape = choose(o->id, 101, 9) ? NULL : "[a, b]",
			   .priority = (int)own(o->id, 102, 3),
			   .timeout_ms = own(o->id, 103, 9) ? 0 : 100000);
	if (o->prescale != 1 || !own(o->id, 104, 9))
		d->prescale = &o->prescale;
	if (o->postscale != 1)
		d->postscale = &o->postscale;
	if (is_message)
		describe_message(o);
	else
		describe_counts(o);
	if (!o->in_place && !elements_in(o) && own(o->id, 106, 2))
		d->in = NULL;
	if (!o->in_place && !elements_out(o) && own(o->id, 107, 2))
		d->out = NULL;
}

/* ---- the check ---- */

static void check_bits(const struct operation *o, const unsigned char *p, uint64_t i,
		       uint64_t want, const char *what)
{
	const size_t bytes = type_bytes[o->type];
	uint64_t got = 0;

	memcpy(&got, p + i * bytes, bytes);
	got ^= (uint64_t)spoil;
	__atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED);
	if (is_equal(got, want, o->type, reduces(o->kind)))
		return;
	want = bytes < 8 ? want & (((uint64_t)1 << 8 * bytes) - 1) : want;
	fail_operation(o,
		       "%s element %" PRIu64 ": got %" PRIx64 " (%g), expected %" PRIx64
		       " (%g)",
		       what, i, got,
		       is_float(o->type) ? read_float(&got, o->type) : (double)got,
		       want,
		       is_float(o->type) ? read_float(&want, o->type) : (double)want);
}

/* The element to look at after I, of N. */
static uint64_t next_of(const struct operation *o, uint64_t i, uint64_t n)
{
	if (n <= CHECK_ALL || i < 16 || i + 17 >= n)
		return i + 1;
	i += 1 + own(o->id + i, 140, (unsigned)(2 * n / SAMPLE));
	return i + 16 < n ? i : n - 16;
}

/* N elements that SOURCE gave to DEST. */
static void check_part(const struct operation *o, const unsigned char *p, uint64_t n,
		       int source, int dest, const char *what)
{
	const struct giver g = giver_of(o);

	for (uint64_t i = 0; i < n; i = next_of(o, i, n))
		check_bits(o, p, i, given_bits(&g, source, dest, i), what);
}

static void check_reduced(const struct operation *o, const unsigned char *p)
{
	const struct reduction r = { .group = o->group,
				     .giver = giver_of(o),
				     .op = o->op,
				     .prescale = o->prescale,
				     .postscale = o->postscale,
				     .joined = o->joined };
	const uint64_t n = elements_out(o);
	const uint64_t first = o->kind == BERTH_REDUCESCATTER ? place_of_part(o) : 0;

	for (uint64_t i = 0; i < n; i = next_of(o, i, n))
		check_bits(o, p, i, reduced(&r, first + i), "result");
}

/* Parts from all members, one behind the other. */
static void check_gathered(const struct operation *o, const unsigned char *p)
{
	const struct group *g = o->group;

	if (!elements_out(o))
		return;
	for (int k = 0; k < g->n; k++) {
		uint64_t n = o->kind == BERTH_GATHER ? o->count : o->gets[k];
		int dest = o->kind == BERTH_ALLTOALL ? g->me : 0;
		char what[32];

		snprintf(what, sizeof what, "from rank %d", g->member[k]);
		check_part(o, p, n, g->member[k], dest, what);
		p += n * type_bytes[o->type];
	}
}

static void check_received(const struct operation *o)
{
	for (int k = 0; o->d.received && o->kind != BERTH_RECV && k < o->group->n; k++)
		if (o->received[k] != o->gets[k])
			fail_operation(
				o, "received[%d]: got %" PRIu64 ", expected %" PRIu64,
				k, o->received[k], o->gets[k]);
	if (o->kind != BERTH_RECV)
		return;
	if (o->d.received && o->received[0] != o->count)
		fail_operation(o, "received %" PRIu64, o->received[0]);
	if (o->from != o->root)
		fail_operation(o, "from %d, expected %d", o->from, o->root);
}

static void check_out(const struct operation *o, const unsigned char *out)
{
	const struct group *g = o->group;
	const int root = g->member[o->root];

	if (reduces(o->kind))
		check_reduced(o, out);
	else if (o->kind == BERTH_ALLGATHER || o->kind == BERTH_ALLTOALL ||
		 o->kind == BERTH_GATHER)
		check_gathered(o, out);
	else if (o->kind != BERTH_BARRIER && elements_out(o))
		check_part(o, out, elements_out(o), root,
			   o->kind == BERTH_SCATTER ? g->me : 0, "result");
}

/* IN is as it was. */
static void check_in(const struct operation *o, const unsigned char *p)
{
	const uint64_t n = elements_in(o);

	if (!has_dests(o->kind))
		check_part(o, p, n, rank, 0, "the input's");
	for (int k = 0; n && has_dests(o->kind) && k < o->group->n; k++) {
		check_part(o, p, dest_count(o, k), rank, k, "the input's");
		p += dest_count(o, k) * type_bytes[o->type];
	}
}

static void release(struct operation *o)
{
	if (o->d.made)
		berth_free(o->made);
	else
		free(o->made);
	free_block(&o->in);
	free_block(&o->out);
}

/* It is done. */
static void check_operation(struct operation *o)
{
	const unsigned char *out = o->d.out;

	if (o->d.alloc || o->d.made) {
		out = o->made;
		if (elements_out(o) && !out)
			fail_operation(o, "no memory was made");
	}
	check_received(o);
	check_out(o, out);
	if (o->keeps_in || (o->kind == BERTH_REDUCE && o->root != o->group->me))
		check_in(o, o->in.data);
	check_block(o, &o->in, "in");
	check_block(o, &o->out, "out");
	release(o);
}

#endif
