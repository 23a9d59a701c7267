/* idle.h - many sets: in flight in another order on each rank, and standing still. */
#ifndef BERTH_TESTS_IDLE_H
#define BERTH_TESTS_IDLE_H

#include <stdlib.h>
#include <unistd.h>

#include "tests/helpers/calls.h"
#include "tests/helpers/here.h"
#include "tests/helpers/verify.h"

enum {
	IDLE_SETS = 50,
	THREADS = 3, /* the program's, that of all sets, and that of connections */
	IDLE_DESCRIPTORS = 40,
	IDLE_LOOKS = 600, /* each 50 ms */
};

static bool stands_still(void)
{
	return threads_here() <= THREADS && descriptors_here() <= IDLE_DESCRIPTORS;
}

/* One sum in each set, submitted in an order of this rank's own. */
static void sum_in_all(berth_set **set)
{
	float in[IDLE_SETS], out[IDLE_SETS];
	berth_request *r[IDLE_SETS];
	unsigned order[IDLE_SETS], turn = (unsigned)rank + 1;

	for (unsigned i = 0; i < IDLE_SETS; i++) {
		unsigned k = (unsigned)rand_r(&turn) % (i + 1);

		order[i] = order[k];
		order[k] = i;
	}
	for (unsigned k = 0; k < IDLE_SETS; k++) {
		unsigned i = order[k];
		struct berth_desc d =
			BERTH_DESC(.set = set[i], .in = &in[i], .out = &out[i],
				   .count = 1, .type = BERTH_F32);

		in[i] = (float)i;
		FINE(call_submit(BERTH_ALLREDUCE, &d, 1, &r[i]));
	}
	CHECK(threads_here() <= THREADS, "%d threads", threads_here());
	for (unsigned i = 0; i < IDLE_SETS; i++) {
		FINE(berth_wait(r[i], -1));
		CHECK(out[i] == (float)(size * (int)i), "sum in set %u", i);
	}
}

/* In each set a message to the next rank. */
static void send_in_all(berth_set **set)
{
	int in = rank, out[IDLE_SETS];
	berth_request *r[IDLE_SETS];

	for (int i = 0; i < IDLE_SETS; i++) {
		const struct berth_desc d[] = {
			BERTH_DESC(.kind = BERTH_SEND, .type = BERTH_I32, .set = set[i],
				   .root = (rank + 1) % size, .in = &in, .count = 1),
			BERTH_DESC(.kind = BERTH_RECV, .type = BERTH_I32, .set = set[i],
				   .root = (rank + size - 1) % size, .out = &out[i],
				   .room = 1),
		};

		FINE(berth_submit(d, 2, &r[i]));
	}
	CHECK(threads_here() <= THREADS, "%d threads", threads_here());
	for (int i = 0; i < IDLE_SETS; i++) {
		FINE(berth_wait(r[i], -1));
		CHECK(out[i] == (rank + size - 1) % size, "message in set %d", i);
	}
}

static void idle(void)
{
	static berth_set *set[IDLE_SETS];

	for (int i = 0; i < IDLE_SETS; i++)
		FINE(berth_set_split(NULL, 0, 0, &set[i]));
	for (int turn = 0; turn < 2; turn++) {
		sum_in_all(set);
		send_in_all(set);
		for (int i = 0; i < IDLE_SETS; i++)
			CHECK(sum_in(set[i], 1) == size, "blocking");
		for (int i = 0; i < IDLE_LOOKS && !stands_still(); i++)
			usleep(50000);
		CHECK(stands_still(), "%d threads, %d descriptors", threads_here(),
		      descriptors_here());
		/* the first ranks would connect anew to those that still count */
		FINE(call_barrier(NULL));
	}
	if (rank == 0)
		printf("%d threads, %d descriptors\n", threads_here(),
		       descriptors_here());
	for (int i = 0; i < IDLE_SETS; i++)
		FINE(berth_set_remove(set[i]));
}

#endif
