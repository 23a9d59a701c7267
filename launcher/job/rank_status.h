/* rank_status.h - what ranks do in libberth, asked of their agents: for a rank that
 * waits long, for the rank status of Ctrl-\, for the report of a failure.
 *
 * Agents have 1 s to answer.  Reports of stalls are shown after 1 s, corrected by what
 * all agents say then: those with the same cause are one line.  Of the reports of one
 * host 1000 are shown in an epoch, so that a hostile agent cannot have all others asked
 * without end. */
#ifndef BERTH_LAUNCHER_JOB_RANK_STATUS_H
#define BERTH_LAUNCHER_JOB_RANK_STATUS_H

#include "launcher/job/rank_waits.h"
#include "launcher/output/events.h"
#include "launcher/output/output.h"

struct rank_status;

struct rank_status_uses {
	struct output *output;
	struct events *events;
	bool warns;   /* of stalls */
	bool *hinted; /* the user knows how to ask for the status of each rank */
	/* The agent of HOST still answers. */
	bool (*answers)(void *ctx, size_t host);
	void *ctx;
};

/* For acts.c: the status of epoch E. */
struct rank_status *rank_status_open(const struct epoch *e,
				     const struct rank_status_uses *uses);
void rank_status_free(struct rank_status *s); /* takes NULL */

/* Messages of agents: each function returns the fault of the message, or NULL.  S is
 * NULL, here and below, while no rank may run. */
const char *rank_status_stall(struct rank_status *s, const struct host *h,
			      const struct wire_stall *m);
const char *rank_status_op(struct rank_status *s, const struct host *h,
			   const struct wire_rank_op *m);
const char *rank_status_done(struct rank_status *s, const struct host *h);
const char *rank_status_missing_request(struct rank_status *s, const struct host *h,
					const struct wire_missing_request *m);

/* The last operation of RANK, as its agent said when it was asked last, or "". */
const char *rank_status_last(const struct rank_status *s, uint32_t rank);
/* Give WAITS, which is {0}, what is known of all ranks.  It is valid until the next
 * message. */
void rank_status_waits(const struct rank_status *s, struct rank_waits *waits);
/* RANK starts again: nothing is known of its operations. */
void rank_status_forget(struct rank_status *s, uint32_t rank);
/* When all agents have answered, or are late, FN is called with what the ranks wait
 * for.  It may be NULL. */
void rank_status_watch(struct rank_status *s,
		       void (*fn)(void *ctx, struct rank_waits *waits), void *ctx);
/* Ask all agents. */
void rank_status_look(struct rank_status *s);
/* Ask all agents, then print the status of each rank. */
void rank_status_print(struct rank_status *s);

#endif
