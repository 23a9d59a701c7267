/* phase.h - pure: the phases of a job, and what leads from one to the next.
 *
 * A phase awaits answers of hosts, ends of ranks, or output, for a limited time.  Input
 * only updates the record (job.h).  After each turn of the event loop phase_due() says
 * which event the record amounts to, and phase_step() says what it leads to: the next
 * phase and one act.  Only run.c assigns the phase.
 *
 *   phase   awaits, of each host that it told    at most
 *   LAUNCH  hello, of each host that is needed   --start-timeout and 0.5 s
 *           healthy, with --health-check         --start-timeout more
 *   PLACE   placed                               the same
 *   CHECK   check_done (--check alone)           --start-timeout and 2 s
 *   RUN     the end of each rank                 the grace after a signal
 *   FAIL    stop_ack                             0.8 s
 *   STOP    cleared                              the grace and 7 s
 *   DRAIN   that the output is written           -
 *   WAIT    hosts, if too few are left           --elastic-timeout
 *   CLOSE   the end of its stream, and cleanups  3 s, cleanups 6 s
 *
 * Each host has a phase of its own, with a table of its own: the phase of the job
 * awaits those hosts that have come so far and no farther (phase_awaits()).
 *
 * Source: s6-supervise (one table, state x event, one deadline) and OpenSSH's nchan.c
 * (events change states, actions never do). */
#ifndef BERTH_LAUNCHER_JOB_PHASE_H
#define BERTH_LAUNCHER_JOB_PHASE_H

#include "launcher/job/job.h"

enum host_event {
	RUN_EV_START, /* its agent is started */
	/* frames of these names */
	RUN_EV_HELLO,
	RUN_EV_HEALTHY, /* or there is no --health-check */
	RUN_EV_PLACED,
	RUN_EV_CHECKED,
	RUN_EV_STOP_ACK,
	RUN_EV_CLEARED,
	/* its agent is told to end; it has, or is lost */
	RUN_EV_LEAVE,
	RUN_EV_CLOSED,
	RUN_EV_LOST,
	RUN_EV_EPOCH, /* the next one begins */
	RUN_EV_RETRY, /* it was lost, and may be there again */
	RUN_EVENTS
};

enum job_event {
	EV_NONE,
	EV_ALL,     /* all that the phase awaits is there */
	EV_SHORT,   /* all is there, but a host that is needed was lost */
	EV_PLANNED, /* all is there, and --plan asks for no more */
	EV_CHECK,   /* all is there, or lost, and --check asks for another answer */
	EV_AGAIN,   /* all is there, and all ranks shall start again */
	EV_LATE,    /* the deadline passed */
	EV_FAILED,  /* a rank or host failed, and that ends the job */
	EV_RESIZE,  /* the hosts are others now: all ranks shall start anew */
	EV_ERROR,   /* an act failed */
	EV_LIMIT,   /* --timeout */
	EV_UNREAD,  /* stdout or stderr has no reader */
	EV_INT1,    /* the first ^C, the second, each one after it */
	EV_INT2,
	EV_INT3,
	EV_TERM, /* TERM or HUP */
	EV_COUNT
};

enum job_act {
	ACT_NONE,
	ACT_PLACE,           /* map ranks to hosts, send the job */
	ACT_PRINT_PLAN,      /* and shut the agents down */
	ACT_CHECK,           /* ask the hosts what a start would meet */
	ACT_SAY_CHECK,       /* what they answered; and shut the agents down */
	ACT_START,           /* the ranks */
	ACT_AWAIT_HOSTS,     /* say so, if too few are left */
	ACT_RESTART,         /* the next epoch: its agents */
	ACT_SHUTDOWN,        /* the agents */
	ACT_GIVE_UP_LATE,    /* hosts that did not answer at the start */
	ACT_GIVE_UP_SILENT,  /* hosts that did not say `cleared`, unless output waits */
	ACT_GIVE_UP_ALL,     /* mute the output, clean no host up */
	ACT_SAY_ERROR,       /* what failed; and shut the agents down */
	ACT_SAY_ERROR_STOP,  /* the same, but KILL the ranks */
	ACT_SAY_LOST,        /* hosts that did not come up, before a job was sent */
	ACT_SAY_LOST_STOP,   /* the same, and agents give their ranks' berths up */
	ACT_SAY_RESIZE_STOP, /* TERM, and KILL after the grace */
	ACT_SAY_FEW,         /* hosts did not come in time; shut the agents down */
	ACT_SAY_CAUSE,       /* the agents have been told to stop */
	ACT_SAY_CAUSE_KILL,  /* and KILL follows at once */
	ACT_SAY_LIMIT,       /* --timeout; shut the agents down */
	ACT_SAY_LIMIT_STOP,  /* --timeout; TERM, and KILL after the grace */
	ACT_SAY_LIMIT_ONLY,  /* if it cancels a restart */
	ACT_DRAIN,           /* lines without an end are passed on */
	ACT_STOP,            /* TERM to the ranks, and KILL after the grace */
	ACT_KILL_SAID,       /* the ranks, as the user asked: say so */
	ACT_STOP_AFTER_SIGNAL, /* the grace of a signal is over */
	ACT_STOP_ENDED,        /* all ranks have ended: what they left */
	ACT_INTERRUPT,         /* SIGINT to the ranks; the grace begins */
	ACT_TERMINATE,         /* the signal to the ranks; the grace begins */
	ACT_FORWARD            /* the signal to the ranks */
};

struct phase_step {
	enum job_phase next;
	enum job_act act;
};

/* The step for event EV in PHASE, which is not JOB_STAY. */
struct phase_step phase_step(enum job_phase phase, enum job_event ev);

/* The event that follows from J's record at clock_ms() NOW_MS.  Signals are not among
 * these: run.c has them from the loop. */
enum job_event phase_due(const struct job *j, uint64_t now_ms);

/* EV has come for HOST: its next phase.  False: EV cannot be, and nothing changes. */
bool phase_host(struct job *j, size_t host, enum host_event ev);

/* The phase of J awaits something of HOST. */
bool phase_awaits(const struct job *j, size_t host);

/* Count what the phase that J has just entered awaits. */
void phase_await(struct job *j);

/* When the phase that J has just entered has lasted too long; 0: never. */
uint64_t phase_deadline_ms(const struct job *j, uint64_t now_ms);

/* How long agents have to leave in CLOSE, and runner's children to end after it. */
uint32_t phase_close_ms(const struct job *j);

/* A failure is to be followed by another start of all ranks. */
bool phase_restart_wanted(const struct job *j, uint64_t now_ms);

/* --restarts has one left. */
bool phase_has_restart(const struct job *j, uint64_t now_ms);

/* RANK can start again while the others go on, if it fails. */
bool phase_may_replace(const struct job *j, uint32_t rank);

/* RANK, which has failed, is to start again, and no other. */
bool phase_replace_wanted(const struct job *j, uint32_t rank, uint64_t now_ms);

/* HOST is lost, or is to be left: can the ranks of the others go on without its
 * ranks? */
bool phase_goes_on_without(const struct job *j, size_t host);

/* Index of the rank whose ending is the cause, or -1.  The ends of ranks whose agent
 * had been told to stop before are no causes, however the clocks disagree. */
long phase_cause(const struct job *j);

/* Exit status of the job: an error of runner; 124; a signal; the first cause; a lost
 * host (EXIT_START if no rank ever ran); a full disk. */
int phase_status(const struct job *j);

/* The signal that runner ends itself by, so that the shell that started it sees the
 * signal; or 0. */
int phase_death(const struct job *j);

#endif
