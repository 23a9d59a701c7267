/* start.h - pure: how far the start of a job is on one host, and what leads on.
 *
 * A start may wait for a PMIx server: before the launcher hears of the placement, so
 * that it knows whether there is one, and before the ranks start.  After each turn of
 * the event loop start_due() says which event the record amounts to, and start_step()
 * what it leads to: the next state and one act.  Only agent_event() (job_mpi.c) assigns
 * the state.
 *
 *   state    what it awaits
 *   NONE     a job, whose ranks find a berth
 *   OPENING  that the PMIx server is open: the launcher gets no answer before
 *   PLACED   `start`, or `check`
 *   WAITING  that the PMIx server is ready for the ranks
 *   OVER     nothing: the ranks were started, or cannot be
 *   LOST     nothing: the user knows that the PMIx server was lost */
#ifndef BERTH_AGENT_START_H
#define BERTH_AGENT_START_H

#include "agent/pmi/server.h"

enum start_state {
	START_NONE, /* in the table: no change */
	START_OPENING,
	START_PLACED,
	START_WAITING,
	START_OVER,
	START_LOST,
	START_COUNT
};

enum start_event {
	START_NOTHING,
	START_EV_PLACED,  /* each rank has a berth */
	START_EV_OPENING, /* the same, and PMIx is to be opened first */
	START_EV_START,   /* `start` came, without PMIx */
	START_EV_PMIX,    /* `start` came, with PMIx */
	START_EV_CHECK,   /* `check` came */
	/* the PMIx server */
	START_EV_ABSENT, /* nobody has opened it */
	START_EV_OPEN,
	START_EV_READY,
	START_EV_FAILED, /* it cannot be opened or started, or has ended */
	START_EV_LOST,   /* it has ended, and ranks use it */
	START_EVENTS
};

enum start_act {
	START_ACT_NONE,
	START_ACT_ANSWER,         /* `placed` */
	START_ACT_ANSWER_WITHOUT, /* `placed`: there is no PMIx; or it needs one */
	START_ACT_OPEN_SERVER,
	START_ACT_START_SERVER,
	START_ACT_RANKS,         /* exec them */
	START_ACT_RANKS_WITHOUT, /* without PMIx, if they can be */
	START_ACT_SAY_LOST,
	START_ACTS
};

struct start_step {
	enum start_state next;
	enum start_act act;
};

/* The step that EV leads to in state AT. */
struct start_step start_step(enum start_state at, enum start_event ev);

/* The record that start_due() reads, beside the state. */
struct start_facts {
	enum server_pmix_state pmix;
	bool has_room;    /* there is a socket and memory for a PMIx server */
	bool ranks_run;   /* they were not told to stop */
	bool pmix_in_use; /* by a rank here; where PMIX is LOST */
};

/* The event that follows from F in state AT. */
enum start_event start_due(enum start_state at, const struct start_facts *f);

#endif
