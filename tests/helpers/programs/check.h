/* check.h - what an operation of a random program came to. */
#ifndef BERTH_TESTS_PROGRAM_CHECK_H
#define BERTH_TESTS_PROGRAM_CHECK_H

#include "tests/helpers/programs/operands.h"

enum {
	CHECK_ALL = 1500, /* of larger arrays the ends, and a sample */
	SAMPLE = 150
};

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
				     .in_order = o->is_device && o->by_nccl,
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
	const int me = o->group->member[o->group->me]; /* in its world */

	if (!has_dests(o->kind))
		check_part(o, p, n, me, 0, "the input's");
	for (int k = 0; n && has_dests(o->kind) && k < o->group->n; k++) {
		check_part(o, p, dest_count(o, k), me, k, "the input's");
		p += dest_count(o, k) * type_bytes[o->type];
	}
}

static void release(struct operation *o)
{
	release_device(o);
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
	const unsigned char *out = o->where_out;

	fetch(o, device_stream);
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
