/* sends.h - sends and receives: in order by tag, of any sender, in groups with other
 * operations, too large, of another type. */
#ifndef BERTH_TESTS_SENDS_H
#define BERTH_TESTS_SENDS_H

#include <semaphore.h>

#include "tests/helpers/collectives/counts.h"

static struct berth_desc send_to(int peer, uint64_t tag, const void *in, uint64_t n)
{
	return (struct berth_desc)BERTH_DESC(.kind = BERTH_SEND, .type = BERTH_U32,
					     .root = peer, .tag = tag, .in = in,
					     .count = n);
}

static struct berth_desc receive_from(int peer, uint64_t tag, void *out, uint64_t room)
{
	return (struct berth_desc)BERTH_DESC(.kind = BERTH_RECV, .type = BERTH_U32,
					     .root = peer, .tag = tag, .out = out,
					     .room = room);
}

/* To the next rank and from the last one, of many sizes, all ranks at once; also to
 * oneself, if it is alone. */
static void round_and_round(void)
{
	static const uint64_t sizes[] = { 0, 1, 7, 1000, 3000, 70001, 1000000 };
	uint32_t *in = malloc(4000000), *out = malloc(4000000);
	int next = (rank + 1) % size, last = (rank + size - 1) % size;

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		uint64_t n = sizes[i], got = 7;
		int from = -7;
		struct berth_desc d[2] = { send_to(next, i, in, n),
					   receive_from(last, i, out, n) };
		berth_request *r;

		d[1].received = &got;
		d[1].from = &from;
		for (uint64_t k = 0; k < n; k++)
			in[k] = of_pair(rank, next, k);
		FINE(berth_submit(d, 2, &r));
		FINE(berth_wait(r, -1));
		CHECK(got == n && from == last, "%llu from %d", (unsigned long long)got,
		      from);
		for (uint64_t k = 0; k < n; k++)
			CHECK(out[k] == of_pair(last, rank, k), "element %u",
			      (unsigned)k);
	}
	free(in);
	free(out);
}

/* Rank 0 takes what all others send, of one tag in their order, the later tag first. */
static void tags(void)
{
	enum { EACH = 30 };
	uint32_t x, seen[COUNTS_RANKS] = { 0 };
	berth_request *r[EACH];
	int from;

	if (rank) {
		static uint32_t sent[EACH];

		for (uint32_t i = 0; i < EACH; i++) {
			struct berth_desc d = send_to(0, i % 2, &sent[i], 1);

			sent[i] = i;
			FINE(berth_submit(&d, 1, &r[i]));
		}
		for (int i = 0; i < EACH; i++)
			FINE(berth_wait(r[i], -1));
		return;
	}
	for (int turn = 1; turn >= 0; turn--)
		for (int i = 0; i < EACH / 2 * (size - 1); i++) {
			struct berth_desc d =
				receive_from(BERTH_ANY, (uint64_t)turn, &x, 1);

			d.from = &from;
			FINE(berth_run(&d, -1, NULL));
			CHECK(from > 0 && from < size, "from %d", from);
			CHECK(x == 2 * (seen[from] % (EACH / 2)) + (uint32_t)turn,
			      "%u of rank %d", x, from);
			seen[from]++;
		}
}

/* So many that some lie beside each other wherever the library looks for them; received
 * in the other order.  AWAITED: the receives are there first. */
static void many_tags(bool awaited)
{
	enum { MANY = 1500 };
	static struct berth_desc send[MANY], receive[MANY];
	static uint32_t in[MANY], out[MANY];
	int next = (rank + 1) % size, last = (rank + size - 1) % size;
	berth_request *sent, *received;

	for (uint32_t i = 0; i < MANY; i++) {
		const uint32_t k = MANY - 1 - i;

		in[i] = of_pair(rank, next, i);
		send[i] = send_to(next, i, &in[i], 1);
		receive[i] = receive_from(last, k, &out[k], 1);
	}
	if (awaited)
		FINE(berth_submit(receive, MANY, &received));
	FINE(call_barrier(NULL));
	FINE(berth_submit(send, MANY, &sent));
	for (int i = 0; i < MANY && !awaited; i++)
		FINE(berth_run(&receive[i], -1, NULL));
	if (awaited)
		FINE(berth_wait(received, -1));
	FINE(berth_wait(sent, -1));
	for (uint32_t i = 0; i < MANY; i++)
		CHECK(out[i] == of_pair(last, rank, i), "of tag %u: %u", i, out[i]);
}

/* Everything with everybody, and an allreduce, as one request. */
static void groups(void)
{
	struct berth_desc d[2 * COUNTS_RANKS + 1];
	uint32_t in[COUNTS_RANKS], out[COUNTS_RANKS];
	float x = 1;
	berth_request *r;
	size_t n = 0;

	for (int i = 0; i < size; i++) {
		in[i] = of_pair(rank, i, 0);
		d[n++] = send_to(i, 5, &in[i], 1);
		d[n++] = receive_from(i, 5, &out[i], 1);
	}
	d[n++] = (struct berth_desc)BERTH_DESC(.kind = BERTH_ALLREDUCE,
					       .type = BERTH_F32, .name = "beside",
					       .in = &x, .out = &x, .count = 1);
	FINE(berth_submit(d, n, &r));
	FINE(berth_wait(r, -1));
	for (int i = 0; i < size; i++)
		CHECK(out[i] == of_pair(i, rank, 0), "from %d", i);
	CHECK(x == (float)size, "the sum beside");
}

/* Its message has come long before its sum: who waits for the message does not sleep on
 * when the sum is there.  The best of some turns, since others may have the core. */
static void late_sums(void)
{
	uint64_t best = UINT64_MAX;

	for (int turn = 0; turn < 20; turn++) {
		uint32_t in = 1, out;
		float x = 1;
		struct berth_desc d[3] = { send_to(rank, 6, &in, 1),
					   receive_from(rank, 6, &out, 1) };
		berth_request *r;
		uint64_t begun;

		d[2] = (struct berth_desc)BERTH_DESC(.kind = BERTH_ALLREDUCE,
						     .type = BERTH_F32, .name = "late",
						     .in = &x, .out = &x, .count = 1);
		FINE(call_barrier(NULL));
		begun = now_ms();
		if (rank == size - 1)
			usleep(10000);
		FINE(berth_submit(d, 3, &r));
		FINE(berth_wait(r, -1));
		if (now_ms() - begun < best)
			best = now_ms() - begun;
	}
	CHECK(best < 40, "it takes %u ms", (unsigned)best);
}

/* The receiver asks for memory, has the library make it, or has more room than there
 * can be, or too little. */
static void rooms(void)
{
	uint32_t in[100] = { 42 }, out[100] = { 7 };
	void *made = NULL;
	uint64_t got = 0;
	struct berth_desc d = send_to(1, 9, in, 100);

	if (size == 1 || rank > 1)
		return;
	for (int turn = 0; rank == 0 && turn < 6; turn++) {
		berth_result rc = berth_run(&d, -1, NULL);

		CHECK(turn < 4 ? !rc : rc == BERTH_MISMATCH, "turn %d: %d", turn, rc);
	}
	if (rank == 0)
		return;
	d = receive_from(0, 9, NULL, 0);
	d.received = &got;
	d.made = &made;
	FINE(berth_run(&d, -1, NULL));
	CHECK(got == 100 && made && *(uint32_t *)made == 42, "made");
	berth_free(made);
	d.made = NULL;
	d.alloc = give_room;
	d.alloc_ctx = &made;
	FINE(berth_run(&d, -1, NULL));
	CHECK(*(uint32_t *)made == 42, "asked for");
	free(made);
	for (int i = 0; i < 2; i++) { /* 2^64 bytes and more */
		memset(out, 0, sizeof out);
		d = receive_from(0, 9, out, i ? UINT64_MAX : (uint64_t)1 << 62);
		FINE(berth_run(&d, -1, NULL));
		CHECK(*out == 42, "more room than there can be");
	}
	*out = 7;
	d = receive_from(0, 9, out, 99);
	CHECK(berth_run(&d, -1, NULL) == BERTH_MISMATCH && out[0] == 7 &&
		      strstr(berth_last_error()->text, "room for 99"),
	      "no room: %s", berth_last_error()->text);
	d.room = 100;
	d.type = BERTH_F32;
	CHECK(berth_run(&d, -1, NULL) == BERTH_MISMATCH && out[0] == 7, "another type");
}

/* Nobody sends: its time is over; the set goes on. */
static void nobody_sends(void)
{
	uint32_t x;
	struct berth_desc d = receive_from(0, 77, &x, 1);

	d.timeout_ms = 100;
	CHECK(berth_run(&d, -1, NULL) == BERTH_TIMEOUT, "nobody sends");
	FINE(call_barrier(NULL));
}

/* ---- functions of the caller's that are slow ---- */

/* A function that has begun waits until it may return. */
static struct slow_call {
	sem_t begun, returns, other;
} slow;

static void slow_wait(void)
{
	sem_post(&slow.begun);
	sem_wait(&slow.returns);
}

static void slow_done(void *ctx, berth_result rc)
{
	(void)ctx;
	FINE(rc);
	slow_wait();
}

static void *slow_room(void *room, uint64_t bytes)
{
	slow_wait();
	return *(void **)room = malloc(bytes);
}

static void other_done(void *ctx, berth_result rc)
{
	(void)ctx;
	FINE(rc);
	sem_post(&slow.other);
}

/* While a function of one set waits, on the thread of the library, messages of another
 * set go on.  Rank 0 makes no call meanwhile.  ALLOCATES: the function is asked for
 * room.  TOGETHER: both messages come at the same time. */
static void slow_call(bool allocates, bool together)
{
	static uint32_t in[3000];
	uint32_t x = 1, y = 0, *out = NULL;
	struct berth_desc d = receive_from(1, 5, in, 3000),
			  other = receive_from(1, 6, &y, 1);
	berth_request *r, *s;
	berth_set *set;

	FINE(berth_set_split(NULL, 0, 0, &set));
	if (rank == 1) {
		d = send_to(0, 5, in, 3000);
		other = send_to(0, 6, &x, 1);
	}
	other.set = set;
	if (rank == 0 && allocates) {
		d.out = NULL;
		d.room = UINT64_MAX;
		d.alloc = slow_room;
		d.alloc_ctx = &out;
	}
	FINE(call_barrier(NULL));
	if (rank == 0) {
		FINE(berth_submit(&d, 1, &r));
		if (!allocates)
			FINE(berth_then(r, slow_done, NULL));
	}
	FINE(call_barrier(NULL)); /* else the function might be called there */
	if (rank == 0) {
		if (!together)
			sem_wait(&slow.begun);
		FINE(berth_submit(&other, 1, &s));
		FINE(berth_then(s, other_done, NULL));
	} else if (rank == 1 && !together) {
		FINE(berth_submit(&d, 1, &r));
	}
	FINE(call_barrier(NULL)); /* rank 0 has posted what receives them */
	if (rank == 0) {
		if (together)
			sem_wait(&slow.begun);
		sem_wait(&slow.other);
		CHECK(y == 1, "the other set's message: %u", y);
		sem_post(&slow.returns);
	} else if (rank == 1) {
		if (together)
			FINE(berth_submit(&d, 1, &r));
		FINE(berth_submit(&other, 1, &s));
	}
	if (rank < 2) {
		FINE(berth_wait(r, -1));
		FINE(berth_wait(s, -1));
	}
	free(out);
	FINE(berth_set_remove(set));
}

enum { SLOW_SETS = 4, SLOW_TURNS = 20, SLOW_RANKS = 64 };

/* The set in which the function of rank 0 waits: its sum, or what rank 1 gathers. */
static berth_request *slow_begin(berth_set *set, bool allocates, float *x, void **out)
{
	static uint64_t received[SLOW_RANKS];
	const struct berth_desc sum =
		BERTH_DESC(.kind = BERTH_ALLREDUCE, .set = set, .in = x, .out = x,
			   .count = 1, .type = BERTH_F32);
	const struct berth_desc gather =
		BERTH_DESC(.kind = BERTH_ALLGATHER, .set = set, .in = x, .made = out,
			   .count = 1, .room = UINT64_MAX, .received = received,
			   .type = BERTH_F32, .alloc = rank == 0 ? slow_room : NULL,
			   .alloc_ctx = out);
	berth_request *r;

	CHECK(size <= SLOW_RANKS, "%d ranks", size);
	FINE(berth_submit(allocates ? &gather : &sum, 1, &r));
	if (rank == 0 && !allocates)
		FINE(berth_then(r, slow_done, NULL));
	return r;
}

/* While a function of one set waits, sums of other sets go on, and their functions are
 * called.  Rank 0 makes no call that waits. */
static void slow_sums(bool allocates)
{
	berth_set *set[SLOW_SETS];
	float x = 1, y[SLOW_SETS];
	berth_request *r = NULL, *s[SLOW_SETS];
	void *out = NULL;

	for (int i = 0; i < SLOW_SETS; i++)
		FINE(berth_set_split(NULL, 0, 0, &set[i]));
	if (rank == 0)
		r = slow_begin(set[0], allocates, &x, &out);
	FINE(call_barrier(NULL)); /* it has said which function is to be called */
	if (rank > 0)
		r = slow_begin(set[0], allocates, &x, &out);
	else
		sem_wait(&slow.begun);
	for (int turn = 0; turn < SLOW_TURNS; turn++) {
		for (int i = 1; i < SLOW_SETS; i++) {
			const struct berth_desc d =
				BERTH_DESC(.kind = BERTH_ALLREDUCE, .set = set[i],
					   .in = &y[i], .out = &y[i], .count = 1,
					   .type = BERTH_F32);

			y[i] = (float)turn;
			FINE(berth_submit(&d, 1, &s[i]));
			if (rank == 0)
				FINE(berth_then(s[i], other_done, NULL));
		}
		for (int i = 1; rank == 0 && i < SLOW_SETS; i++)
			sem_wait(&slow.other);
		for (int i = 1; i < SLOW_SETS; i++) {
			FINE(berth_wait(s[i], -1));
			CHECK((int)y[i] == size * turn, "the other set's sum: %g",
			      y[i]);
		}
	}
	if (rank == 0)
		sem_post(&slow.returns);
	FINE(berth_wait(r, -1));
	CHECK(allocates || (int)x == size, "the slow set's sum: %g", x);
	if (allocates && rank == 0)
		free(out);
	else if (allocates)
		berth_free(out);
	for (int i = 0; i < SLOW_SETS; i++)
		FINE(berth_set_remove(set[i]));
}

static void slow_calls(void)
{
	if (size == 1)
		return;
	sem_init(&slow.begun, 0, 0);
	sem_init(&slow.returns, 0, 0);
	sem_init(&slow.other, 0, 0);
	for (int i = 0; i < 12; i++)
		slow_call(i % 2, i / 2 % 2);
	for (int i = 0; i < 6; i++)
		slow_sums(i % 2);
}

static void sends(void)
{
	slow_calls();
	round_and_round();
	tags();
	many_tags(false);
	many_tags(true);
	groups();
	late_sums();
	rooms();
	nobody_sends();
}

#endif
