/* tcp_way.h - what the rooms of tcp.h share: tcp.c (joining, messages, agreement),
 * tcp_probe.c,
 * tcp_reduce.c and tcp_move.c. */
#ifndef BERTH_LIB_TCP_WAY_H
#define BERTH_LIB_TCP_WAY_H

#include "lib/kern.h"
#include "lib/tcp.h"
#include "lib/tune.h"

struct tcp {
	struct net *net;
	uint32_t group, seq, step;
	unsigned n, me;
	unsigned *rank;
	struct tcp_heard heard;
	struct tune_numbers numbers;
	bool probed;
	char *texts;
	unsigned other; /* who differs, or is gone */
	bool has_other, broken;
	berth_result why;
};

/* One operation on its way. */
struct way {
	struct tcp *t;
	const struct coll *c;
	kern_reduce *reduce;
	size_t size;
	uint64_t deadline_ns;
	unsigned lanes; /* of large messages */
	bool hears;     /* messages of tcp_trade() carry the agreement */
};

/* One side of an exchange. */
struct leg {
	unsigned place;
	const void *data; /* what goes, or what is reduced with what comes */
	void *dst;        /* of what comes */
	uint64_t bytes;
	bool reduces, behind; /* see net.h */
};

struct way tcp_way(struct tcp *t, const struct coll *c, uint64_t deadline_ns);

/* For good: the group is broken, and the net with it. */
berth_result tcp_fail(struct tcp *t, berth_result rc, unsigned lost);

/* OUT goes, IN comes, at the same time; either may be NULL. */
berth_result tcp_exchange(struct way *w, const struct leg *out, const struct leg *in);
/* The same to and from one place, with what ranks have heard if W->hears: then these
 * messages go even if empty, and without data once ranks are known to differ. */
berth_result tcp_trade(struct way *w, const struct leg *out, const struct leg *in);

/* N bytes at OUT to place TO while M bytes come from place FROM to IN. */
berth_result tcp_swap(struct way *w, unsigned to, const void *out, uint64_t n,
		      unsigned from, void *in, uint64_t m);
/* The same, but what comes is reduced with OWN into DST. */
berth_result tcp_swap_reduce(struct way *w, unsigned to, const void *out, uint64_t n,
			     unsigned from, void *dst, const void *own, uint64_t m);

static inline bool tcp_differs(const struct tcp *t)
{
	return t->heard.low != t->heard.high;
}

/* An agreement, and (WAY is not TUNE_WAYS) the allreduce that it travels with if
 * W->hears.  The caller looks at tcp_differs(). */
berth_result tcp_round(struct way *w, enum tune_way way);

/* The greatest power of 2 that is no more than N. */
unsigned tcp_power(unsigned n);
/* Bytes in front of part I of N of the operation's elements. */
uint64_t tcp_bound(const struct way *w, unsigned n, unsigned i);

/* Measures T's numbers, the same on all ranks: some 6 agreements, and 128 KiB twice. */
berth_result tcp_probe(struct tcp *t, uint64_t deadline_ns);

berth_result tcp_reduce(struct way *w);
berth_result tcp_reducescatter(struct way *w);

/* Parts of N ranks, each at its place in OUT of that rank, to all. */
berth_result tcp_share(struct way *w);
berth_result tcp_allgather(struct way *w);
berth_result tcp_broadcast(struct way *w);
berth_result tcp_alltoall(struct way *w);

#endif
