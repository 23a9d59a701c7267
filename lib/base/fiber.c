/* longjmp() leaves for another stack.  The checks of this macro take that for a
 * fault. */
#undef _FORTIFY_SOURCE

#include "lib/base/fiber.h"

#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/sleep.h"

#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FIBER_TSAN 1
#endif
#endif
#if FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#if FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

enum { STACK_BYTES = 1 << 20 /* only written pages take memory */ };

struct fiber {
	unsigned char *stack; /* behind a page that can't be touched */
	size_t guard_bytes;
	sigjmp_buf own, thread; /* where each goes on */
	ucontext_t first;       /* its beginning */
	bool has_begun;         /* its loop waits in OWN */
	bool is_over;
	void (*run)(void *ctx);
	void *ctx;
	const struct fiber_wait *waits;
#if FIBER_ASAN
	void *fake_own, *fake_thread; /* the sanitizer's stacks */
	const void *thread_stack;
	size_t thread_bytes;
#endif
#if FIBER_TSAN
	void *tsan, *tsan_thread;
#endif
};

static _Thread_local struct fiber *fiber_here;
static _Thread_local unsigned fiber_count; /* that have begun and are not over */

/* ---- for the sanitizers ---- */

static void fiber_leaves_thread(struct fiber *f)
{
	(void)f;
#if FIBER_ASAN
	__sanitizer_start_switch_fiber(&f->fake_thread, f->stack + f->guard_bytes,
				       STACK_BYTES);
#endif
#if FIBER_TSAN
	f->tsan_thread = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(f->tsan, 0);
#endif
}

static void fiber_has_entered(struct fiber *f)
{
	(void)f;
#if FIBER_ASAN
	__sanitizer_finish_switch_fiber(f->fake_own, &f->thread_stack,
					&f->thread_bytes);
#endif
}

static void fiber_leaves(struct fiber *f)
{
	(void)f;
#if FIBER_ASAN
	__sanitizer_start_switch_fiber(&f->fake_own, f->thread_stack, f->thread_bytes);
#endif
#if FIBER_TSAN
	__tsan_switch_to_fiber(f->tsan_thread, 0);
#endif
}

/* ---- switching ---- */

/* From the fiber to its thread, until the thread resumes it. */
static void fiber_yield(struct fiber *f)
{
	if (!sigsetjmp(f->own, 0)) {
		fiber_leaves(f);
		siglongjmp(f->thread, 1);
	}
	fiber_has_entered(f);
}

static void fiber_loop(unsigned high, unsigned low)
{
	struct fiber *f = (struct fiber *)((uintptr_t)high << 16 << 16 | low);

	fiber_has_entered(f);
	for (;;) {
		f->run(f->ctx);
		f->is_over = true;
		fiber_yield(f);
	}
}

/* makecontext() passes numbers of the size of an int. */
static void fiber_enter(struct fiber *f)
{
	const uintptr_t at = (uintptr_t)f;

	f->has_begun = true;
	getcontext(&f->first);
	f->first.uc_link = NULL;
	f->first.uc_stack.ss_sp = f->stack + f->guard_bytes;
	f->first.uc_stack.ss_size = STACK_BYTES;
	makecontext(&f->first, (void (*)(void))fiber_loop, 2,
		    (unsigned)(at >> 16 >> 16), (unsigned)at);
	setcontext(&f->first);
}

bool fiber_resume(struct fiber *f)
{
	f->waits = NULL;
	fiber_here = f;
	if (!sigsetjmp(f->thread, 0)) {
		fiber_leaves_thread(f);
		if (f->has_begun)
			siglongjmp(f->own, 1);
		fiber_enter(f);
	}
#if FIBER_ASAN
	__sanitizer_finish_switch_fiber(f->fake_thread, NULL, NULL);
#endif
	fiber_here = NULL;
	fiber_count -= f->is_over;
	return f->is_over;
}

bool fiber_begin(struct fiber *f, void (*run)(void *ctx), void *ctx)
{
	f->run = run;
	f->ctx = ctx;
	f->is_over = false;
	fiber_count++;
	return fiber_resume(f);
}

const struct fiber_wait *fiber_waits(const struct fiber *f)
{
	return f->waits;
}

bool fiber_runs(void)
{
	return fiber_here;
}

bool fiber_is_alone(void)
{
	return fiber_count == 1;
}

void fiber_wait(const struct fiber_wait *w)
{
	fiber_here->waits = w;
	fiber_yield(fiber_here);
}

static const struct fiber_wait fiber_no_wait = { .until_ns = 1 };

void fiber_pass(void)
{
	fiber_wait(&fiber_no_wait);
}

bool fiber_passes(const struct fiber *f)
{
	return f->waits == &fiber_no_wait;
}

/* ---- making ---- */

struct fiber *fiber_make(void)
{
	const size_t guard = (size_t)sysconf(_SC_PAGESIZE);
	struct fiber *f = calloc(1, sizeof *f);
	void *stack;

	if (!f)
		return NULL;
	stack = mmap(NULL, guard + STACK_BYTES, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	f->guard_bytes = guard;
	f->stack = stack;
	if (stack == MAP_FAILED ||
	    mprotect(f->stack + guard, STACK_BYTES, PROT_READ | PROT_WRITE)) {
		if (stack != MAP_FAILED)
			munmap(stack, guard + STACK_BYTES);
		free(f);
		return NULL;
	}
#if FIBER_TSAN
	f->tsan = __tsan_create_fiber(0);
#endif
	return f;
}

void fiber_free(struct fiber *f)
{
	if (!f)
		return;
#if FIBER_TSAN
	__tsan_destroy_fiber(f->tsan);
#endif
	munmap(f->stack, f->guard_bytes + STACK_BYTES);
	free(f);
}

/* ---- sleeping ---- */

static struct {
	void (*_Atomic ring)(void *ctx);
	void *_Atomic ctx;
	_Atomic int sleeps; /* with fibers that wait for words */
} fiber_thread;

void fiber_home(void (*ring)(void *ctx), void *ctx)
{
	atomic_store(&fiber_thread.ring, NULL);
	atomic_store(&fiber_thread.ctx, ctx);
	atomic_store(&fiber_thread.ring, ring);
}

void fiber_count_sleep(int n)
{
	atomic_fetch_add(&fiber_thread.sleeps, n);
}

void fiber_wake(_Atomic uint32_t *word)
{
	void (*ring)(void *ctx);

	sleep_wake(word);
	if (!atomic_load(&fiber_thread.sleeps))
		return;
	ring = atomic_load(&fiber_thread.ring);
	if (ring)
		ring(atomic_load(&fiber_thread.ctx));
}

void fiber_sleep_on(_Atomic uint32_t *word, uint32_t value, uint64_t ns)
{
	struct fiber_wait w = { .word = word, .value = value };

	if (!fiber_here) {
		sleep_on(word, value, ns);
		return;
	}
	w.until_ns = ns ? clock_ns() + ns : 0;
	fiber_wait(&w);
}

void fiber_pause(uint64_t ns)
{
	_Atomic uint32_t never = 0;

	fiber_sleep_on(&never, 0, ns);
}
