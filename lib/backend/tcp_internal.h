/* tcp_internal.h - shared by the files of tcp.h: tcp.c (joining, agreement),
 * tcp_transfer.c (messages), tcp_probe.c, tcp_reduce.c (by doubling and halving),
 * tcp_direct.c (by parts) and tcp_move.c. */
#ifndef BERTH_LIB_TCP_INTERNAL_H
#define BERTH_LIB_TCP_INTERNAL_H

#include "lib/backend/tcp.h"
#include "lib/backend/tune.h"
#include "lib/base/kern.h"

struct tcp {
	const struct lanes *lanes;
	void *net;
	uint32_t group, seq, step;
	unsigned n, me;
	unsigned *rank;
	uint64_t *bound; /* N + 1: elements in front of each part of an operation */
	struct signatures signatures;
	struct tune_numbers numbers;
	bool probed;
	char *texts;
	unsigned char *room; /* of the operation that runs */
	size_t room_bytes;
	unsigned other; /* the place that differs, or is gone */
	bool has_other, broken;
	berth_result why;
};

/* One operation that runs. */
struct tcp_op {
	struct tcp *t;
	const struct coll *c;
	size_t size; /* of an element of the type */
	uint64_t deadline_ns;
	unsigned lanes; /* of large messages */
	bool agrees;    /* messages of tcp_sendrecv_agree() carry the agreement */
};

/* One side of an exchange. */
struct tcp_transfer {
	unsigned place;
	const void *data; /* sent, or reduced with the data that come */
	void *dst;        /* for the data that come */
	uint64_t bytes;   /* on the way */
	/* Not NULL: reduces the data that come with DATA. */
	const struct kern *kern;
	bool behind; /* see net.h */
};

struct tcp_op tcp_op(struct tcp *t, const struct coll *c, uint64_t deadline_ns);

/* Breaks the group for good, and the net with it. */
berth_result tcp_fail(struct tcp *t, berth_result rc, unsigned lost);

/* Makes T->room at least BYTES large.  BERTH_MEMORY: the group is broken. */
berth_result tcp_need_room(struct tcp *t, size_t bytes);

/* Sends OUT and receives IN at the same time.  Either may be NULL. */
berth_result tcp_exchange(struct tcp_op *w, const struct tcp_transfer *out,
			  const struct tcp_transfer *in);
/* N transfers each way, at most TCP_AT_ONCE, all with different places.  Empty ones are
 * left out. */
berth_result tcp_exchange_all(struct tcp_op *w, const struct tcp_transfer *out,
			      const struct tcp_transfer *in, size_t n);
enum { TCP_AT_ONCE = NET_MESSAGES / NET_LANES };
/* tcp_exchange() with one place, for an agreement.  If W->agrees, each message carries
 * the signatures that its sender knows.  It goes even if it is empty.  It goes without
 * data once ranks are known to differ. */
berth_result tcp_sendrecv_agree(struct tcp_op *w, const struct tcp_transfer *out,
				const struct tcp_transfer *in);

/* Sends N bytes at OUT to place TO while M bytes come from place FROM to IN. */
berth_result tcp_sendrecv(struct tcp_op *w, unsigned to, const void *out, uint64_t n,
			  unsigned from, void *in, uint64_t m);

static inline bool tcp_differs(const struct tcp *t)
{
	return t->signatures.low != t->signatures.high;
}

/* Does an agreement if W->agrees, and an allreduce if ALGORITHM is not TUNE_ALGORITHMS.
 * Both travel together.  The caller looks at tcp_differs(). */
berth_result tcp_round(struct tcp_op *w, enum tune_algorithm algorithm);

/* The greatest power of 2 that is not more than N. */
unsigned tcp_power(unsigned n);
/* Elements, and bytes of OUT, in front of part I of N. */
uint64_t tcp_first(const struct tcp_op *w, unsigned n, unsigned i);
uint64_t tcp_bound(const struct tcp_op *w, unsigned n, unsigned i);

/* Measures T's numbers, which are the same on all ranks then (some 6 agreements, and
 * 128 KiB twice). */
berth_result tcp_probe(struct tcp *t, uint64_t deadline_ns);

/* C in the form that tune.h needs. */
struct tune_work tcp_work(const struct tcp *t, const struct coll *c);

berth_result tcp_reduce(struct tcp_op *w);

/* Each place gets its part of the result, by T->bound, at OUT. */
berth_result tcp_direct_reducescatter(struct tcp_op *w, void *out);
/* An allreduce, a reduce or a reducescatter in which each place reduces a part. */
berth_result tcp_direct_allreduce(struct tcp_op *w);
berth_result tcp_direct_reduce(struct tcp_op *w);
berth_result tcp_reducescatter(struct tcp_op *w);

/* Gives the parts of N ranks to all.  A rank has its own part in OUT already, where the
 * part belongs. */
berth_result tcp_share(struct tcp_op *w);
berth_result tcp_allgather(struct tcp_op *w);
berth_result tcp_broadcast(struct tcp_op *w);
berth_result tcp_alltoall(struct tcp_op *w);
berth_result tcp_gather(struct tcp_op *w);
berth_result tcp_scatter(struct tcp_op *w);

#endif
