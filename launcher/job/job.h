/* session.h - one run of a job: its hosts, its plan, its ranks, from hello to gone.
 *
 * The steps block, running the event loop until they are done, and main.c calls them in
 * order.  In between frames, signals and timers change the state here.  Each step
 * returns 0, or -1 when the job can't go on; s->err then says why (already printed are
 * only errors of several hosts).  Files: session.c (steps), jobs.c (job
 * frames), frames.c (what agents say), stop.c (failures, signals, the end),
 * restart.c (the next epoch), broom.c (hosts whose stream was lost), world.c and
 * look.c (ranks that use libberth). */
#ifndef BERTH_LAUNCHER_JOB_JOB_H
#define BERTH_LAUNCHER_JOB_JOB_H

#include "launcher/output/events.h"
#include "launcher/hosts/agents.h"
#include "launcher/output/input.h"
#include "launcher/job/map.h"
#include "launcher/job/outcome.h"
#include "launcher/output/output.h"
#include "launcher/request.h"

enum rank_state { RANK_WAITING, RANK_RUNNING, RANK_ENDED };

/* What is known of one rank. */
struct rank {
	enum rank_state state;
	uint32_t pid;
	struct ending ending;
	bool late; /* ended after its agent had heard that the job ends: no cause */
	/* its berth */
	char *gpu, *gpu_name, *cpus, *bound, *numa, *visible,
		*why; /* bound: read back */
	uint32_t gpu_index;
	uint32_t *shared;
	size_t nshared;
	/* why it never ran, or was out of memory */
	char *text, *hint;
	struct rank_op *doing; /* in libberth, when it was asked last; or NULL */
};

enum phase {
	PHASE_START, /* agents are started, ranks placed */
	PHASE_RUN,
	PHASE_CAUSE, /* a rank failed: which came first? */
	PHASE_STOP,  /* the agents end what is left */
	PHASE_LEAVE, /* no rank is left where an agent is; lost hosts are swept */
	PHASE_OVER
};

/* Per host, what only a session knows. */
struct host_run {
	bool placed, gone;
	bool ending;            /* it answered the last `end` */
	bool stopping;          /* it answered the first */
	bool unconfirmed;       /* it may still have processes of the job */
	bool dropped;           /* lost, or not clean, in an earlier epoch */
	uint32_t left;          /* processes its agent could not end */
	size_t credit;          /* bytes that left here and are not yet credited */
	size_t window;          /* bytes of output that it may still send */
	uint64_t overdue_bytes; /* of output since session.overdue */
	uint32_t berths, notes; /* how many it has told */
	size_t said;            /* bytes of all it told, output apart */
	char *idle, *certificate;
};

struct session {
	const struct request *request;
	struct event_base *base;
	struct agents agents;
	struct agents cleanup; /* agents that sweep hosts whose stream was lost */
	char *slots_from;      /* where slots came from, for messages */
	struct plan plan;
	struct rank *rank;    /* rank[0..plan.np) */
	struct host_run *run; /* run[0..agents.n) */
	struct output *output;
	struct input *input;
	struct events *events;
	struct progress *progress;         /* while agents start */
	char job_id[33];                   /* BERTH_JOB */
	unsigned char key[WIRE_KEY_BYTES]; /* of the epoch */
	struct fence *world;               /* of the epoch, while ranks may run */
	struct rank_status *look;          /* while agents are asked what ranks do */
	uint32_t epoch;                    /* 1, then one more with each restart */
	char *master_addr;
	uint32_t master_port;
	enum gpu_visible visible;
	char *visible_why;   /* file:line that decided */
	size_t credit_bytes; /* window of each host */

	enum phase phase;
	size_t waited_for;      /* the host that session_waits() found last */
	uint32_t ended, failed; /* ranks */
	bool lost;              /* a host was lost */
	bool timed_out, unread, disk_failed;
	bool overdue; /* agents should be done, but output still waits for a reader */
	int signo;    /* first of INT, TERM, HUP that a user sent; 0: none */
	int interrupts;
	uint64_t pause_by_ms; /* ^Z: stop ourselves then at the latest */
	uint64_t begin_ns;
	uint64_t nofile; /* soft limit before runner raised its own */
	char *cwd;
	struct event *watch[10]; /* signals */
	struct event *timer;     /* the next thing that happens if nothing else does */
	struct event *time_limit;
	struct err err;
};

/* N bytes that nobody can guess. */
void session_random(void *bytes, size_t n);
/* The loop, the signals, the random names. */
void session_open(struct session *s, const struct request *r);
/* Start an agent on every host that is needed and wait for each hello. */
int session_gather(struct session *s);
/* Which rank on which host, and the rendezvous. */
int session_map(struct session *s);
/* Send the job, get a berth for every rank. */
int session_place(struct session *s);
/* Exec the ranks and bring them to their end. */
int session_run(struct session *s);
/* Let every agent go and wait for it; says who did not confirm. */
void session_leave(struct session *s);
/* Exit status of runner; after a signal that must end it, raises that signal. */
int session_status(struct session *s);
void session_free(struct session *s);

/* ---- between session.c, jobs.c, frames.c and stop.c ---- */

/* What frames and lost hosts mean (frames.c). */
extern const struct agents_events session_agents_events;

/* Run the loop until DONE(s) holds, or the phase is PHASE_OVER. */
void session_until(struct session *s, bool (*done)(struct session *s));
/* Whether PENDING holds for any host.  The search goes on from the host it found last:
 * N hosts that answer one by one cost N looks, not N at each event, which took 0.12 s
 * of CPU time for each wait for 9500 hosts, and four times that for twice as many. */
bool session_waits(struct session *s,
		   bool (*pending)(const struct session *s, size_t host));
/* Call stop_on_timer() in MS milliseconds, and not before. */
void session_timer(struct session *s, uint64_t ms);
/* Has a rank on it, or may get one. */
bool session_needs(const struct session *s, size_t host);
uint32_t session_index(const struct session *s, const struct host *h);
/* Index of the rank whose ending is the cause, or -1. */
long session_cause(const struct session *s);

/* NP ranks on the hosts that are not lost, into PLAN.  0, or -1 with E. */
int session_plan(const struct session *s, struct plan *plan, uint32_t np,
		 struct err *e);
/* An agent on each host that is needed and has none; 0 when all are up. */
int session_start_agents(struct session *s);
/* Send the job and wait until all ranks have a berth; 0 when they have. */
int session_ask_places(struct session *s);
bool session_run_over(struct session *s);
/* What is known of the ranks and of their hosts' answers goes. */
void session_forget_ranks(struct session *s);

/* What failed shall be started again. */
bool restart_wanted(const struct session *s);
/* If so, start the next epoch, up to its berths.  False: the job is over. */
bool restart_ranks(struct session *s);

/* Fill in the rendezvous and the credit window, and send app and job frames. */
int job_spec_send(struct session *s);

/* Send SIGNO to the ranks' main processes, or to their whole trees. */
void session_signal_ranks(struct session *s, int signo, bool tree);
/* A host's stream was lost with ranks on it: clean it over a new one (broom.c). */
void cleanup_send(struct session *s, const struct host *lost);
/* Each of them is clean, or won't be. */
bool cleanup_done(const struct session *s);
/* Until then, at most: 6 s from the last loss on. */
uint64_t cleanup_patience_ms(const struct session *s);
void stop_on_failure(struct session *s);           /* a rank or host failed */
void stop_on_signal(struct session *s, int signo); /* a signal came to runner */
void stop_on_timer(struct session *s);
void stop_on_ending(struct session *s); /* an agent answered `end` */
void stop_ended(struct session *s);     /* every rank has ended */
void stop_ranks(struct session *s, uint32_t grace_ms);
void stop_time_limit(struct session *s);
void stop_now(struct session *s);
bool stop_all_gone(struct session *s);
/* Every rank had ended well, then a host was lost: nobody has said so yet. */
bool stop_lost_late(const struct session *s);

#endif
