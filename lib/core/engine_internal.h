/* engine_internal.h - what the files of the engine share: engine.c (blocking
 * operations, joining), engine_request.c (submit, wait), engine_end.c (their ends),
 * engine_thread.c, engine_bell.c (sleeping), engine_rest.c, engine_queue.c (what is
 * pending, and what the plan says of it), engine_messages.c, engine_step.c (does what
 * schedule.h decides), round.h (a round), engine_do.c (doing it) and engine_device.c
 * (on devices). */
#ifndef BERTH_LIB_ENGINE_INTERNAL_H
#define BERTH_LIB_ENGINE_INTERNAL_H

#include "lib/base/sleep.h"
#include "lib/core/comm_device.h"
#include "lib/core/engine.h"
#include "lib/core/messages.h"
#include "lib/core/op_run.h"
#include "lib/core/plan.h"
#include "lib/core/schedule.h"
#include "lib/core/world.h"

struct berth_request {
	struct engine *engine;
	struct berth_request *next, **back; /* in order of submission */
	struct berth_request *chain;        /* in the table */
	size_t n; /* collectives; OP has the operations of messages behind them */
	struct op *op;
	size_t nmessages;
	struct message *message;
	_Atomic uint32_t parts;  /* that are not done: all collectives are one */
	_Atomic uint32_t failed; /* a part has: RC and WHY are of the first */
	struct plan_unit unit;
	bool beside;         /* the plan does not expect it in this cycle */
	bool found;          /* by this round, to be done */
	uint32_t bucket, at; /* while a round does it */
	int priority;
	size_t ndevice;     /* operations on devices */
	size_t nworks;      /* that they became; valid as soon as LAUNCHED is 1 */
	struct work **work; /* room for NDEVICE */
	_Atomic uint32_t launched;          /* all have; 2: not, and one sleeps on it */
	uint64_t submitted_ns, deadline_ns; /* 0: never */
	_Atomic uint32_t
		done; /* 1: RC is what it came to; 2: not, and one sleeps on it */
	_Atomic uint64_t wanted_ns; /* since when a thread waits for it; 0: none does */
	berth_result rc;
	struct failure *why;       /* NULL: RC says it all */
	_Atomic uint32_t callback; /* is there one?  (engine_request.c) */
	void (*then)(void *ctx, berth_result rc);
	void *then_ctx;
};

enum { ENGINE_TABLE = 1024, ENGINE_PENDING_MOST = 16384, ENGINE_PIECES = 4096 };

struct engine {
	struct comm *comm;
	unsigned forks; /* how often this process was forked from its parents */
	bool started;   /* the thread */
	bool retired;   /* it has ended since, for want of work */
	pthread_t thread;
	_Atomic uint32_t users;       /* the set, and each request */
	_Atomic uint32_t collectives; /* requests that have some */
	struct messages *messages;    /* NULL: there was none yet */
	pthread_mutex_t work;         /* who holds it does operations */
	pthread_mutex_t queue;        /* of all that follows, and of PLAN's changes */
	struct berth_request *first, **last, *table[ENGINE_TABLE];
	struct schedule schedule;
	size_t have; /* of the plan's next bucket, lines up to this one are here */
	uint64_t unnamed;
	uint64_t entered;      /* how many ever */
	const void *submitter; /* the thread that submitted last (engine_request.c) */
	_Atomic bool dozes;    /* the thread, until it is woken */
	unsigned last_joined;  /* place */
	_Atomic uint32_t bell; /* rung when there may be something to do */
	_Atomic uint32_t asleep;
	_Atomic uint32_t all_joined; /* how often */
	/* of the holder of WORK */
	struct plan plan;
	struct berth_request *beginning; /* one by one: the work that begins is its */
	bool called; /* a round, by a rank whose operation differs */
	struct berth_request
		*direct;          /* what this rank had blocked on, in the round that
					 begins */
	uint64_t fuse_bytes;      /* the least that any rank's parameter says */
	struct coll_piece *piece; /* ENGINE_PIECES; NULL: no collective was pending */
	unsigned char *fusion;
	size_t fusion_bytes;
	bool fusion_is_heap;
	struct berth_request **list; /* ENGINE_PENDING_MOST: those at hand; or NULL */
	struct op idle;              /* where none is at hand */
	struct joiner {
		uint64_t taken;   /* requests of the others since it joined */
		uint64_t time_ns; /* when it joined, by the clock of rank 0's host */
	} joiner;
	uint64_t *lists; /* of all ranks */
	size_t lists_bytes;
	bool is_idle;               /* by the last step: it rests until there is news */
	struct rest *rest;          /* engine_rest.c; QUEUE guards whether there is */
	_Atomic bool rests;         /* the thread, there */
	uint64_t reported_ns;       /* the last stall of what some ranks lack */
	struct berth_metrics count; /* of requests; blocking ones: comm->count */
};

/* How often this process was forked from its parents. */
unsigned engine_forks(void);
/* Before the first collective is pending: the lists are there, and the thread runs.
 * False: there is no memory, or no thread. */
bool engine_start(struct engine *e);
/* As engine_start(), with QUEUE held: the thread stays while a request is pending. */
bool engine_start_held(struct engine *e);
/* Makes the lists alone.  A set that only blocks does not have them (224 KiB). */
bool engine_make_lists(struct engine *e);
/* The thread is to look what there is to do.  No lock is held. */
void engine_ring(struct engine *e);

/* ---- engine_rest.c: the thread sleeps while rounds bring nothing ---- */

/* For the thread; NULL if it cannot hear another rank while it rests. */
struct rest *engine_rest_make(const struct comm *c);
void engine_rest_free(struct rest *r);
/* Has another rank begun an operation that this one has not?  Not while one runs. */
bool engine_is_called(const struct engine *e);
/* The thread has WORK.  It releases WORK, and sleeps until the bell is no longer HEARD,
 * until another rank calls, or for NS. */
void engine_rest(struct engine *e, uint32_t heard, uint64_t ns);
/* Wake the thread if it rests.  QUEUE is held. */
void engine_wake_rest(struct engine *e);
/* An operation begins: who rests comes to it. */
void engine_call(const struct engine *e);
/* A user goes.  Requests are users: who waits for one may look at the bell when all
 * else is gone. */
void engine_let_go(struct engine *e);

/* Those of E, made at the first use; messages_leave() ends the use.  NULL: out of
 * memory, or E is to end. */
struct messages *engine_need_messages(struct engine *e);
/* As engine_need_messages(), also while E ends: to say or hear of its end. */
struct messages *engine_need_last_messages(struct engine *e);
/* As engine_need_messages(), but makes none. */
struct messages *engine_use_messages(struct engine *e);
/* Has a rank of another host aborted the set?  Of C, while it waits, and of the thread.
 * Messages are made only where one has come. */
void engine_hear(void *engine);
/* This rank has aborted the set. */
void engine_tell_other_hosts(struct engine *e);
/* The door's thread calls it now and then. */
void engine_tidy_messages(struct engine *e);
/* After messages_stop(): no use begins any more. */
void engine_free_messages(struct engine *e);

/* *WHY of OP is RC, and TEXT.  RC. */
berth_result engine_refuse(berth_result rc, const struct op *op, struct failure *why,
			   const char *text);
berth_result engine_no_thread(const struct op *op, struct failure *why);
/* engine_submit(), where the comm is whole and engine_start() is done. */
berth_result engine_enter_new(struct engine *e, const struct op *op, size_t n,
			      struct berth_request **request, struct failure *why);
/* The request whose callback this thread runs; NULL: none, or it has ended it. */
extern _Thread_local struct berth_request *engine_calling;

/* In its callback it is done; for others when that has returned. */
static inline bool engine_is_done(const struct berth_request *r)
{
	return atomic_load(&r->done) == 1 || r == engine_calling;
}

/* The result of R, which is done. */
berth_result engine_outcome(const struct berth_request *r, struct failure *why);
/* A thread waits for R.  True: none did before. */
bool engine_want(struct berth_request *r);

/* How many requests have ended while a thread waited for any of several. */
extern struct engine_completions {
	_Atomic uint32_t count, waiters;
} engine_completions;

/* Requests whose waiting threads are still to be woken: the thread that waits for one
 * of 64 that end together finds all of them done.  Woken for each, it took the core
 * from the thread that ended them: 4 to 20 switches a step over TCP, now 2. */
struct engine_wakes {
	_Atomic uint32_t *word[8];
	unsigned n;
};

void engine_wake(struct engine_wakes *wakes);

/* A part of R comes to RC.  After the last one it is its owner's.  Who waits for it is
 * woken, or noted in WAKES, if not NULL. */
void engine_end(struct berth_request *r, berth_result rc, const struct failure *why,
		struct engine_wakes *wakes);

enum engine_step { ENGINE_DID, ENGINE_IDLE, ENGINE_SOON };

/* WORK is held.  ENGINE_IDLE: nothing to do until the bell; ENGINE_SOON: nor for
 * *NS. */
enum engine_step engine_step(struct engine *e, uint64_t *ns);

/* The pending request of KEY, or NULL.  QUEUE is held. */
struct berth_request *engine_find(struct engine *e, uint64_t key);
/* R is pending from now on.  QUEUE is held. */
void engine_enter(struct engine *e, struct berth_request *r);

/* QUEUE is held for these: */
/* Are the units of the plan's next bucket pending? */
bool engine_bucket_is_here(struct engine *e);
/* They are at the beginning of e->list; how many. */
size_t engine_take_bucket(struct engine *e);
/* The plan has changed: look again at what is pending. */
void engine_look_again(struct engine *e);
/* If a unit that is pending comes again, the next cycle begins. */
berth_result engine_begin_cycle(struct engine *e);
/* Since when a thread waits for what the plan holds back; 0: none does. */
uint64_t engine_wanted_since(const struct engine *e);

/* The N of R are done; they are their owners' from then on. */
void engine_complete(struct engine *e, struct berth_request **r, size_t n,
		     berth_result rc, const struct failure *why);
void engine_complete_all(struct engine *e, berth_result rc, const struct failure *why);
/* The set was aborted: what is pending ends.  WORK is held. */
void engine_end_aborted(struct engine *e);

/* ---- engine_device.c ---- */

extern const struct work_hooks engine_works;

/* All works of R have been agreed on. */
void engine_launched(struct berth_request *r);
/* N requests together as one work: of allreduces on a device. */
berth_result engine_do_on_device(struct engine *e, struct berth_request **r, size_t n,
				 uint32_t signature, uint64_t deadline_ns);
/* R, of a thread that blocks in it: until OUT may be used on STREAM.  It is not the
 * caller's any more. */
berth_result engine_wait_on_stream(struct berth_request *r, void *stream,
				   struct failure *why);
/* W, of a thread that blocks in it: until OUT may be used. */
berth_result engine_await(struct work *w, struct failure *why);
/* The works of R, whose owner ends it. */
void engine_drop_works(struct berth_request *r);
/* Marks of R's operations; of those that did not begin. */
berth_result engine_mark(struct engine *e, struct berth_request *r);
void engine_forget(struct berth_request *r);

/* Do N requests that go together, with SIGNATURE.  BERTH_MISMATCH: nothing was done,
 * and they are still pending; else they are complete. */
berth_result engine_do(struct engine *e, struct berth_request **r, size_t n,
		       uint32_t signature);
#endif
