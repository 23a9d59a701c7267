/* exchange.h - bytes that hosts exchange through the launcher (wire.def): each host
 * with a rank that takes part gives some, and when all have, each gets what all gave,
 * in the order of hosts.
 *
 * Several run at a time, of all ranks or of some.  An exchange is known by its use, the
 * list of its ranks, and a number.  The launcher knows nothing of the bytes: it holds
 * them until all have come, and sends them on as fast as the hosts take them.
 *
 * If a rank that takes part has ended, the exchange can never be complete: the hosts
 * that gave something are told 2 s later.  Before, the job has ended their ranks, and
 * these do not speak of it.  In those of libberth, fence.h says which host waits in
 * vain, and tells it.
 *
 * Ranks in MPI_Init may wait for one that has ended before they give anything: in
 * memory that they share, or in a library that does not tell.  If they are still there
 * 5 s later, the first exchange of all ranks fails in the same way. */
#ifndef BERTH_LAUNCHER_JOB_EXCHANGE_H
#define BERTH_LAUNCHER_JOB_EXCHANGE_H

#include "launcher/job/epoch.h"

struct exchanges;

struct exchange {
	uint32_t use, *rank;     /* ascending */
	size_t nranks;           /* 0: all ranks */
	uint64_t number, serial; /* SERIAL: once it is complete */
	struct giver *giver;     /* in the order of hosts */
	size_t ngivers, ngave;
	bool failed;    /* a rank never comes */
	struct buf all; /* what all gave, while givers from NEXT on wait for it */
	size_t next;
	struct exchange *following;
};

/* HOST, which has given all it has to E, waits in vain, and has been told. */
typedef bool exchange_refuses(void *ctx, const struct exchange *e, uint32_t host);

/* The exchanges of libberth have a rule of their own: a host gives to one at a time. */
struct exchange_policy {
	void *ctx;
	/* May HOST give M?  FIRST: it is its first part.  What is wrong, or NULL: *MOST
	 * bytes are the most, in all parts. */
	const char *(*takes)(void *ctx, uint32_t host, const struct wire_exchange *m,
			     bool first, size_t *most);
	/* HOST has given DATA: what is wrong with it, or NULL. */
	const char *(*gave)(void *ctx, uint32_t host, const struct exchange *e,
			    const struct buf *data);
	exchange_refuses *refuses;
};

/* For acts.c: the exchanges of epoch E.  MISSED is called if RANK has ended and others
 * wait for it; maybe more than once. */
struct exchanges *exchanges_open(const struct epoch *e,
				 void (*missed)(void *ctx, uint32_t rank), void *ctx);
void exchanges_free(struct exchanges *x); /* takes NULL */
void exchanges_of_init(struct exchanges *x, const struct exchange_policy *policy);

/* Messages of an agent: what is wrong, or NULL.  X is NULL, here and below, while no
 * rank may run. */
const char *exchange_take(struct exchanges *x, struct host *h,
			  const struct wire_exchange *m);
const char *exchange_absent(struct exchanges *x, struct host *h,
			    const struct wire_absent *m);
/* Forget what hosts gave to those of libberth if REFUSES says so of it. */
void exchange_forget(struct exchanges *x, exchange_refuses *refuses, void *ctx);
/* RANK has ended.  Those of libberth are fence.h's. */
void exchange_rank_ended(struct exchanges *x, uint32_t rank);

#endif
