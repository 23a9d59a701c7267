/* rank_waits.h - for which ranks a rank in an operation of libberth waits, as the op
 * records of all ranks say. */
#ifndef BERTH_LAUNCHER_JOB_RANK_WAITS_H
#define BERTH_LAUNCHER_JOB_RANK_WAITS_H

#include "launcher/job/epoch.h"

enum {
	RANK_WAIT_ANSWER = 64, /* ranks in an answer */
	RANK_WAITS_MOST = 64   /* operations whose missing ranks are known at a time */
};

/* An agent's words about one rank. */
struct rank_op {
	char *text; /* its last operation; "": it has left the library */
	uint32_t *set, *seq, *runs; /* its last one in each of N process sets */
	size_t n;
};
void rank_op_free(struct rank_op *op); /* takes NULL */

/* The ranks for which the ranks in one operation wait. */
struct rank_wait {
	const struct rank_op *op;
	struct rank_set missing;
	char *text; /* `; waits for ranks 3-5`, or "" */
	uint32_t answer[RANK_WAIT_ANSWER], nanswer;
};

/* So that one search serves all ranks in an operation. */
struct rank_waits {
	const struct epoch *epoch;
	struct rank_op *const *op; /* of each rank */
	struct rank_wait v[RANK_WAITS_MOST];
	size_t n; /* searches */
};

/* The ranks for which RANK, in an operation, waits.  Valid until the next call. */
const struct rank_wait *rank_waits_get(struct rank_waits *waits, uint32_t rank);
void rank_waits_free(struct rank_waits *waits);

/* Two ranks are in the same operations. */
bool rank_waits_alike(const struct rank_op *a, const struct rank_op *b);

/* It waits in an operation of the engine: there each rank may do them in another order,
 * and the engine knows better than the numbers which rank is missing. */
bool rank_op_is_asynchronous(const struct rank_op *op);

/* Append "rank 3", or "ranks 3-5".  Of a long list a part is shown, and its length. */
void rank_waits_print(struct str *out, const struct rank_set *set);

#endif
