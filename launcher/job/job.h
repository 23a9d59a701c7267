/* job.h - the record of one job: its hosts, its plan, its ranks, and where it stands.
 *
 * run.c runs it: phase.h decides, acts.h acts.  Each part below belongs to the module
 * that its comment names; the others read it.  Frames of agents (messages.h), signals
 * (signals.h) and timers only update the record. */
#ifndef BERTH_LAUNCHER_JOB_JOB_H
#define BERTH_LAUNCHER_JOB_JOB_H

#include "launcher/hosts/agents.h"
#include "launcher/hosts/select.h"
#include "launcher/job/check_lines.h"
#include "launcher/job/epoch.h"
#include "launcher/job/map.h"
#include "launcher/job/rank.h"
#include "launcher/job/summary.h"
#include "launcher/output/events.h"
#include "launcher/output/input.h"
#include "launcher/output/output.h"
#include "launcher/request.h"

struct job;

/* phase.h has what leads from one to the next. */
enum job_phase {
	JOB_STAY, /* in the table: no change */
	JOB_LAUNCH,
	JOB_PLACE,
	JOB_CHECK, /* --check: what would a start meet? */
	JOB_RUN,
	JOB_FAIL, /* a rank failed: which failure was the first? */
	JOB_STOP,
	JOB_DRAIN,
	JOB_WAIT, /* for hosts that the next epoch needs */
	JOB_CLOSE,
	JOB_DONE
};

/* How far one host has come in this epoch. */
enum host_phase {
	RUN_NONE,     /* no agent was asked for; in the table: that cannot be */
	RUN_STARTING, /* no hello yet */
	RUN_TRYING,   /* its agent listens; --health-check runs */
	RUN_PLACING,  /* it may have ranks */
	RUN_PLACED,   /* each of its ranks has a berth */
	RUN_CHECKED,  /* it sent check_done */
	RUN_STOPPED,  /* it acknowledged a `stop` of this epoch */
	RUN_CLEARED,  /* no process of the job is left there */
	RUN_LEAVING,  /* its agent was told to end */
	RUN_LEFT,     /* its agent has ended as it should */
	RUN_GONE,     /* lost, in this epoch */
	RUN_DROPPED,  /* lost, in an earlier epoch */
	RUN_PHASES
};

/* The state of one host in the job, beside its agent. */
struct host_run {
	/* These outlast an epoch, up to blocked_ms. */
	enum host_phase phase;  /* only phase_host() assigns it */
	bool unconfirmed;       /* gone, and may still have processes of the job */
	uint32_t unkillable;    /* processes its agent could not end: it is not clean */
	bool unnamed;           /* the script names it no more, or: */
	bool dismissed;         /* its agent got SIGTERM */
	uint32_t losses;        /* how often it was lost */
	uint64_t blocked_ms;    /* until clock_ms() is so much it is not tried again */
	uint32_t mpi;           /* bits of enum mpi_found */
	bool leaves;            /* its ranks end, and those of other hosts go on */
	size_t credit;          /* bytes that left here and are not yet credited */
	size_t window;          /* bytes of output that it may still send */
	uint64_t overdue_bytes; /* of output since job.overdue */
	uint32_t check_rows;    /* that it sent */
	uint32_t berths, notes; /* how many it has told */
	size_t said_bytes;      /* of its frames that are kept */
	char *idle, *certificate;
	char *drawing;   /* --plan=svg: XML for lstopo, or NULL */
	uint32_t *ports; /* --tf-config: ports[local rank], that its agent holds */
	/* Why a program cannot run there, ERR_NONE if all can; the first rank of it. */
	enum err_id cannot;
	uint32_t cannot_rank;
	char *cannot_text, *cannot_hint;
};

/* cleanup.h */
struct cleanup {
	struct agents agents; /* one for each host of the job; none before the first */
	size_t running;       /* of them */
	uint64_t until_ms; /* clock_ms() after which no answer is worth waiting for */
};

/* job_spec.h: what hosts are told */
struct job_spec {
	char job_id[33];                   /* BERTH_JOB: random hexadecimal digits */
	unsigned char key[WIRE_KEY_BYTES]; /* of the epoch */
	char nspace[40];                   /* of PMIx: of the epoch, random */
	bool own_names;    /* PMIx knows hosts by their own names, which all differ */
	char *master_addr; /* NULL until the epoch's job was sent */
	uint32_t master_port;
	enum gpu_visible visible;
	char *visible_why;   /* file:line that decided, or the option */
	size_t credit_bytes; /* output that each host may send in advance */
	char *cwd;
	char *python;    /* runner's own, of common/package.h; or "" */
	uint64_t nofile; /* the user's soft limit, before runner raised its own */
	bool managed;    /* inside a resource manager's job */
	bool tf_config;  /* agents hold a port for each rank */
	/* job_spec_read() sets: */
	struct strv *app_env; /* of each app: --export, --env-file and -x */
	size_t napps;
	struct strv gpus; /* --gpus, or a CUDA_VISIBLE_DEVICES of -x; or none */
};

/* signals.h */
struct signals {
	struct event *watch[10];
	void (*on_signal)(struct job *j, int signo);
	uint64_t pause_by_ms; /* ^Z: runner stops itself then at the latest */
	int last;             /* of INT, TERM and HUP */
	bool said;            /* the user has been told of a TERM or HUP */
	uint64_t told_ms; /* an agent last said that Slurm sent it TERM; 0: none did */
	int interrupts;   /* ^C so far */
	uint64_t quit_ms; /* clock_ms() of the last Ctrl-\ that asked for a table */
};

/* The modules that serve the ranks of one epoch, while ranks may run. */
struct services {
	struct exchanges *exchanges;
	struct fence *fence;
	struct names *names;
	struct rank_status *status;
	struct hang *hang;
};

/* growth.h: hosts that come and go */
struct growth {
	struct discovery *script; /* NULL: the list of hosts does not change */
	bool script_failed;       /* the last time */
	struct event *tick;       /* NULL: the number of ranks is fixed */
	bool resizes;      /* the next epoch is for other hosts, and is no restart */
	bool lacks_hosts;  /* for --min-np */
	uint32_t left_out; /* ranks of this epoch */
};

struct job {
	const struct request *request;
	struct event_base *base;

	/* where it stands: run.c */
	enum job_phase phase;
	size_t awaited;       /* answers, or ends of ranks, that the phase awaits */
	uint64_t deadline_ms; /* clock_ms() at which it has waited too long; 0: none */
	uint64_t limit_ms;    /* the same, of --timeout */
	uint32_t grace_ms;    /* of the last `stop` */
	uint32_t epoch;       /* 1, then one more with each restart */
	bool ran;             /* ranks were started, in whichever epoch */
	bool timed_out, unread, disk_failed;
	bool refused;    /* an act failed; err says why, or it has been said */
	bool unread_new; /* unread, and no event yet */
	bool overdue;    /* hosts should have cleared, but output waits for a reader */
	int signo;       /* first of INT, TERM, HUP that counts for the status */
	int grace_signo; /* the signal whose grace runs; 0: none does */
	struct event *timer; /* the next thing that happens if nothing else does */
	struct err err;      /* why the job cannot go on */

	/* its hosts */
	struct agents agents;
	struct host_run *run;    /* run[0..agents.n) */
	struct selection source; /* where they and their slots came from */
	bool lost;               /* a host that was needed was lost, in this epoch */
	struct cleanup cleanup;
	struct growth growth;
	struct check_items checks; /* of --check, so far */

	/* its ranks */
	struct plan plan;
	struct rank *rank;      /* rank[0..plan.np) */
	uint32_t ended, failed; /* ranks of this epoch */
	uint32_t unstarted; /* told to start, and not yet known to run or to be over */
	struct job_spec spec;
	struct services serves; /* its epoch */
	bool status_hinted;     /* the user knows how to ask for the ranks' status */
	struct account account; /* for --summary */

	/* bytes between the user and the ranks */
	struct output *output; /* once ranks were started */
	struct input *input;
	struct events *events;
	struct progress *progress; /* while agents start */
	struct signals signals;
};

/* A job for R, which must outlive it, on HOSTS, which it takes over.  E: why
 * there are none, or NULL.  From now on, signals are its events. */
void job_open(struct job *j, const struct request *r, const struct selection *hosts,
	      const struct err *e);
/* From the hosts to their end: returns phase_status().  All errors have been said. */
int job_run(struct job *j);
void job_free(struct job *j);

/* ---- the steps of job_run(), for tests ---- */

/* The first phase. */
void job_begin(struct job *j);
/* Does what the record says is due, until nothing is. */
void job_turn(struct job *j);
/* Run the loop until J is in PHASE or in a later one. */
void job_until(struct job *j, enum job_phase phase);
/* After JOB_DONE: the last words, and phase_status(). */
int job_finish(struct job *j);
/* SIGNO came. */
void job_signal(struct job *j, int signo);

/* ---- for the modules of this room ---- */

static inline uint32_t job_index(const struct job *j, const struct host *h)
{
	return (uint32_t)(h - j->agents.host);
}

/* The name of H for PMIx. */
static inline const char *job_own_name(const struct job *j, const struct host *h)
{
	return j->spec.own_names && h->own ? h->own : h->name;
}

/* HOST has a rank, or may get one. */
static inline bool job_needs(const struct job *j, size_t host)
{
	return !j->plan.np ||
	       (host < j->plan.nhosts && j->plan.node[host] != PLAN_UNUSED);
}

/* As modules see it that serve the ranks of this epoch alone. */
static inline struct epoch job_epoch(const struct job *j)
{
	const uint32_t most = (uint32_t)j->request->growing.max_np;

	return (struct epoch){ j->base,       &j->agents,
			       &j->plan,      j->rank,
			       j->epoch,      most > j->plan.np ? most : j->plan.np,
			       j->agents.most };
}

static inline bool job_reaches(const struct job *j, size_t host)
{
	const struct epoch e = job_epoch(j);

	return epoch_reaches(&e, host);
}

/* RANK serves others, and is ended once they have: a `ps` of --tf-config. */
static inline bool job_serves(const struct job *j, uint32_t rank)
{
	return j->request->env.tf_config &&
	       j->request->app[j->plan.rank[rank].app].tf_role == TF_PS;
}

static inline bool job_has_rank(const struct job *j, const struct host *h,
				uint32_t rank)
{
	const struct epoch e = job_epoch(j);

	return j->rank && epoch_has_rank(&e, h, rank);
}

#endif
