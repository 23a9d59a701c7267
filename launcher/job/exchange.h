/* exchange.h - bytes that hosts exchange through the launcher (wire.def): each host
 * with a rank that takes part gives some, and when all have, each gets what all gave,
 * in the order of hosts.
 *
 * Several run at a time, of all ranks or of some.  An exchange is known by its use, the
 * list of its ranks, and a number.  The launcher knows nothing of the bytes: it holds
 * them until all have come, and sends them on as fast as the hosts take them. */
#ifndef BERTH_LAUNCHER_JOB_EXCHANGE_H
#define BERTH_LAUNCHER_JOB_EXCHANGE_H

#include "launcher/job/job.h"

struct exchanges;

/* What one host gives. */
struct giver {
	uint32_t host;
	bool gave; /* all of it has come */
	struct buf data;
};

struct exchange {
	uint32_t use, *rank;     /* ascending */
	size_t nranks;           /* 0: all ranks */
	uint64_t number, serial; /* SERIAL: once it is complete */
	struct giver *giver;     /* in the order of hosts */
	size_t ngivers, ngave;
	struct buf all; /* what all gave, while givers from NEXT on wait for it */
	size_t next;
	struct exchange *following;
};

/* Of one epoch: for acts.c. */
struct exchanges *exchanges_open(struct job *j);
void exchanges_free(struct exchanges *x); /* takes NULL */

/* A message of an agent, of a use other than EXCHANGE_INIT: what is wrong, or NULL. */
const char *exchange_take(struct job *j, struct host *h, const struct wire_exchange *m);
/* A part of what H gives, of MOST bytes in all.  What is wrong with it, or NULL: *E and
 * *GIVER are where it stands; if giver->gave, the caller settles. */
const char *exchange_part(struct job *j, struct host *h, const struct wire_exchange *m,
			  size_t most, struct exchange **e, struct giver **giver);
/* Has HOST given something? */
bool exchange_has(const struct exchange *e, uint32_t host);
/* If all hosts have given, they get what all gave, and E is over. */
void exchange_settle(struct job *j, struct exchange *e);
/* As if G had given nothing. */
void exchange_forget(struct exchange *e, struct giver *g);
/* E is over if nobody has given anything. */
void exchange_drop_if_empty(struct job *j, struct exchange *e);

/* Those of USE that wait for hosts: the first, and the one after E; NULL: no more. */
struct exchange *exchange_first(const struct job *j, uint32_t use);
struct exchange *exchange_after(const struct exchange *e);

/* What RANK takes part in can never be complete: the hosts that wait in one are told,
 * but for those of libberth, whose losses are fence.h's.  RANK has failed then, also if
 * its status is 0. */
void exchange_rank_ended(struct job *j, uint32_t rank);

#endif
