/* rank.h - the ranks of one job on this host, from exec to the last of their
 * descendants.
 *
 * A rank:   WAITING -> RUNNING -> ENDED        its main process ran, was reaped
 *           WAITING -> ENDED                   it could not be started
 *
 * The job:  RUN        ranks come and go; background children of an ended rank live on
 *           TERMED     `end` came: TERM to main processes, KILL when the grace is over
 *           KILLING    no main process left, or no grace: KILL to the tree until there
 *                      is none
 *           DRAINING   no process left: what the pipes still hold goes out, as credit
 *                      comes
 *           GONE       nothing is left
 *
 * ranks_settle() takes each step whose time has come; the loop calls it after every
 * turn. */
#ifndef BERTH_AGENT_RANKS_RANK_H
#define BERTH_AGENT_RANKS_RANK_H

#include "agent/ranks/io.h"
#include "agent/ranks/oom.h"
#include "agent/pmi/server.h"
#include "agent/ranks/spawn.h"
#include "common/job.h"

enum rank_state { RANK_WAITING, RANK_RUNNING, RANK_ENDED };
enum ranks_phase { RANKS_RUN, RANKS_TERMED, RANKS_KILLING, RANKS_DRAINING, RANKS_GONE };

struct rank {
	enum rank_state state;
	uint32_t rank;
	pid_t pid;
	bool killed;   /* by us: no OOM kill */
	bool launched; /* in a batch, as number slot */
	size_t slot;
	struct io_rank io;
};

struct ranks {
	struct event_base *base;
	struct buf *out; /* the session's send queue */
	uint32_t epoch;
	enum ranks_phase phase;
	struct rank *v; /* v[local rank] */
	size_t n, running;
	struct io io;
	struct oom oom;
	struct server *server; /* the owner's: it hears of endings; or NULL */
	struct event *timer;
	uint64_t kill_at_ms; /* TERMED: 0 for never */
	uint64_t held_ms; /* RUN: `end` has come and waits so long for failing ranks */
	uint32_t held_grace_ms;
	uint64_t look_ms, pause_ms; /* KILLING: next look at the tree, then pause */
	unsigned looks;             /* KILLING: so far */
	size_t launched;            /* in the batch so far */
	bool blind;                 /* the last look at the tree failed */
	bool alone;                 /* KILLING: wait says that we have no child */
	struct str which;           /* processes that could not be ended */
	uint32_t left;
	bool pty;
	uint32_t stdin_rank;
};

/* The ranks of JOB, none started.  BASE and OUT must outlive R. */
void ranks_begin(struct ranks *r, struct event_base *base, struct buf *out,
		 const struct wire_job *job);
/* Open local rank LOCAL's streams and add it to BATCH; S->fd is filled in here. */
void ranks_start(struct ranks *r, size_t local, struct spawn_batch *batch,
		 struct spawn *s);
/* After spawn_batch_wait(), in the order of starting: sends `started`, or `ended` with
 * the error.  Returns 0, or the errno with which binding failed. */
int ranks_started(struct ranks *r, size_t local, struct spawn_batch *batch);
/* Local rank LOCAL can't be started: E.  Sends `ended`. */
void ranks_fail(struct ranks *r, size_t local, const struct err *e);
/* Tell the launcher how much input it may send; after the last start. */
void ranks_grant(struct ranks *r);

/* SIGCHLD: reap ranks and orphans, send `ended`. */
void ranks_reap(struct ranks *r);
/* SIGNO to main processes (of a shell: to its children too), or to all descendants. */
void ranks_signal(struct ranks *r, int signo, bool tree);
/* `end`: see wire.def.  May come again with another grace. */
void ranks_end(struct ranks *r, uint32_t grace_ms);
void ranks_settle(struct ranks *r);

void ranks_free(struct ranks *r);

#endif
