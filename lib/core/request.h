/* request.h - requests: operations that a rank has submitted together, until their
 * owner ends them.
 *
 * Its collectives are one part of a request; each message, and each work that a device
 * runs (works.h), is another.  A request is done when its last part is.  Any thread
 * may end a part.
 *
 * Collectives on devices are pending until ranks have agreed on their works: from then
 * on the request's name may come again. */
#ifndef BERTH_LIB_REQUEST_H
#define BERTH_LIB_REQUEST_H

#include <stdatomic.h>

#include "lib/core/set.h"
#include "lib/core/messages.h"

enum request_state {
	REQUEST_NEW,      /* no other thread knows it */
	REQUEST_QUEUED,   /* pending, until all ranks have it */
	REQUEST_PROMISED, /* all ranks have it: its turn comes */
	REQUEST_RUNNING,  /* a back end has it, or all its works have been agreed on;
			     without collectives: its messages are on their way */
	REQUEST_DONE,
	REQUEST_STATES
};

enum { REQUEST_SLEEPS = 8 }; /* beside the state: a thread sleeps until it changes */

struct request_block;

struct berth_request {
	struct berth_set *set;
	struct berth_request *next, **back; /* in order of submission */
	struct berth_request *chain;        /* in the table */
	size_t n; /* collectives; OP has the operations of messages behind them */
	struct op *op;
	size_t nmessages;
	struct message *message;
	_Atomic uint32_t state;  /* enum request_state, and REQUEST_SLEEPS; a futex */
	_Atomic uint32_t parts;  /* that are not done: all collectives are one */
	_Atomic uint32_t failed; /* a part has: RC and WHY are of the first */
	struct plan_unit unit;
	bool beside;         /* the plan does not expect it in this cycle */
	uint32_t bucket, at; /* while a round runs it */
	int priority;
	size_t nbounced;    /* messages on devices */
	size_t ndevice;     /* collectives on devices */
	size_t nworks;      /* that they became; valid from RUNNING on */
	struct work **work; /* room for NDEVICE */
	uint64_t submitted_ns, deadline_ns; /* 0: never */
	_Atomic uint64_t wanted_ns; /* since when a thread waits for it; 0: none does */
	berth_result rc;
	struct failure *why;       /* NULL: RC says it all */
	_Atomic uint32_t callback; /* is there one?  (request.c) */
	void (*then)(void *ctx, berth_result rc);
	void *then_ctx;
	struct request_block *block; /* of which it is a part, or NULL */
};

/* ---- making ---- */

size_t request_count_messages(const struct op *op, size_t n);
/* N operations and all that they point to, in one piece; NEW.  BLOCK: where there is
 * room for it, or NULL.  NULL: out of memory. */
struct berth_request *request_make(struct berth_set *s, const struct op *op, size_t n,
				   struct request_block *block);
/* Room for N requests of one operation, which are submitted at one time; it is free
 * when it has been closed and they are.  (64 requests of one malloc() each: a tenth
 * more instructions from submission to end.)  NULL: none. */
struct request_block *request_block_make(size_t n);
void request_block_close(struct request_block *b);
/* Its name, its signature, and with what it may be fused.  The set's QUEUE is held:
 * a request without a name has the next number. */
void request_describe(struct berth_request *r);
/* The ranks differ in the memories of R's arrays alone: they do it together. */
void request_mix(struct berth_request *r);
/* R was not submitted.  KEEPS_MARK: what its operations marked is its caller's. */
void request_drop(struct berth_request *r, bool keeps_mark);
/* Was R submitted in this process, not in a parent of it? */
bool request_is_ours(const struct berth_request *r);

/* How often this process was forked from its parents. */
unsigned request_forks(void);
void request_in_child(void);

/* *WHY of OP is RC, and TEXT.  RC. */
berth_result request_refuse(berth_result rc, const struct op *op, struct failure *why,
			    const char *text);

/* ---- states ---- */

static inline enum request_state request_state(const struct berth_request *r)
{
	return (enum request_state)(atomic_load(&r->state) & ~(uint32_t)REQUEST_SLEEPS);
}

/* Threads that sleep on R go on sleeping. */
void request_become(struct berth_request *r, enum request_state state);
/* R is RUNNING, and threads that wait for it are woken. */
void request_launched(struct berth_request *r);
/* Until R is STATE or later, or for NS (0: however long).  It may come back early. */
void request_sleep(struct berth_request *r, enum request_state state, uint64_t ns);

/* The request whose callback this thread runs; NULL: none, or it has ended it. */
extern _Thread_local struct berth_request *request_calling;

/* In its callback it is done; for others when that has returned. */
static inline bool request_is_done(const struct berth_request *r)
{
	return atomic_load(&r->state) == REQUEST_DONE || r == request_calling;
}

/* `allreduce "grad" of 1024 f32, sum, and 3 others: queued for 1.204 s; ...`: all that
 * a reader of a hang needs.  R stays while it is read. */
void request_text(char *text, size_t bytes, const struct berth_request *r);
/* Writes these words as a line to standard error: for a debugger. */
void request_print(const struct berth_request *r);

/* ---- waiting ---- */

/* A thread waits for R.  True: none did before. */
bool request_want(struct berth_request *r);
/* As berth_then().  BERTH_STATE: it has one. */
berth_result request_then(struct berth_request *r,
			  void (*done)(void *ctx, berth_result rc), void *ctx);
/* The result of R, which is done. */
berth_result request_outcome(const struct berth_request *r, struct failure *why);
/* R, which is done, is freed.  Its result. */
berth_result request_free(struct berth_request *r, struct failure *why);

/* How many requests have ended while a thread waited for any of several. */
extern struct request_completions {
	_Atomic uint32_t count, waiters;
} request_completions;

/* ---- ends ---- */

/* Requests that end together: their waiting threads are still to be woken, and their
 * callbacks to be called.
 *
 * The thread that waits for one of 64 finds all of them done.  Woken for each, it took
 * the core from the thread that ended them: 4 to 20 switches a step over TCP, now 2.
 *
 * One call apart has all the callbacks.  A call for each had two switches each. */
struct request_wakes {
	_Atomic uint32_t *word[8];
	unsigned n;
	struct berth_request *first, *last; /* with callbacks */
};

/* Wake and call all. */
void request_wake(struct request_wakes *wakes);

/* A part of R ends with RC.  After its last part R belongs to its owner.  Threads that
 * wait for R are woken, and its callback is called; if WAKES is not NULL, it notes
 * them. */
void request_end(struct berth_request *r, berth_result rc, const struct failure *why,
		 struct request_wakes *wakes);
void request_message_done(struct message *m, berth_result rc,
			  const struct failure *why);

/* ---- works on devices ---- */

extern const struct work_hooks request_works;

/* W is a part of each of the N requests, before it is agreed on. */
void request_attach(struct work *w, struct berth_request **r, size_t n);
/* W does not come. */
void request_detach(struct work *w);
/* Has R anything in a device's memory? */
static inline bool request_is_on_device(const struct berth_request *r)
{
	return r->ndevice || r->nbounced;
}

/* Marks of R's operations.  *BEFORE, or NULL: the last that the same call has
 * marked. */
berth_result request_mark(struct berth_request *r, const struct op **before,
			  const char **why);
/* Marks of R's collectives that did not begin are forgotten. */
void request_forget(struct berth_request *r);

#endif
