/* overlap.h - sets that overlap: each two ranks are one.  Sums and messages in all of
 * them, submitted in another order on each rank, with pauses. */
#ifndef BERTH_TESTS_OVERLAP_H
#define BERTH_TESTS_OVERLAP_H

#include <stdlib.h>
#include <unistd.h>

#include "tests/helpers/calls.h"
#include "tests/helpers/verify.h"

enum { OVERLAP_RANKS = 8, OVERLAP_STEPS = 500 };

/* What this rank does in the set with rank PEER. */
struct overlap {
	int peer;
	berth_set *set;
	float sum;
	uint32_t said, heard;
	berth_request *r;
};

static void overlap_begin(struct overlap *o, int step)
{
	const berth_kind kinds[] = { BERTH_ALLREDUCE, BERTH_SEND, BERTH_RECV };
	struct berth_desc d[3];

	o->sum = (float)(rank + step);
	o->said = (uint32_t)(1000 * rank + step);
	d[0] = (struct berth_desc)BERTH_DESC(.in = &o->sum, .out = &o->sum, .count = 1,
					     .type = BERTH_F32, .name = "sum");
	d[1] = (struct berth_desc)BERTH_DESC(.in = &o->said, .count = 1,
					     .type = BERTH_U32, .root = rank < o->peer);
	d[2] = (struct berth_desc)BERTH_DESC(.out = &o->heard, .room = 1,
					     .type = BERTH_U32, .root = rank < o->peer);
	for (unsigned i = 0; i < 3; i++) {
		d[i].kind = kinds[i];
		d[i].set = o->set;
	}
	FINE(berth_submit(d, 3, &o->r));
}

static void overlap_end(struct overlap *o, int step)
{
	FINE(berth_wait(o->r, -1));
	CHECK((int)o->sum == rank + o->peer + 2 * step, "step %d with %d: sum %g", step,
	      o->peer, o->sum);
	CHECK((int)o->heard == 1000 * o->peer + step, "step %d with %d: heard %u", step,
	      o->peer, o->heard);
}

static void overlap_mix(unsigned *order, unsigned n, unsigned *turn)
{
	for (unsigned i = 0; i < n; i++) {
		const unsigned k = (unsigned)rand_r(turn) % (i + 1);

		order[i] = order[k];
		order[k] = i;
	}
}

/* The sets of all pairs; those of this rank to O, how many. */
static unsigned overlap_make(struct overlap *o)
{
	unsigned n = 0;

	for (int a = 0; a < size && a < OVERLAP_RANKS; a++)
		for (int b = a + 1; b < size && b < OVERLAP_RANKS; b++) {
			const bool mine = rank == a || rank == b;
			berth_set *set;

			FINE(berth_set_split(NULL, mine ? 0 : -1, 0, &set));
			if (mine)
				o[n++] = (struct overlap){ .peer = rank == a ? b : a,
							   .set = set };
		}
	return n;
}

static void overlap(void)
{
	const char *steps = getenv("OVERLAP_STEPS");
	struct overlap o[OVERLAP_RANKS];
	const unsigned n = overlap_make(o);
	unsigned turn = (unsigned)rank + 1, order[OVERLAP_RANKS];

	for (int step = 0; step < (steps ? atoi(steps) : OVERLAP_STEPS); step++) {
		overlap_mix(order, n, &turn);
		for (unsigned i = 0; i < n; i++) {
			if (rand_r(&turn) % 4 == 0)
				usleep((unsigned)rand_r(&turn) % 200);
			overlap_begin(&o[order[i]], step);
			if (rand_r(&turn) % 8 == 0) /* while others are to begin */
				(void)berth_poll(o[order[i]].r);
		}
		overlap_mix(order, n, &turn);
		for (unsigned i = 0; i < n; i++)
			overlap_end(&o[order[i]], step);
	}
	for (unsigned i = 0; i < n; i++)
		FINE(berth_set_remove(o[i].set));
}

#endif
