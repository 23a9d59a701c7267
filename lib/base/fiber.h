/* fiber.h - a function with a stack of its own, which a thread resumes.
 *
 * One thread makes progress for all sets (progress.h).  An operation of one set must
 * not hold up another one, and back ends wait in the middle of an operation.  So each
 * operation of that thread runs in a fiber: where it would sleep, it returns to the
 * thread, which resumes it when what it waits for has come.
 *
 * A fiber stays with its thread.  So mutexes and _Thread_local work as usual, but no
 * mutex may be held in fiber_wait() that another fiber of the thread also takes.
 *
 * Functions of the caller's do not run in a fiber, whose stack is small: apart.h.
 *
 * The first switch is that of ucontext.h, all others are setjmp() and longjmp(), which
 * need no system call (QEMU's coroutines do the same). */
#ifndef BERTH_LIB_FIBER_H
#define BERTH_LIB_FIBER_H

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct fiber;
struct post;

/* A fiber waits for any of these. */
struct fiber_wait {
	struct post *post; /* to reach WANT (wait.h); NULL: none */
	uint32_t want;
	const _Atomic uint32_t *word; /* to be another than VALUE; NULL: none */
	uint32_t value;
	struct pollfd *sockets;
	nfds_t nsockets;
	uint64_t until_ns; /* of CLOCK_MONOTONIC; 0: no limit */
};

/* Does the calling code run in a fiber? */
bool fiber_runs(void);
/* In a fiber: waits for any of W.  The thread that resumes it may have other reasons,
 * too. */
void fiber_wait(const struct fiber_wait *w);
/* Has this thread no other fiber that waits? */
bool fiber_is_alone(void);
/* In a fiber that looks again and again: other fibers run. */
void fiber_pass(void);
/* Sleeps for NS, whether in a fiber or not. */
void fiber_pause(uint64_t ns);
/* Sleeps while WORD, of this process, is VALUE, until fiber_wake(WORD), or for NS; in a
 * fiber or not. */
void fiber_sleep_on(_Atomic uint32_t *word, uint32_t value, uint64_t ns);
void fiber_wake(_Atomic uint32_t *word);

/* ---- for the thread that resumes them ---- */

/* NULL: out of memory. */
struct fiber *fiber_make(void);
void fiber_free(struct fiber *f);
/* RUN(CTX) begins in F, which runs nothing.  True: it is over; else it waits. */
bool fiber_begin(struct fiber *f, void (*run)(void *ctx), void *ctx);
/* F, which waits, goes on.  True: it is over. */
bool fiber_resume(struct fiber *f);
/* Does F look again and again? */
bool fiber_passes(const struct fiber *f);
/* The reasons for which F, which waits, is to be resumed. */
const struct fiber_wait *fiber_waits(const struct fiber *f);
/* From now on RING(CTX) is called after a word has changed for which a fiber may
 * sleep; any thread.  NULL: there are no fibers any more. */
void fiber_home(void (*ring)(void *ctx), void *ctx);
/* The thread is about to sleep (+1), or has slept (-1), with a fiber that waits for a
 * word. */
void fiber_count_sleep(int n);

#endif
