/* joined.h - what ranks can call for beside one that has joined; who joined last. */
#ifndef BERTH_TESTS_JOINED_H
#define BERTH_TESTS_JOINED_H

#include "tests/helpers/verify.h"
#include "tests/helpers/calls.h"

enum { JOINED_COUNT = 300 };

/* By turns a blocking call and a request of N operations. */
static berth_result do_in_turn(enum berth_kind kind, const struct berth_desc *d,
			       size_t n, unsigned turn)
{
	berth_request *r;
	berth_result rc;

	if (turn % 2 || n > 1) {
		rc = call_submit(kind, d, n, &r);
		return rc ? rc : berth_wait(r, -1);
	}
	switch (kind) {
	case BERTH_ALLREDUCE:
		return call_allreduce(d);
	case BERTH_REDUCE:
		return call_reduce(d);
	case BERTH_REDUCESCATTER:
		return call_reducescatter(d);
	case BERTH_ALLGATHER:
		return call_allgather(d);
	case BERTH_BROADCAST:
		return call_broadcast(d);
	case BERTH_ALLTOALL:
		return call_alltoall(d);
	default:
		return call_barrier(d->set);
	}
}

/* All give 3, but for JOINED ranks that give nothing. */
static void reduce_beside(int joined, unsigned turn)
{
	static const struct {
		berth_type type;
		berth_op op;
		double before, after, of_each, of_all; /* 3 becomes */
	} cases[] = {
		{ BERTH_F32, BERTH_SUM, 1, 1, 3, 0 },
		{ BERTH_F32, BERTH_AVG, 1, 1, 3, 1 },
		{ BERTH_F32, BERTH_SUM, 0.5, 4, 6, 0 },
		{ BERTH_F32, BERTH_AVG, 2, 0.5, 3, 1 },
		{ BERTH_F32, BERTH_MIN, 1, 1, 0, 3 },
		{ BERTH_F32, BERTH_MAX, 1, 1, 0, 3 },
		{ BERTH_F32, BERTH_MAX, -2, 1, 0, -6 },
		{ BERTH_F32, BERTH_MIN, -2, 1, 0, -6 },
		{ BERTH_F32, BERTH_ADASUM, 1, 1, 0, 3 },
		{ BERTH_F32, BERTH_ADASUM, 2, 0.5, 0, 3 },
	};

	for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
		float x[JOINED_COUNT], y[JOINED_COUNT];
		const double n = cases[k].op == BERTH_AVG
					 ? (double)(size - joined) / size
					 : size - joined;
		const float want = (float)(cases[k].of_each != 0 ? cases[k].of_each * n
								 : cases[k].of_all);
		struct berth_desc d =
			BERTH_DESC(.name = turn % 2 ? "beside" : NULL, .in = x,
				   .out = y, .count = JOINED_COUNT,
				   .type = cases[k].type, .op = cases[k].op);

		if (cases[k].before != 1)
			d.prescale = &cases[k].before;
		if (cases[k].after != 1)
			d.postscale = &cases[k].after;
		for (int i = 0; i < JOINED_COUNT; i++)
			x[i] = 3;
		FINE(do_in_turn(BERTH_ALLREDUCE, &d, 1, turn));
		for (int i = 0; i < JOINED_COUNT; i++)
			CHECK(fabsf(y[i] - want) < 1e-5F * fabsf(want),
			      "case %zu beside %d joined: %g, not %g", k, joined,
			      (double)y[i], (double)want);
	}
}

static void group_beside(int joined)
{
	float x[2] = { 1, 2 };
	int32_t y = 7;
	struct berth_desc d[3] = {
		BERTH_DESC(.name = "g0", .in = &x[0], .out = &x[0], .count = 1,
			   .type = BERTH_F32),
		BERTH_DESC(.name = "g1", .in = &y, .out = &y, .count = 1,
			   .type = BERTH_I32, .op = BERTH_MAX),
		BERTH_DESC(.name = "g2", .in = &x[1], .out = &x[1], .count = 1,
			   .type = BERTH_F32, .prescale = &half),
	};

	FINE(do_in_turn(BERTH_ALLREDUCE, d, 3, 1));
	CHECK(x[0] == (float)(size - joined) && x[1] == (float)(size - joined) &&
		      y == 7,
	      "together: %g %g %d", (double)x[0], (double)x[1], y);
}

/* What a rank that has joined has no part in is an error of all others. */
static void refused_beside(unsigned turn)
{
	static const enum berth_kind kinds[] = { BERTH_REDUCE, BERTH_REDUCESCATTER,
						 BERTH_ALLGATHER, BERTH_BROADCAST,
						 BERTH_ALLTOALL };
	static int32_t x[64], y[64 * 64];

	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
		struct berth_desc d =
			BERTH_DESC(.name = "refused", .in = x, .out = y,
				   .count = (uint64_t)size, .type = BERTH_I32);

		CHECK(do_in_turn(kinds[k], &d, 1, turn) == BERTH_STATE,
		      "kind %d beside a joined rank", kinds[k]);
		CHECK(strstr(berth_last_error()->text, " joined: only allreduce"),
		      "text");
	}
}

/* Rank I of each round joins as number I + ROUND, and the last one is known to all. */
static void joined(void)
{
	for (int round = 0; round < 2 * size; round++) {
		const int place = (rank + round) % size;
		int last = -1;

		for (int turn = 0; turn < place; turn++) {
			/* those of the places 0 to TURN have joined */
			reduce_beside(turn + 1, (unsigned)(turn + round));
			group_beside(turn + 1);
			refused_beside((unsigned)(turn + round));
			FINE(call_barrier(NULL));
		}
		FINE(berth_join(NULL, &last));
		CHECK((last + round) % size == size - 1, "round %d: last %d", round,
		      last);
	}
}

#endif
