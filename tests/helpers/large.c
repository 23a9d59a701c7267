/* large.c - operations of libberth past 2^31 elements and 2^32 bytes:
 *
 *     build/helpers/large [-np 2] [-hosts 1] CASE
 *     build/helpers/large              the names of the cases
 *
 * It starts the ranks itself, as if they were on several hosts.  What a rank gives is a
 * short pattern, again and again: one small file, mapped many times, that takes no
 * memory.  The pattern has PAGES pages, a prime, so that no offset that is wrong by a
 * power of 2 finds the same bytes.  Every byte of a result is compared, and the page
 * behind it has to stay as it was.  It prints "CASE: N elements of TYPE, B bytes:
 * right", of the largest array that a rank has, or the first byte that is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/kern.h"
#include "lib/berth.h"
#include "tests/helpers/large.h"
#include "tests/helpers/own_ranks.h"

enum { TIMEOUT_MS = 300000 /* of each operation */ };

enum { IN_PLACE = 1, UNEVEN = 2, IN_HEAP = 4, JOINED = 8 };

struct large_case {
	const char *name;
	void (*run)(const struct large_case *c);
	uint64_t count; /* of the largest part that a rank gives or gets */
	berth_type type;
	unsigned ways;
};

/* ---- what the ranks do ---- */

static bool has(const struct large_case *c, unsigned way)
{
	return c->ways & way;
}

static void done(berth_result rc)
{
	if (!rc)
		return;
	fprintf(stderr, "%s: rank %d: %s\n", large_name, large_rank,
		berth_last_error()->text);
	_exit(1);
}

static struct berth_desc begin(const struct large_case *c, berth_kind kind)
{
	struct berth_desc d =
		BERTH_DESC(.kind = kind, .type = c->type, .count = c->count);

	return d;
}

static uint64_t sum_of(const uint64_t *counts)
{
	uint64_t sum = 0;

	for (int r = 0; r < large_ranks; r++)
		sum += counts[r];
	return sum;
}

/* In the heap of the ranks' host, which back ends read in place, or in private
 * memory. */
static unsigned char *room_for(const struct large_case *c, uint64_t count)
{
	const size_t bytes = large_bytes(c->type, count);
	unsigned char *p;

	if (!has(c, IN_HEAP))
		return large_room(bytes);
	p = berth_alloc(bytes + LARGE_BEHIND, BERTH_HOST, 0);
	if (!p)
		large_fail("berth_alloc() of %zu bytes", bytes);
	return p;
}

static const unsigned char *input(const struct large_case *c, uint64_t count)
{
	return large_repeat(large_period(large_rank, c->type),
			    large_bytes(c->type, count));
}

/* COUNT elements from element AT on of what rank R gives. */
static void expect_rank(const struct large_case *c, int r, const unsigned char *out,
			uint64_t at, uint64_t count)
{
	const size_t size = kern_size(c->type);

	large_expect(out, large_period(r, c->type), at * size, count * size);
}

static void allreduce(const struct large_case *c)
{
	struct berth_desc d = begin(c, BERTH_ALLREDUCE);
	const int givers = large_ranks - has(c, JOINED);
	const size_t bytes = c->count * kern_size(c->type);
	unsigned char *out;
	int last;

	if (large_rank >= givers) {
		done(berth_join(NULL, &last));
		return;
	}
	out = room_for(c, c->count);
	if (has(c, IN_PLACE))
		large_fill(out, large_period(large_rank, c->type), bytes);
	d.in = has(c, IN_PLACE) ? out : input(c, c->count);
	d.out = out;
	done(berth_run(&d, -1, NULL));
	if (has(c, JOINED))
		done(berth_join(NULL, &last));
	large_expect(out, large_sum(givers, c->type), 0, bytes);
	large_expect_nothing(out + bytes);
}

/* Two arrays that have nothing in common but equal last pages, so large that they turn
 * both weights from 1 to 1/2: a dot product without these would be seen everywhere. */
static void adasum(const struct large_case *c)
{
	struct berth_desc d = begin(c, BERTH_ALLREDUCE);
	const size_t bytes = c->count * kern_size(c->type);
	const unsigned char *result = large_orthogonal(large_ranks, 2);
	unsigned char *out = large_room(large_bytes(c->type, c->count));
	unsigned char *in = large_repeat(large_orthogonal(large_rank, 1), bytes);
	const size_t last = bytes / LARGE_PAGE * LARGE_PAGE - LARGE_PAGE;

	large_own_page(in + last, 0x4e80); /* 2^30 */
	d.op = BERTH_ADASUM;
	d.in = in;
	d.out = out;
	done(berth_run(&d, -1, NULL));
	large_expect(out, result, 0, last);
	large_expect(out + last, in + last, 0, LARGE_PAGE);
	large_expect(out + last + LARGE_PAGE, result, last + LARGE_PAGE,
		     bytes - last - LARGE_PAGE);
	large_expect_nothing(out + bytes);
}

static void reduce(const struct large_case *c)
{
	struct berth_desc d = begin(c, BERTH_REDUCE);
	const size_t bytes = c->count * kern_size(c->type);
	unsigned char *out = NULL;

	d.root = large_ranks - 1;
	d.in = input(c, c->count);
	if (large_rank == d.root) {
		out = room_for(c, c->count);
		if (has(c, IN_PLACE)) {
			large_fill(out, large_period(large_rank, c->type), bytes);
			d.in = out;
		}
	}
	d.out = out;
	done(berth_run(&d, -1, NULL));
	if (!out)
		return;
	large_expect(out, large_sum(large_ranks, c->type), 0, bytes);
	large_expect_nothing(out + bytes);
}

static void broadcast(const struct large_case *c)
{
	struct berth_desc d = begin(c, BERTH_BROADCAST);
	const size_t bytes = c->count * kern_size(c->type);
	unsigned char *out = room_for(c, c->count);

	d.root = large_ranks - 1;
	d.out = out;
	if (large_rank == d.root && has(c, IN_PLACE)) {
		large_fill(out, large_period(d.root, c->type), bytes);
		d.in = out;
	} else if (large_rank == d.root) {
		d.in = input(c, c->count);
	}
	done(berth_run(&d, -1, NULL));
	expect_rank(c, d.root, out, 0, c->count);
	large_expect_nothing(out + bytes);
}

/* Uneven: what rank 0 gives is large, and the others do not know that. */
static void allgather(const struct large_case *c)
{
	struct berth_desc d = begin(c, BERTH_ALLGATHER);
	const size_t size = kern_size(c->type);
	uint64_t counts[LARGE_RANKS] = { 0 }, received[LARGE_RANKS], at = 0;
	unsigned char *out = NULL;
	void *made = NULL;

	for (int r = 0; r < large_ranks; r++)
		counts[r] = has(c, UNEVEN) && r ? 5 + (uint64_t)r : c->count;
	d.count = counts[large_rank];
	if (has(c, UNEVEN)) {
		d.received = received;
		d.made = &made;
	} else {
		d.out = out = room_for(c, sum_of(counts));
	}
	if (has(c, IN_PLACE)) {
		unsigned char *mine = out + (unsigned)large_rank * c->count * size;

		large_fill(mine, large_period(large_rank, c->type), d.count * size);
		d.in = mine;
	} else {
		d.in = input(c, d.count);
	}
	done(berth_run(&d, -1, NULL));
	if (has(c, UNEVEN)) {
		large_bytes(c->type, sum_of(counts));
		out = made;
		if (memcmp(received, counts, (unsigned)large_ranks * sizeof *counts))
			large_fail("counts that were received");
	}
	for (int r = 0; r < large_ranks; r++) {
		expect_rank(c, r, out + at * size, 0, counts[r]);
		at += counts[r];
	}
	if (!has(c, UNEVEN))
		large_expect_nothing(out + at * size);
	berth_free(made);
}

/* Uneven: counts, of which the last rank's is large, and OUT is that part of IN. */
static void reducescatter(const struct large_case *c)
{
	struct berth_desc d = begin(c, BERTH_REDUCESCATTER);
	const size_t size = kern_size(c->type);
	uint64_t counts[LARGE_RANKS], at = 0;
	unsigned char *out, *in = NULL;

	for (int r = 0; r < large_ranks; r++) {
		counts[r] = has(c, UNEVEN) ? r == large_ranks - 1 ? c->count : 5
					   : c->count + !r;
		at += r < large_rank ? counts[r] : 0;
	}
	d.count = sum_of(counts);
	d.in_counts = has(c, UNEVEN) ? counts : NULL;
	if (has(c, IN_PLACE)) {
		in = room_for(c, d.count);
		large_fill(in, large_period(large_rank, c->type), d.count * size);
	}
	d.in = in ? in : input(c, d.count);
	d.out = out = in ? in + at * size : room_for(c, counts[large_rank]);
	done(berth_run(&d, -1, NULL));
	large_expect(out, large_sum(large_ranks, c->type), at * size,
		     counts[large_rank] * size);
	if (!in)
		large_expect_nothing(out + counts[large_rank] * size);
}

/* Elements from rank FROM to rank TO. */
static uint64_t part(const struct large_case *c, int from, int to)
{
	if (!has(c, UNEVEN))
		return c->count;
	if (from == 0 && to == large_ranks - 1)
		return c->count;
	return (unsigned)from * 7 + (unsigned)to + 3;
}

static void alltoall(const struct large_case *c)
{
	struct berth_desc d = begin(c, BERTH_ALLTOALL);
	const size_t size = kern_size(c->type);
	uint64_t give[LARGE_RANKS], get[LARGE_RANKS], received[LARGE_RANKS], at = 0;
	unsigned char *out;

	for (int r = 0; r < large_ranks; r++) {
		give[r] = part(c, large_rank, r);
		get[r] = part(c, r, large_rank);
	}
	d.count = sum_of(give);
	d.out = out = room_for(c, sum_of(get));
	if (has(c, UNEVEN)) {
		d.in_counts = give;
		d.room = sum_of(get);
		d.received = received;
	}
	if (has(c, IN_PLACE))
		large_fill(out, large_period(large_rank, c->type), d.count * size);
	d.in = has(c, IN_PLACE) ? out : input(c, d.count);
	done(berth_run(&d, -1, NULL));
	if (has(c, UNEVEN) &&
	    memcmp(received, get, (unsigned)large_ranks * sizeof *get))
		large_fail("counts that were received");
	for (int r = 0; r < large_ranks; r++) {
		uint64_t from = 0;

		for (int k = 0; k < large_rank; k++)
			from += part(c, r, k);
		expect_rank(c, r, out + at * size, from, get[r]);
		at += get[r];
	}
	large_expect_nothing(out + at * size);
}

static void gather(const struct large_case *c)
{
	struct berth_desc d = begin(c, BERTH_GATHER);
	const size_t bytes = c->count * kern_size(c->type);
	unsigned char *out = NULL;

	d.in = input(c, c->count);
	if (!large_rank)
		d.out = out = room_for(c, c->count * (unsigned)large_ranks);
	if (has(c, IN_PLACE) && out) {
		large_fill(out, large_period(0, c->type), bytes);
		d.in = out;
	}
	done(berth_run(&d, -1, NULL));
	if (!out)
		return;
	for (int r = 0; r < large_ranks; r++)
		expect_rank(c, r, out + (unsigned)r * bytes, 0, c->count);
	large_expect_nothing(out + (unsigned)large_ranks * bytes);
}

static void scatter(const struct large_case *c)
{
	struct berth_desc d = begin(c, BERTH_SCATTER);
	const size_t size = kern_size(c->type);
	const uint64_t at = (unsigned)large_rank * c->count;

	d.root = large_ranks - 1;
	if (large_rank == d.root)
		d.in = input(c, c->count * (unsigned)large_ranks);
	if (large_rank == d.root && has(c, IN_PLACE))
		d.out = (unsigned char *)(uintptr_t)d.in + at * size;
	else
		d.out = room_for(c, c->count);
	done(berth_run(&d, -1, NULL));
	expect_rank(c, d.root, d.out, at, c->count);
}

/* Each to the next one, all at once; a rank alone to itself. */
static void send(const struct large_case *c)
{
	const int to = (large_rank + 1) % large_ranks,
		  from = (large_rank + large_ranks - 1) % large_ranks;
	struct berth_desc d[2] = { begin(c, BERTH_SEND), begin(c, BERTH_RECV) };
	unsigned char *out = room_for(c, c->count);
	uint64_t received = 0;
	berth_request *request;

	d[0].root = to;
	d[0].in = input(c, c->count);
	d[1].root = has(c, UNEVEN) ? BERTH_ANY : from;
	d[1].out = out;
	d[1].room = has(c, UNEVEN) ? UINT64_MAX : c->count;
	d[1].received = &received;
	done(berth_submit(d, 2, &request));
	done(berth_wait(request, -1));
	if (received != c->count)
		large_fail("%llu elements were received", (unsigned long long)received);
	expect_rank(c, from, out, 0, c->count);
	large_expect_nothing(out + c->count * kern_size(c->type));
}

/* ---- counts that cannot be ---- */

static void refused(struct berth_desc d, const char *what)
{
	const berth_result rc = berth_run(&d, -1, NULL);

	if (rc != BERTH_INVALID)
		large_fail("kind %d, %s: %s", (int)d.kind, what, berth_result_text(rc));
}

/* They are more than 64 bits of bytes, one by one or in all. */
static void impossible(const struct large_case *c)
{
	static const uint64_t counts[] = { UINT64_MAX, (uint64_t)1 << 63,
					   ((uint64_t)1 << 61) + 1, (uint64_t)1 << 60 };
	uint64_t half[LARGE_RANKS] = { 0 };
	uint64_t place[8] = { 0 }, received[LARGE_RANKS];
	struct berth_desc barrier = BERTH_DESC(.kind = BERTH_BARRIER);

	for (int r = 0; r < 2; r++) /* 2^64 in all, which is 0 */
		half[r] = (uint64_t)1 << 63;
	for (int kind = BERTH_ALLREDUCE; kind <= BERTH_RECV; kind++) {
		struct berth_desc d = begin(c, (berth_kind)kind);

		if (kind == BERTH_BARRIER)
			continue;
		d.in = d.out = place;
		for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
			d.count = counts[i];
			refused(d, "count");
			d.received = received;
			refused(d, "count, received");
			d.received = NULL;
		}
		d.count = 0;
		if (kind == BERTH_ALLTOALL || kind == BERTH_REDUCESCATTER) {
			d.in_counts = half;
			refused(d, "in_counts that wrap");
		}
		if (kind == BERTH_ALLGATHER) {
			d.count = half[large_rank];
			d.out_counts = half;
			refused(d, "out_counts that wrap");
		}
	}
	done(berth_run(&barrier, -1, NULL));
}

/* ---- the cases ---- */

#define PAST_31 (((uint64_t)1 << 31) + 12345)
#define PAST_32 (((uint64_t)1 << 32) + 12345)

static const struct large_case cases[] = {
	{ "allreduce", allreduce, PAST_32, BERTH_U8, 0 },
	{ "allreduce-bf16", allreduce, PAST_31, BERTH_BF16, IN_PLACE },
	{ "allreduce-heap", allreduce, PAST_32, BERTH_U8, IN_PLACE | IN_HEAP },
	{ "allreduce-joined", allreduce, PAST_32, BERTH_U8, JOINED },
	{ "adasum", adasum, PAST_31, BERTH_BF16, 0 },
	/* its accumulators are past 2^32 bytes */
	{ "adasum-half", adasum, PAST_31 / 2, BERTH_BF16, 0 },
	{ "reduce", reduce, PAST_32, BERTH_U8, 0 },
	{ "reduce-bf16", reduce, PAST_31, BERTH_BF16, IN_PLACE },
	{ "reduce-half", reduce, PAST_31, BERTH_U8, 0 },
	{ "broadcast", broadcast, PAST_32, BERTH_U8, IN_PLACE },
	{ "broadcast-u16", broadcast, PAST_31, BERTH_U16, 0 },
	{ "allgather", allgather, PAST_31, BERTH_U8, 0 },
	{ "allgather-place", allgather, PAST_31, BERTH_U8, IN_PLACE },
	{ "allgather-own", allgather, PAST_32, BERTH_U8, UNEVEN },
	{ "reducescatter", reducescatter, PAST_32, BERTH_U8, 0 },
	{ "reducescatter-own", reducescatter, PAST_31, BERTH_BF16, IN_PLACE | UNEVEN },
	{ "reducescatter-half", reducescatter, PAST_31, BERTH_U8, UNEVEN },
	{ "alltoall", alltoall, PAST_31, BERTH_U8, 0 },
	{ "alltoall-place", alltoall, PAST_31, BERTH_U8, IN_PLACE },
	{ "alltoall-own", alltoall, PAST_32, BERTH_U8, UNEVEN },
	{ "alltoall-u16", alltoall, PAST_31, BERTH_U16, UNEVEN },
	{ "gather", gather, PAST_32, BERTH_U8, 0 },
	{ "gather-place", gather, PAST_31, BERTH_U8, IN_PLACE },
	{ "scatter", scatter, PAST_32, BERTH_U8, 0 },
	{ "scatter-place", scatter, PAST_31, BERTH_U16, IN_PLACE },
	{ "send", send, PAST_32, BERTH_U8, 0 },
	{ "send-any", send, PAST_31, BERTH_U16, UNEVEN },
	{ "impossible", impossible, 0, BERTH_U64, 0 },
};

/* ---- ranks ---- */

/* On which hosts they are as if. */
struct layout {
	const struct large_case *c;
	int hosts;
};

static int run_rank(int rank, void *ctx)
{
	const struct layout *l = ctx;
	const struct large_case *c = l->c;
	char host[16];
	const struct berth_bootstrap b = { .size = sizeof b,
					   .rank = rank,
					   .ranks = large_ranks,
					   .allgather = own_ranks_gather,
					   .ctx = &rank,
					   .host = host };
	const struct berth_config config = { .size = sizeof config,
					     .timeout_ms = TIMEOUT_MS,
					     .bootstrap = &b };
	struct berth_desc barrier = BERTH_DESC(.kind = BERTH_BARRIER);

	large_rank = rank;
	large_name = c->name;
	snprintf(host, sizeof host, "host%d", rank * l->hosts / large_ranks);
	done(berth_init(&config));
	c->run(c);
	done(berth_run(&barrier, -1, NULL));
	if (!large_rank)
		large_print(c->type);
	berth_shutdown();
	return 0;
}

int main(int argc, char **argv)
{
	int hosts = 1, at = 1;

	for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
		if (!strcmp(argv[at], "-np"))
			large_ranks = atoi(argv[at + 1]);
		else if (!strcmp(argv[at], "-hosts"))
			hosts = atoi(argv[at + 1]);
		else
			return 2;
	}
	if (large_ranks < 1 || large_ranks > LARGE_RANKS || hosts < 1)
		return 2;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (at == argc)
			printf("%s\n", cases[i].name);
		else if (!strcmp(argv[at], cases[i].name))
			return own_ranks_run(large_ranks, run_rank,
					     &(struct layout){ &cases[i], hosts });
	}
	return at == argc ? 0 : 2;
}
