/* counts.h - allgather and alltoall of which each rank knows its own counts alone. */
#ifndef BERTH_TESTS_COUNTS_H
#define BERTH_TESTS_COUNTS_H

#include "tests/helpers/calls.h"
#include "tests/helpers/verify.h"

enum { COUNTS_RANKS = 64 };

/* Elements that FROM gives to TO in turn I. */
static uint64_t gives(int from, int to, uint64_t i, bool all_alike)
{
	uint64_t n =
		noise(i * 4096 + (uint64_t)from * 64 + (all_alike ? 0 : (uint64_t)to));

	return n % 5 ? n / 5 % (i % 3 ? 50 : 5000) : 0;
}

static uint32_t of_pair(int from, int to, uint64_t k)
{
	return (uint32_t)((uint64_t)from * 1000003 + (uint64_t)to * 1009 + k);
}

static void *give_room(void *ctx, uint64_t bytes)
{
	return *(void **)ctx = malloc(bytes);
}

/* What came, and how much from whom. */
static void check_came(const uint32_t *out, const uint64_t *received, uint64_t i,
		       bool all_alike)
{
	for (int from = 0; from < size; from++) {
		CHECK(received[from] == gives(from, rank, i, all_alike),
		      "from %d: %llu", from, (unsigned long long)received[from]);
		for (uint64_t k = 0; k < received[from]; k++, out++)
			CHECK(*out == of_pair(from, all_alike ? 0 : rank, k),
			      "element %u from %d", (unsigned)k, from);
	}
}

/* OUT is given, asked for, made, or where IN is, on each rank by turns; some say what
 * they expect. */
static void one_with_counts(berth_kind kind, uint64_t i)
{
	bool alike = kind == BERTH_ALLGATHER;
	uint64_t in_counts[COUNTS_RANKS], expects[COUNTS_RANKS], received[COUNTS_RANKS],
		n = 0, comes = 0;
	uint32_t *in, *out = NULL;
	struct berth_desc d =
		BERTH_DESC(.kind = kind, .type = BERTH_U32, .received = received);
	void *made = NULL;
	enum { GIVEN, ASKED, MADE, IN_PLACE } way = (i + (uint64_t)rank) % 4;

	for (int r = 0; r < size; r++) {
		in_counts[r] = gives(rank, r, i, alike);
		n += alike ? 0 : in_counts[r];
		comes += expects[r] = gives(r, rank, i, alike);
	}
	n = alike ? in_counts[0] : n;
	in = malloc((n > comes ? n : comes) * 4 + 4);
	for (int r = 0, at = 0; r < (alike ? 1 : size); r++)
		for (uint64_t k = 0; k < in_counts[r]; k++)
			in[at++] = of_pair(rank, r, k);
	d.in = in;
	d.count = n;
	d.in_counts = alike ? NULL : in_counts;
	d.out_counts = noise(i * 64 + (uint64_t)rank) % 2 ? expects : NULL;
	if (way == ASKED) {
		d.alloc = give_room;
		d.alloc_ctx = &made;
	} else if (way == MADE) {
		d.made = &made;
	} else {
		out = way == IN_PLACE ? in : malloc(comes * 4 + 4);
		d.out = out;
		d.room = comes;
	}
	FINE(berth_run(&d, -1, NULL));
	check_came(out ? out : made, received, i, alike);
	if (way == MADE)
		berth_free(made);
	else
		free(way == ASKED ? made : way == GIVEN ? out : NULL);
	free(in);
}

/* One rank has no room for what comes, or expects something else: all hear it, and
 * nothing is written. */
static void refused(berth_kind kind, bool has_room)
{
	uint32_t in[COUNTS_RANKS] = { 1 }, out[COUNTS_RANKS];
	uint64_t counts[COUNTS_RANKS], expects[COUNTS_RANKS], received[COUNTS_RANKS];
	struct berth_desc d = BERTH_DESC(.kind = kind, .type = BERTH_U32, .in = in,
					 .out = out, .received = received);
	const uint64_t untouched = 0x0707070707070707;
	const bool is_last = rank == size - 1;

	for (int i = 0; i < size; i++)
		counts[i] = expects[i] = 1;
	memset(out, 7, sizeof out);
	memset(received, 7, sizeof received);
	d.in_counts = kind == BERTH_ALLTOALL ? counts : NULL;
	d.count = kind == BERTH_ALLTOALL ? (uint64_t)size : 1;
	d.room = (uint64_t)size - (is_last && !has_room);
	d.out_counts = has_room ? expects : NULL;
	expects[0] -= is_last;
	CHECK(berth_run(&d, -1, NULL) == BERTH_MISMATCH, "refused");
	CHECK(strstr(berth_last_error()->text,
		     has_room ? "whose out_counts say 0" : "and has room for"),
	      "says: %s", berth_last_error()->text);
	CHECK(out[0] == 0x07070707 && out[size - 1] == 0x07070707 &&
		      received[0] == untouched && received[size - 1] == untouched,
	      "untouched");
	expects[0] = 1;
	d.room = (uint64_t)size;
	FINE(berth_run(&d, -1, NULL));
	CHECK(received[0] == 1 && received[size - 1] == 1, "received");
}

static void counts(void)
{
	for (uint64_t i = 0; i < 40; i++) {
		one_with_counts(BERTH_ALLGATHER, i);
		one_with_counts(BERTH_ALLTOALL, i);
	}
	for (int has_room = 0; has_room < (size > 1 ? 2 : 1); has_room++) {
		refused(BERTH_ALLGATHER, has_room);
		refused(BERTH_ALLTOALL, has_room);
	}
}

#endif
