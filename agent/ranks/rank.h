/* rank.h - the ranks of one job on this host, from exec to the last of their
 * descendants.
 *
 * A rank:   WAITING -> RUNNING -> EXITED       its main process ran, was reaped
 *           WAITING -> EXITED                  it could not be started
 *           EXITED -> CLEARING -> WAITING      it is to start again: first what it left
 *                                              is killed, and its output is sent
 *
 * The job:  RUN        ranks come and go; background children of an exited rank live on
 *           TERMED     `stop` came: TERM to main processes, KILL when the grace is over
 *           KILLING    no main process left, or no grace: KILL to the tree until it is
 *                      empty
 *           DRAINING   no process left: what the pipes still hold goes out, as credit
 *                      comes
 *           CLEARED    nothing is left
 *
 * ranks_settle() takes each step whose time has come; the loop calls it after every
 * turn. */
#ifndef BERTH_AGENT_RANKS_RANK_H
#define BERTH_AGENT_RANKS_RANK_H

#include "agent/pmi/server.h"
#include "agent/ranks/cgroup.h"
#include "agent/ranks/io.h"
#include "agent/ranks/late.h"
#include "agent/ranks/oom.h"
#include "agent/ranks/procs.h"
#include "agent/ranks/spawn.h"
#include "agent/ranks/stack.h"
#include "agent/ranks/stack_tool.h"
#include "agent/ranks/timeline.h"
#include "agent/ranks/warm.h"
#include "common/job.h"

enum rank_state { RANK_WAITING, RANK_RUNNING, RANK_EXITED, RANK_CLEARING };
enum ranks_phase {
	RANKS_RUN,
	RANKS_TERMED,
	RANKS_KILLING,
	RANKS_DRAINING,
	RANKS_CLEARED
};

struct rank {
	enum rank_state state;
	uint32_t rank;
	pid_t pid;
	uint32_t life;       /* 1, then one more with each start in this epoch */
	unsigned looks;      /* CLEARING: so far */
	bool killed;         /* by us: no OOM kill */
	uint64_t kill_at_ms; /* it hangs, and has got ABRT; or 0 */
	bool launched;       /* in a batch, as number slot */
	size_t slot;
	int warm;            /* the process of which it was asked, or -1 */
	uint64_t started_ms; /* if it was forked from that */
	struct io_rank io;
	struct io_log nccl; /* with JOB_NCCL_LOG */
	struct rank_timeline timeline;
	struct rank_stack stack;
	struct stack_tool tool;
};

struct ranks {
	struct buf *out; /* the agent's send queue */
	const struct wire_job *job;
	enum ranks_phase phase;
	struct rank *v; /* v[local rank] */
	size_t n, running;
	struct io io;
	struct oom oom;
	struct cgroup *cgroup; /* the owner's; NULL: none */
	struct cgroup_entry entry;
	struct event *emptied; /* KILLING: the cgroup may be empty */
	struct server *server; /* the owner's: it hears of exits; or NULL */
	struct warm *warm;     /* the owner's, or NULL */
	int bind_errno;        /* of a rank that could not be bound, or 0 */
	struct event *timer;
	struct event *hung; /* hung.h; or NULL */
	struct event *dump; /* dump.h; or NULL */
	struct stack_hook stacks;
	struct late late;
	uint64_t kill_at_ms; /* TERMED: 0 for never */
	/* RUN: `stop` has come and is delayed until then, for exits that are near */
	uint64_t stop_delayed_ms;
	uint32_t grace_ms;          /* of the delayed stop */
	uint64_t look_ms, pause_ms; /* KILLING: next look at the tree, then pause */
	unsigned looks;             /* KILLING: so far */
	bool blind;                 /* the last look at the tree failed */
	bool alone;                 /* KILLING: wait says that we have no child */
	struct str which;           /* unkillable processes */
	uint32_t unkillable;        /* how many */
};

/* The ranks of JOB, none started.  BASE, OUT and JOB must outlive R. */
void ranks_begin(struct ranks *r, struct event_base *base, struct buf *out,
		 const struct wire_job *job);
/* The ranks will run in a cgroup of their own, C, if this process may make it. */
void ranks_enclose(struct ranks *r, struct cgroup *c);
/* After spawn_batch_wait(): they run without one, if BATCH could not begin there. */
void ranks_enclosed(struct ranks *r, const struct spawn_batch *batch);
/* The path of NCCL's log of local rank LOCAL, opened for this life; NULL: the job does
 * not ask for it. */
const char *ranks_nccl_log(struct ranks *r, size_t local);
/* Open local rank LOCAL's streams and add it to BATCH; S->fd is filled in here. */
void ranks_start(struct ranks *r, size_t local, struct spawn_batch *batch,
		 struct spawn *s);
/* Ask warm process P for local rank LOCAL.  False: it is to be started by
 * ranks_start(). */
bool ranks_ask(struct ranks *r, size_t local, int p, struct spawn *s);
/* It runs as PID, unbound if BIND_ERRNO is not 0.  Sends `started`. */
void ranks_forked(struct ranks *r, size_t local, pid_t pid, int bind_errno);
/* After spawn_batch_wait(), in the order of starting: sends `started`, or `exited` with
 * the error. */
void ranks_started(struct ranks *r, size_t local, struct spawn_batch *batch);
/* Is there a rank of which it is not known yet how it starts? */
bool ranks_wait(const struct ranks *r);
/* Local rank LOCAL can't be started: E.  Sends `exited`. */
void ranks_fail(struct ranks *r, size_t local, const struct err *e);

/* Local rank LOCAL, which has exited, is to start again, for life LIFE.  JOINS: it
 * comes to the next world of those that go on. */
void ranks_clear(struct ranks *r, size_t local, uint32_t life, bool joins);
/* A local rank that starts again and of whose last life nothing is left; or -1.  To be
 * called after each turn of the loop: it goes on with those that are cleared. */
long ranks_cleared(struct ranks *r);

/* SIGCHLD: reap ranks and orphans, send `exited`. */
void ranks_reap(struct ranks *r);
/* SIGNO to main processes (of a shell: to its children too), or to all descendants. */
void ranks_signal(struct ranks *r, int signo, bool tree);
/* SIGNO to the main process of local rank LOCAL. */
void ranks_signal_one(const struct ranks *r, size_t local, int signo);
/* P is one of a shell. */
bool ranks_is_shell(const struct proc *p);
/* The user's terminal is of SIZE: so are the ptys, now and later.  The ranks hear of it
 * by SIGWINCH. */
void ranks_window(struct ranks *r, const struct winsize *size);
/* `stop`: see wire.def.  May come again with another grace. */
void ranks_stop(struct ranks *r, uint32_t grace_ms);
void ranks_settle(struct ranks *r);

void ranks_free(struct ranks *r);

#endif
