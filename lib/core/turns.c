#include "lib/core/turns.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/apart.h"
#include "lib/base/descriptor.h"
#include "lib/base/fiber.h"
#include "lib/base/sleep.h"
#include "lib/base/thread.h"
#include "lib/base/wait.h"

enum {
	RETIRE_NS = 2000000000, /* without work, until the thread ends */
	MISSED_NS = 50000,      /* the first sleep: see post() */
	LOOK_NS = 5000,         /* to the next look at other ranks, while steps go on */
	/* Fibers that are kept.  A stack that is new takes 10 us.  (1,000 requests of
	 * 50 sets over TCP: 1.5 ms with 8, 0.94 with 64.) */
	SPARE = 64
};

/* One a process. */
static struct turns {
	pthread_mutex_t lock;       /* of what follows; changes of FIRST */
	struct bell *bell;          /* this rank's; NULL: there is no world */
	int bell_fd;                /* its socket, or -1 */
	struct turn *_Atomic first; /* of those that the thread looks at */
	pthread_t thread;
	bool started, retired; /* RETIRED: it holds no lock any more */
	_Atomic bool stopped;
	/* of the thread */
	struct fiber *spare[SPARE];
	unsigned nspare;
	struct pollfd *polls; /* the bell first */
	size_t npolls, most_polls;
	uint64_t now_ns;    /* at the beginning of the last visit of all */
	uint64_t looked_ns; /* at other ranks */
	struct wait wait;   /* how long it spins and yields */
	unsigned spins, yields, sleeps;
	uint64_t idle_ns;    /* since when it spins; 0: it does not */
	uint64_t yielded_ns; /* since when it yields */
	bool is_posted_to;   /* a step waits for a post */
} own = { .lock = PTHREAD_MUTEX_INITIALIZER, .bell_fd = -1 };

static const struct fiber_wait *turn_waits(const struct turn *t)
{
	return t->fiber ? fiber_waits(t->fiber) : NULL;
}

bool turn_has_others(const struct turn *t)
{
	return own.first != t || t->next;
}

/* ---- a turn ---- */

static void turn_take(void *turn)
{
	struct turn *t = turn;

	t->did = t->hooks->take(t);
}

static void turn_is_over(struct turns *all, struct turn *t)
{
	struct fiber *f = t->fiber;

	t->fiber = NULL;
	if (all->nspare < SPARE)
		all->spare[all->nspare++] = f;
	else
		fiber_free(f);
}

/* True: steps were taken. */
static bool turn_begin(struct turns *all, struct turn *t)
{
	atomic_store(&t->rung, false);
	t->heard = false;
	t->until_ns = 0;
	t->fiber = all->nspare ? all->spare[--all->nspare] : fiber_make();
	if (!t->fiber) { /* no memory: other sets wait for this one */
		turn_take(t);
		return t->did;
	}
	if (fiber_begin(t->fiber, turn_take, t))
		turn_is_over(all, t);
	return t->did;
}

/* True: the step that waits is over, or waits for something else now.  Else the thread
 * does not spin again, since the step only looked around. */
static bool turn_resume(struct turns *all, struct turn *t)
{
	const struct fiber_wait before = *turn_waits(t), *now;
	bool over, goes_on;

	t->heard = false;
	t->did = true;
	over = fiber_resume(t->fiber);
	now = turn_waits(t);
	goes_on = over || now->post != before.post || now->want != before.want ||
		  fiber_passes(t->fiber);
	if (goes_on && t->counted) {
		atomic_fetch_sub(&t->counted->sleepers, POST_BELL);
		t->counted = NULL;
	}
	if (over)
		turn_is_over(all, t);
	return goes_on;
}

void turn_drop(struct turn *t)
{
	struct turn *_Atomic *at;

	for (at = &own.first; *at != t; at = &(*at)->next)
		;
	atomic_store(at, t->next);
	if (t->hooks->dropped)
		t->hooks->dropped(t);
	t->nsockets = 0;
	/* T is gone as soon as its owner has the lock */
	atomic_store(&t->served, 0);
	sleep_wake(&t->served);
}

/* ---- what other ranks do ---- */

/* Room for N more of the sockets. */
static bool turns_have_room(struct turns *all, size_t n)
{
	const size_t most = 2 * (all->npolls + n);
	struct pollfd *polls;

	if (all->npolls + n <= all->most_polls)
		return true;
	polls = realloc(all->polls, most * sizeof *polls);
	if (!polls)
		return false;
	all->polls = polls;
	all->most_polls = most;
	return true;
}

/* Lists the sockets on which something may come for T. */
static void turn_list_sockets(struct turns *all, struct turn *t)
{
	const struct fiber_wait *w = turn_waits(t);

	t->nsockets = 0;
	if (!w && !t->hooks->sockets)
		return;
	if (!turns_have_room(all, w ? w->nsockets : t->hooks->sockets(t, NULL)))
		return;
	if (!w)
		t->nsockets = t->hooks->sockets(t, all->polls + all->npolls);
	else if (w->nsockets)
		memcpy(all->polls + all->npolls, w->sockets,
		       w->nsockets * sizeof *w->sockets);
	if (w)
		t->nsockets = w->nsockets;
	all->npolls += t->nsockets;
}

/* True: there are such sockets.  Then the bell is in the list, too. */
static bool turns_list_sockets(struct turns *all)
{
	all->npolls = 0;
	if (all->bell_fd < 0 || !turns_have_room(all, 1))
		return false;
	all->polls[all->npolls++] = (struct pollfd){ all->bell_fd, POLLIN, 0 };
	for (struct turn *t = all->first; t; t = t->next)
		turn_list_sockets(all, t);
	return all->npolls > 1;
}

/* Notes for each set whether something has come on its sockets. */
static void turns_hear_sockets(struct turns *all)
{
	const struct pollfd *at = all->polls + 1;

	if (all->polls->revents)
		bell_clear(all->bell_fd);
	for (struct turn *t = all->first; t; t = t->next)
		for (size_t i = 0; i < t->nsockets; i++)
			t->heard |= at++->revents != 0;
}

/* Counts all steps among the sleepers of the posts for which they wait, until they go
 * on.  True: some were not counted.  The first sleep of these is short: see post(). */
static bool turns_count_sleepers(struct turns *all)
{
	bool some = false;

	for (struct turn *t = all->first; t; t = t->next) {
		const struct fiber_wait *w = turn_waits(t);

		if (!w || !w->post || t->counted)
			continue;
		t->counted = w->post;
		atomic_fetch_add(&t->counted->sleepers, POST_BELL);
		some = true;
	}
	return some;
}

/* The other ranks see that the thread sleeps (N is 1), or has slept (-1). */
static void turns_mark_sleep(struct turns *all, bool polls, int n)
{
	if (polls)
		atomic_store(&all->bell->polls, n > 0);
	else
		atomic_fetch_add(&all->bell->sleepers, (uint32_t)n);
	fiber_count_sleep(n);
	atomic_thread_fence(memory_order_seq_cst);
}

/* ---- what is due ---- */

static bool turn_is_due(const struct turn *t, uint64_t now)
{
	const struct fiber_wait *w = turn_waits(t);

	if (t->heard)
		return true;
	if (!w)
		return atomic_load(&t->rung) || (t->until_ns && now >= t->until_ns) ||
		       atomic_load(&t->leaves);
	return (w->post && wait_reached(atomic_load_explicit(&w->post->value,
							     memory_order_acquire),
					w->want)) ||
	       (w->word && atomic_load(w->word) != w->value) ||
	       (w->until_ns && now >= w->until_ns);
}

static bool turns_are_due(struct turns *all, uint64_t now)
{
	bool due = false;

	for (struct turn *t = all->first; t && !due; t = t->next) {
		if (!t->fiber && t->hooks->is_called && t->hooks->is_called(t))
			atomic_store(&t->rung, true);
		due = turn_is_due(t, now);
	}
	return due;
}

/* When the next one is due by itself; 0: never. */
static uint64_t turns_next_ns(const struct turns *all)
{
	uint64_t next = 0;

	for (const struct turn *t = all->first; t; t = t->next) {
		const struct fiber_wait *w = turn_waits(t);
		const uint64_t until = w ? w->until_ns : t->until_ns;

		if (until && (!next || until < next))
			next = until;
	}
	return next;
}

/* ---- the thread ---- */

/* Looks at what other ranks do.  If nothing is due, the thread sleeps for NS, or until
 * the bell is no longer SEEN. */
static void turns_look_around(struct turns *all, uint32_t seen, uint64_t ns)
{
	const struct timespec none = { 0, 0 }, time = { (time_t)(ns / 1000000000),
							(long)(ns % 1000000000) };
	const bool polls = turns_list_sockets(all);
	bool sleeps;

	if (ns)
		turns_mark_sleep(all, polls, 1);
	all->looked_ns = all->now_ns;
	sleeps = !turns_are_due(all, all->now_ns) && ns &&
		 !atomic_load(&all->stopped) && atomic_load(&all->bell->value) == seen;
	if (polls && ppoll(all->polls, all->npolls, sleeps ? &time : &none, NULL) > 0)
		turns_hear_sockets(all);
	else if (!polls && sleeps)
		bell_sleep(all->bell, seen, ns);
	if (ns)
		turns_mark_sleep(all, polls, -1);
	/* perhaps a rank has broken off what it did */
	if (atomic_load(&all->bell->value) != seen)
		for (struct turn *t = all->first; t; t = t->next)
			t->heard |= t->fiber != NULL;
}

/* True: something was done. */
static bool turns_visit(struct turns *all, struct turn *t)
{
	if (t->fiber)
		return turn_resume(all, t);
	if (!atomic_load(&t->leaves))
		return turn_begin(all, t);
	pthread_mutex_lock(&all->lock);
	turn_drop(t);
	pthread_mutex_unlock(&all->lock);
	return true;
}

static bool turns_visit_all(struct turns *all)
{
	const uint64_t now = clock_ns();
	bool did = false;

	all->now_ns = now;
	all->is_posted_to = false;
	for (struct turn *t = all->first, *next; t; t = next) {
		next = t->next;
		if (turn_is_due(t, now))
			did |= turns_visit(all, t);
		else if (t->fiber)
			all->is_posted_to |= turn_waits(t)->post != NULL;
	}
	return did;
}

/* Nothing was done: spin, then yield, then sleep (wait.h). */
static bool turns_may_spin(struct turns *all)
{
	const struct wait *w = &all->wait;

	if (!all->is_posted_to || all->sleeps)
		return false;
	if (!all->idle_ns)
		all->idle_ns = clock_ns();
	if (++all->spins <= w->spins ||
	    (w->spin_ns && clock_ns() - all->idle_ns < w->spin_ns)) {
		wait_pause();
		return true;
	}
	if (!all->yields++)
		all->yielded_ns = clock_ns();
	return all->yields <= w->yields && wait_yield(all->yielded_ns);
}

/* The thread has slept long.  True: no set has work, and it ends.  The next one to
 * start has another thread. */
static bool turns_retire(struct turns *all)
{
	bool retires;

	pthread_mutex_lock(&all->lock);
	for (struct turn *t = all->first, *next; t; t = next) {
		next = t->next;
		if (!t->fiber && !atomic_load(&t->rung))
			t->hooks->retire(t);
	}
	all->retired = retires = !all->first;
	pthread_mutex_unlock(&all->lock);
	return retires;
}

/* False: the thread has slept long, and ends. */
static bool turns_sleep(struct turns *all, uint32_t seen)
{
	const uint64_t next = turns_next_ns(all), now = clock_ns();
	uint64_t ns = turns_count_sleepers(all) ? MISSED_NS : RETIRE_NS;

	if (next && next < now + ns)
		ns = next > now ? next - now : 1;
	all->sleeps++;
	turns_look_around(all, seen, ns);
	return next || atomic_load(&all->bell->value) != seen ||
	       clock_ns() - now < RETIRE_NS || !turns_retire(all);
}

static void *turns_serve(void *arg)
{
	struct turns *all = arg;

	while (!atomic_load(&all->stopped)) {
		const uint32_t seen = atomic_load(&all->bell->value);

		if (turns_visit_all(all)) {
			all->spins = all->yields = all->sleeps = 0;
			all->idle_ns = 0;
		} else if (!turns_may_spin(all)) {
			if (!turns_sleep(all, seen))
				break;
			continue;
		}
		if (all->now_ns - all->looked_ns > LOOK_NS)
			turns_look_around(all, seen, 0);
	}
	while (all->nspare)
		fiber_free(all->spare[--all->nspare]);
	return NULL;
}

/* ---- for the sets ---- */

bool turn_start(struct turn *t)
{
	struct turns *all = &own;

	pthread_mutex_lock(&all->lock);
	if (all->retired) {
		pthread_join(all->thread, NULL);
		all->started = all->retired = false;
	}
	if (!all->started && all->bell)
		all->started = thread_start(&all->thread, "berth", turns_serve, all);
	if (all->started && !atomic_load(&t->served)) {
		t->next = all->first;
		t->until_ns = 0;
		atomic_store(&t->served, 1);
		atomic_store(&all->first, t);
	}
	pthread_mutex_unlock(&all->lock);
	return atomic_load(&t->served);
}

static void turns_ring(void *turns)
{
	struct turns *all = turns;

	pthread_mutex_lock(&all->lock);
	if (all->bell)
		bell_ring(all->bell, all->bell_fd);
	pthread_mutex_unlock(&all->lock);
}

void turn_ring(struct turn *t)
{
	atomic_store(&t->rung, true);
	if (atomic_load(&t->served))
		turns_ring(&own);
}

void turn_leave(struct turn *t)
{
	atomic_store(&t->leaves, true);
	turn_ring(t);
	while (atomic_load(&t->served))
		sleep_on(&t->served, 1, 0);
	pthread_mutex_lock(&own.lock); /* turn_drop() may still wake this thread */
	pthread_mutex_unlock(&own.lock);
}

/* ---- opening, closing ---- */

void turns_open(struct bell *bell, int fd, unsigned ranks, unsigned cores)
{
	own.bell = bell;
	own.bell_fd = fd;
	wait_tune(&own.wait, ranks, cores);
	fiber_home(turns_ring, &own);
}

/* The lock stays: a thread may be about to ring. */
static void turns_forget(void)
{
	own.bell = NULL;
	own.bell_fd = -1;
	own.first = NULL;
	own.started = own.retired = false;
	atomic_store(&own.stopped, false);
	own.nspare = 0;
	own.polls = NULL;
	own.npolls = own.most_polls = 0;
	own.looked_ns = own.now_ns = 0;
	own.spins = own.yields = own.sleeps = 0;
	own.idle_ns = 0;
}

void turns_close(void)
{
	bool started;

	atomic_store(&own.stopped, true);
	turns_ring(&own);
	pthread_mutex_lock(&own.lock);
	started = own.started;
	pthread_mutex_unlock(&own.lock);
	if (started)
		pthread_join(own.thread, NULL);
	fiber_home(NULL, NULL);
	apart_end();
	pthread_mutex_lock(&own.lock);
	if (own.bell_fd >= 0)
		descriptor_close(own.bell_fd);
	free(own.polls);
	turns_forget();
	pthread_mutex_unlock(&own.lock);
}

void turns_in_child(void)
{
	pthread_mutex_init(&own.lock, NULL);
	turns_forget();
	fiber_home(NULL, NULL);
	apart_in_child();
}
