/* operands.h - what a rank brings to an operation of a random program: its
 * memory, what it gives, and its descriptor. */
#ifndef BERTH_TESTS_PROGRAM_OPERANDS_H
#define BERTH_TESTS_PROGRAM_OPERANDS_H

#include "tests/helpers/programs/device.h"

enum {
	GUARD = 64, /* bytes before and behind an array that nobody may write */
	GUARD_BYTE = 0xa5,
	UNTOUCHED = 0x5a
};

/* ---- memory ---- */

static void make_block(struct operation *o, struct block *b, size_t bytes, unsigned k)
{
	const size_t off =
		type_bytes[o->type] * own(o->id, k, 9) * !own(o->id, k + 1, 3);
	const size_t all = bytes + off + 2 * GUARD;

	b->is_shared = !own(o->id, k + 2, 3);
	b->bytes = bytes;
	b->whole = all;
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
	const unsigned way = o->in_place ? 0 : own(o->id, 130, 3 - o->is_device);

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
		d->alloc = o->is_device ? give_device_memory : give_memory;
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
	if (o->is_device && o->counting == OWN_COUNTS) /* nobody makes room for it */
		o->in_place = false;
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
	o->where_out = d->out;
	if (o->is_device)
		describe_device(o);
}

#endif
