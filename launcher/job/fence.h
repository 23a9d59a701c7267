/* fence.h - what the ranks that use libberth need of the launcher when they initialise:
 * the host of each rank, one exchange of texts among all hosts for each init round
 * (wire.def), and news of losses.
 *
 * A rank that is to be in the next world waits until all that are left do; then it
 * begins, with an init round of its own number.  A rank that starts again while others
 * go on is a newcomer: the others do not wait for it.  They are told once it waits, and
 * it is in the world that they change to then, after them.
 *
 * A rank that dies is not waited for either: its agent says so before it has ended
 * (BOOT_DIED of boot.def).  How it ended comes by `exited`, as always.
 *
 * A round ends when each host in use has sent the texts of its ranks, or when a rank is
 * known not to come: then the hosts in the fence are told which rank that is.  Only
 * hosts that asked for the host map hear of losses, so jobs that do not use the library
 * cost nothing.  Of a host no more is kept than the texts of one round. */
#ifndef BERTH_LAUNCHER_JOB_FENCE_H
#define BERTH_LAUNCHER_JOB_FENCE_H

#include "launcher/job/exchange.h"

struct fence;

struct fence_events {
	/* a newcomer's first world begins, of RANKS */
	void (*back)(void *ctx, uint32_t rank, uint32_t ranks);
	/* a world begins without the ranks of HOST, which is to be left */
	void (*left)(void *ctx, uint32_t host);
};

/* For acts.c: the fence of epoch E, whose exchanges are X. */
struct fence *fence_open(const struct epoch *e, struct exchanges *x,
			 const struct fence_events *events, void *ctx);
void fence_free(struct fence *f); /* takes NULL */

/* H's ranks use the library.  True: this is new, and H has no host map yet. */
bool fence_uses(struct fence *f, const struct host *h);

/* Some host's do.  Takes NULL. */
bool fence_is_used(const struct fence *f);

/* Messages of agents: each function returns the fault of the message, or NULL.  F is
 * NULL, here and below, while no rank may run. */
const char *fence_change(struct fence *f, const struct host *h,
			 const struct wire_change *m);
const char *fence_lost(struct fence *f, const struct host *h,
		       const struct wire_lost *m);

const char *fence_elastic(struct fence *f, const struct host *h,
			  const struct wire_elastic *m);

/* May RANK, which has failed, start again while the others go on?  All others that
 * are left have said that they change their world then, and none has ended well: the
 * work is not about to be over.  Takes NULL. */
bool fence_can_replace(const struct fence *f, uint32_t rank);
/* May all ranks of HOST be lost so?  Takes NULL. */
bool fence_can_lose(const struct fence *f, uint32_t host);
/* Some rank that has not ended has said so.  Takes NULL. */
bool fence_any_is_elastic(const struct fence *f);
/* It does so.  All that its agent knew of its last life came before. */
void fence_rank_again(struct fence *f, uint32_t rank);
/* RANK[0..n) start on HOST, whose agent is new, and the others go on. */
void fence_host_came(struct fence *f, uint32_t host, const uint32_t *rank, uint32_t n);
/* The ranks of HOST are in no world after this one.  All are asked to change it. */
void fence_host_leaves(struct fence *f, uint32_t host);
/* RANK, or some rank, is a newcomer, and has been in no world.  Take NULL. */
bool fence_is_newcomer(const struct fence *f, uint32_t rank);
bool fence_has_newcomer(const struct fence *f);

/* A rank has ended.  All that its agent knew came before. */
void fence_rank_ended(struct fence *f, uint32_t rank);
/* A host is lost, and all ranks on it that did not end before. */
void fence_host_lost(struct fence *f, uint32_t host);

#endif
