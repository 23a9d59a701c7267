#include "lib/core/op_counts.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "lib/backend/coll_rows.h"
#include "lib/base/apart.h"
#include "lib/base/callback.h"
#include "lib/base/kern.h"
#include "lib/core/comm.h"
#include "lib/core/comm_device.h"
#include "lib/core/world.h"

/* A row: what this rank gives to each rank (alltoall), or to all (allgather: one
 * number); what it expects from each, or NOTHING; and the elements that it has room
 * for. */
#define NOTHING UINT64_MAX

struct counts {
	struct comm *comm;
	const struct op *op;
	struct coll_rows rows;
	uint64_t *got;      /* N: elements that come to this rank from each */
	unsigned char *own; /* room for what is given, where it is overwritten */
	void *made;         /* memory of ours for what comes */
	struct failure *why;
};

static size_t gives_words(const struct comm *c, const struct coll *coll)
{
	return coll->kind == BERTH_ALLTOALL ? c->members->n : 1;
}

/* Elements that FROM gives to TO. */
static uint64_t counts_given(const struct counts *k, unsigned from, unsigned to)
{
	const uint64_t *row = k->rows.all + from * k->rows.words;

	return k->op->coll.kind == BERTH_ALLTOALL ? row[to] : row[0];
}

/* Elements that TO expects from FROM, or NOTHING. */
static uint64_t counts_expected(const struct counts *k, unsigned from, unsigned to)
{
	return k->rows.all[(to + 1) * k->rows.words - 1 - k->comm->members->n + from];
}

static uint64_t counts_room_of(const struct counts *k, unsigned place)
{
	return k->rows.all[(place + 1) * k->rows.words - 1];
}

/* Puts the counts that come to place TO into k->got.  UINT64_MAX: more than there can
 * be. */
static uint64_t sum_for(struct counts *k, unsigned to)
{
	const unsigned n = k->comm->members->n;
	uint64_t sum;

	for (unsigned i = 0; i < n; i++)
		k->got[i] = counts_given(k, i, to);
	sum = op_total(k->got, n);
	return sum > UINT64_MAX / 16 / n ? UINT64_MAX : sum;
}

/* Says the error behind the operation's words. */
__attribute__((format(printf, 2, 3))) static berth_result
counts_refuse(struct counts *k, const char *format, ...)
{
	char words[OP_WORDS_BYTES], text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	op_words(words, sizeof words, k->op);
	snprintf(k->why->text, sizeof k->why->text, "%s: %s", words, text);
	return BERTH_MISMATCH;
}

static berth_result compare_expected(struct counts *k, unsigned to)
{
	const unsigned *rank = k->comm->members->rank;

	for (unsigned from = 0; from < k->comm->members->n; from++) {
		uint64_t expects = counts_expected(k, from, to),
			 gives = counts_given(k, from, to);

		if (expects != NOTHING && expects != gives)
			return counts_refuse(
				k,
				"counts of rank %u say %llu for rank %u, whose "
				"out_counts say %llu",
				rank[from], (unsigned long long)gives, rank[to],
				(unsigned long long)expects);
	}
	return BERTH_OK;
}

/* All ranks look at all rows, so that all see the same. */
static berth_result counts_compare(struct counts *k)
{
	for (unsigned to = 0; to < k->comm->members->n; to++) {
		uint64_t sum = sum_for(k, to), room = counts_room_of(k, to);
		unsigned rank = k->comm->members->rank[to];

		if (sum == UINT64_MAX)
			return counts_refuse(
				k, "rank %u gets more than memory can hold", rank);
		if (compare_expected(k, to))
			return BERTH_MISMATCH;
		if (sum > room)
			return counts_refuse(
				k,
				"rank %u gets %llu elements and has room for "
				"%llu",
				rank, (unsigned long long)sum,
				(unsigned long long)room);
	}
	return BERTH_OK;
}

struct counts_call {
	const struct op *op;
	uint64_t bytes;
	void *out;
};

static void counts_ask(void *ctx)
{
	struct counts_call *c = ctx;

	callback_begin();
	c->out = c->op->alloc(c->op->alloc_ctx, c->bytes);
	callback_end();
}

/* Where what comes goes. */
static berth_result find_out(struct counts *k, struct coll *coll, uint64_t sum)
{
	const struct op *op = k->op;
	uint64_t bytes = sum * kern_size(coll->type);

	if (coll->out || !bytes)
		return BERTH_OK;
	if (op->alloc) {
		struct counts_call call = { .op = op, .bytes = bytes };

		apart_call(counts_ask, &call);
		coll->out = call.out;
	} else {
		coll->out = k->made = memory_give(&k->comm->world->memory, bytes);
	}
	return coll->out ? BERTH_OK : BERTH_MEMORY;
}

static uint64_t largest_part(const struct counts *k)
{
	const unsigned n = k->comm->members->n;
	uint64_t largest = 0;

	for (unsigned i = 0; i < n; i++)
		for (unsigned to = 0; to < n; to++)
			if (i != to && counts_given(k, i, to) > largest)
				largest = counts_given(k, i, to);
	return largest;
}

/* In place, parts that come may be larger than those that they overwrite: what is given
 * is copied. */
static berth_result keep_input(struct counts *k, struct coll *coll)
{
	size_t bytes = coll->count * kern_size(coll->type);

	if (!bytes || coll->in != coll->out || op_is_device(k->op))
		return BERTH_OK;
	k->own = malloc(bytes);
	if (!k->own)
		return BERTH_MEMORY;
	coll->in = memcpy(k->own, coll->in, bytes);
	return BERTH_OK;
}

static berth_result counts_settle(void *ctx, struct coll *coll)
{
	struct counts *k = ctx;
	berth_result rc = counts_compare(k);
	uint64_t sum;

	if (rc)
		return rc;
	sum = sum_for(k, k->comm->members->me);
	coll->largest = largest_part(k);
	coll->out_counts = k->got;
	if (coll->kind == BERTH_ALLTOALL)
		coll->in_counts = k->rows.mine;
	rc = find_out(k, coll, sum);
	if (!rc)
		rc = keep_input(k, coll);
	return rc;
}

/* The caller's: nothing of it is written if the operation fails. */
static void counts_give_back(struct counts *k)
{
	const struct op *op = k->op;

	if (op->received)
		memcpy(op->received, k->got, k->comm->members->n * sizeof *k->got);
	if (op->made && op->room == UINT64_MAX && !op->alloc)
		*op->made = k->made;
}

static void fill_row(uint64_t *row, const struct comm *c, const struct op *op,
		     const struct coll *coll)
{
	size_t words = gives_words(c, coll);

	if (coll->kind == BERTH_ALLTOALL)
		for (unsigned i = 0; i < c->members->n; i++)
			row[i] = coll_part(coll, c->members->n, i);
	else
		row[0] = coll->count;
	for (unsigned i = 0; i < c->members->n; i++)
		row[words + i] = coll->out_counts ? coll->out_counts[i] : NOTHING;
	row[words + c->members->n] = op->room;
}

/* The operation of a set of one rank. */
static berth_result run_alone(struct counts *k, struct coll *coll)
{
	berth_result rc;

	memcpy(k->rows.all, k->rows.mine, k->rows.words * sizeof *k->rows.all);
	rc = counts_settle(k, coll);
	if (!rc)
		coll_alone(coll);
	return rc;
}

/* On a device: first the rows, on the host. */
static berth_result counts_run_on_device(struct counts *k, struct coll *coll,
					 uint64_t deadline_ns)
{
	enum { DATA = 0x44415441 };
	const struct coll gather = { .kind = BERTH_ALLGATHER,
				     .type = BERTH_U64,
				     .in = k->rows.mine,
				     .out = k->rows.all,
				     .count = k->rows.words,
				     .signature = coll->signature };
	berth_result rc = BERTH_OK;

	if (k->comm->members->n == 1)
		memcpy(k->rows.all, k->rows.mine, k->rows.words * 8);
	else
		rc = comm_step(k->comm, &gather, deadline_ns);
	if (!rc)
		rc = counts_settle(k, coll);
	if (rc)
		return rc;
	coll->signature ^= DATA;
	return comm_device_run(k->comm, k->op, coll, deadline_ns);
}

berth_result op_counts_run(struct comm *c, const struct op *op, const struct coll *coll,
			   uint64_t deadline_ns, struct failure *why)
{
	size_t words = gives_words(c, coll) + c->members->n + 1;
	uint64_t *room = malloc(((c->members->n + 1) * words + 2 * c->members->n) *
				sizeof *room);
	struct counts k = { .comm = c, .op = op, .why = why };
	struct coll own = *coll;
	berth_result rc;

	if (!room)
		return BERTH_MEMORY;
	fill_row(room, c, op, &own);
	k.rows = (struct coll_rows){ .n = c->members->n,
				     .me = c->members->me,
				     .mine = room,
				     .words = words,
				     .all = room + words,
				     .settle = counts_settle,
				     .ctx = &k };
	k.got = room + (c->members->n + 1) * words;
	own.rows = &k.rows;
	if (op_is_work(op))
		rc = counts_run_on_device(&k, &own, deadline_ns);
	else
		rc = c->members->n == 1 ? run_alone(&k, &own)
					: comm_step(c, &own, deadline_ns);
	if (rc && k.made)
		memory_free(&c->world->memory, k.made);
	else if (!rc)
		counts_give_back(&k);
	free(k.own);
	free(room);
	return rc;
}
