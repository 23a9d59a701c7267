/* trace_match.h - what ranks did together, found in the slices of all of them.
 *
 * A collective is open until all its ranks have come, or 10000 others are open, or
 * their ranks are 2^20: then the oldest is done as it is.  So memory is bounded, if the
 * files are read at the same pace.  A rank that comes later begins another one. */
#ifndef BERTH_LAUNCHER_TRACE_MATCH_H
#define BERTH_LAUNCHER_TRACE_MATCH_H

#include "launcher/trace/trace_put.h"

struct trace_match;

/* One rank in a collective. */
struct trace_came {
	int64_t at_ns;     /* its slice begins */
	int64_t waited_ns; /* it had called before that: then it came */
	uint32_t source;   /* whose file says so: 0.. */
	uint32_t tid;
};

struct trace_collective {
	uint64_t key, step;
	uint32_t epoch;
	uint32_t of, n; /* ranks of it, and those in CAME */
	struct trace_came *came;
	uint32_t last;             /* the index in CAME of the last to come */
	int64_t first_ns, last_ns; /* when the first and the last came */
	int64_t end_ns;            /* of the last slice */
};

/* The rank for which others waited longest in a step. */
struct trace_step {
	uint32_t epoch;
	uint64_t step;
	uint32_t source;
	uint64_t collectives,
		last;      /* of the step; those to which that rank came last */
	int64_t waited_ns; /* the first to come for it, in all of these */
	int64_t begin_ns, end_ns;
};

struct trace_match_events {
	void (*joined)(void *ctx, const struct trace_collective *c);
	void (*step)(void *ctx, const struct trace_step *s);
};

void trace_match_open(struct trace_match **m, size_t sources,
		      const struct trace_match_events *events, void *ctx);
/* A slice that ends at END_NS, of epoch EPOCH of the job.  Returns the number by which
 * the slices of one collective are known, not 0. */
uint64_t trace_match_add(struct trace_match *m, const struct trace_op *op,
			 uint32_t epoch, const struct trace_came *came, int64_t end_ns);
/* No more slices: everything that is open is done. */
void trace_match_end(struct trace_match *m);
void trace_match_free(struct trace_match *m); /* takes NULL */

#endif
