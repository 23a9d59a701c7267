#include "lib/core/works.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/base/sleep.h"
#include "lib/base/wait.h"
#include "lib/core/comm.h"
#include "lib/core/turns.h"

enum {
	LOOK_NS = 20000, /* at least, from one test to the next */
	LOOK_NS_MOST = 1000000,
	LOOK_PART = 8, /* of a work's age */
	WATCH_NS = 50000000,
	SPINS = 200,
	YIELDS = 50,
	NAP_NS = 50000,
	MANY = 16, /* works that run */
	SELDOM = 4 /* of so many starts one tests them */
};

static const struct turn_hooks works_turns;

static struct works {
	pthread_mutex_t lock;
	struct work *waiting;  /* proposed or agreed */
	struct work *starting; /* on its way to its device; nothing else is started */
	struct work *running, **last;
	unsigned nrunning, starts;
	uint64_t clock;
	struct turn turn;    /* while any runs */
	_Atomic bool dozes;  /* no turn comes unless it is rung */
	uint64_t watched_ns; /* of the turn */
} all = { .lock = PTHREAD_MUTEX_INITIALIZER,
	  .last = &all.running,
	  .turn.hooks = &works_turns,
	  .dozes = true };

void works_lock(void)
{
	pthread_mutex_lock(&all.lock);
}

void works_unlock(void)
{
	pthread_mutex_unlock(&all.lock);
}

void works_hold(struct work *w)
{
	atomic_fetch_add(&w->refs, 1);
}

void works_let_go(struct work *w)
{
	if (atomic_fetch_sub(&w->refs, 1) > 1)
		return;
	free(w->why);
	free(w);
}

static void set_state(struct work *w, enum work_state state)
{
	atomic_store(&w->state, state);
	if (atomic_load(&w->sleeps))
		sleep_wake(&w->state);
}

/* ---- the end of one; no lock is held ---- */

static const char works_hangs[] =
	"what was to end the operations on the device hangs: their arrays stay in use";

static void works_say_why(struct work *w)
{
	char words[OP_WORDS_BYTES];

	w->why = calloc(1, sizeof *w->why);
	if (!w->why)
		return;
	if (!w->is_ours && comm_broken(w->comm, w->why)) {
		const size_t at = strlen(w->why->text);

		if (w->hangs)
			snprintf(w->why->text + at, sizeof w->why->text - at, "; %s",
				 works_hangs);
		w->why->rc = w->rc;
		return;
	}
	op_words(words, sizeof words, w->op);
	w->why->rc = w->rc;
	snprintf(w->why->text, sizeof w->why->text, "%s: %s%s%s", words,
		 w->is_ours ? berth_result_text(w->rc) : COMM_ENDED,
		 *w->said ? ": " : "", w->said);
	snprintf(w->why->tensor, sizeof w->why->tensor, "%s",
		 w->op->name ? w->op->name : "");
	if (w->is_ours)
		w->hooks->failed(w, w->why->text);
}

static void finish_one(struct work *w)
{
	for (size_t i = 0; i < w->device.nready; i++)
		w->of->back->forget(w->ready[i]);
	if (w->rc)
		works_say_why(w);
	if (w->hangs && !atomic_exchange(&w->of->has_said, true))
		log_say(BERTH_LOG_WARNING, "%s", works_hangs);
	w->hooks->over(w);
}

/* As soon as its count is less, its comm may be gone. */
static void works_finish(struct work *over)
{
	while (over) {
		struct work *w = over;
		struct comm_device *d = w->of;

		over = w->next;
		finish_one(w);
		set_state(w, WORK_OVER);
		works_let_go(w);
		atomic_fetch_sub(&d->works, 1);
	}
}

/* Why W does not go on; or BERTH_OK.  That this rank leaves is no reason: others have
 * been told that W is agreed on. */
static berth_result end_of(const struct work *w)
{
	const struct comm *c = w->comm;
	berth_result rc = atomic_load(&c->broken);

	if (atomic_load(&w->of->stopped))
		return rc ? rc : BERTH_ABORTED;
	return rc == BERTH_ABORTED && atomic_load(&c->aborted) ? BERTH_OK : rc;
}

static void works_push(struct work **over, struct work *w)
{
	w->next = *over;
	*over = w;
}

/* ---- on the device; the lock is held ---- */

/* W came to RC, or it still runs.  END: why its set does not go on.  True: W is over,
 * and W->rc is what it came to. */
static bool works_came_to(struct work *w, berth_result rc, berth_result end)
{
	struct comm_device *d = w->of;
	const char *said = NULL;

	w->is_ours = rc && rc != BERTH_BUSY && !end;
	w->hangs =
		end && rc == BERTH_SYSTEM && w->back->hangs && w->back->hangs(w->group);
	if (w->is_ours)
		said = w->back->says(w->group);
	if (said)
		snprintf(w->said, sizeof w->said, "%s", said);
	if (!d->revoked && rc && (rc != BERTH_BUSY || end)) {
		d->revoked = true;
		if (d->group)
			d->back->revoke(d->group);
		atomic_store(&d->stopped, true);
	}
	if (rc == BERTH_BUSY)
		return false;
	w->rc = d->revoked && end && !w->hangs ? end : rc;
	return true;
}

static bool works_is_over(struct work *w)
{
	const berth_result end = end_of(w);

	if (!works_came_to(w, w->back->test(w->group, &w->device), end))
		return false;
	w->back->end(w->group, &w->device);
	return true;
}

/* ---- the beginning ---- */

/* A set has as many works under way as its plan has buckets. */
static struct work **find_first(void)
{
	struct work **first = &all.waiting;

	for (struct work **at = first; *at; at = &(*at)->next)
		if ((*at)->number < (*first)->number ||
		    ((*at)->number == (*first)->number &&
		     (*at)->comm->id < (*first)->comm->id))
			first = at;
	return first;
}

/* W is on its device.  True: it is over. */
static bool works_run(struct work *w)
{
	if (works_is_over(w))
		return true;
	w->next = NULL;
	*all.last = w;
	all.last = &w->next;
	all.nrunning++;
	set_state(w, WORK_RUNS);
	return false;
}

/* W is on its way, or on its device, or could not be started.  True: it is over. */
static bool works_go_on(struct work *w, berth_result rc, berth_result end)
{
	all.starting = rc == BERTH_BUSY ? w : NULL;
	return rc ? works_came_to(w, rc, end) : works_run(w);
}

static bool works_start(struct work *w)
{
	struct comm_device *d = w->of;

	w->rc = end_of(w);
	if (w->rc) {
		atomic_store(&d->cut, true);
		return true;
	}
	return works_go_on(w, w->back->begin(w->group, &w->device), BERTH_OK);
}

/* Tests what runs: all, or up to the FIRST that is not over.  What is over goes to
 * *OVER. */
static void test_running(bool first, struct work **over)
{
	struct work **at = &all.running;

	while (*at) {
		struct work *w = *at;

		if (works_is_over(w)) {
			*at = w->next;
			all.nrunning--;
			works_push(over, w);
		} else if (first) {
			return;
		} else {
			at = &w->next;
		}
	}
	all.last = at;
}

/* Before a start.  The thread that looks may be late, and a program that never waits
 * would have ever more works that are over, each with its marks. */
static void make_room(struct work **over)
{
	if (all.nrunning >= MANY && !(all.starts++ % SELDOM))
		test_running(true, over);
}

/* All whose turn it is.  Those that are over already go to *OVER. */
static void start_all(struct work **over)
{
	struct work **first, *w;

	while (!all.starting && (first = find_first(), w = *first) &&
	       atomic_load(&w->state) == WORK_AGREED) {
		*first = w->next;
		if (works_start(w))
			works_push(over, w);
	}
}

/* ---- looking ---- */

/* Goes on with what is on its way, and tests what runs, if TESTS.  False: another
 * thread is at it. */
static bool works_look(bool tests)
{
	struct work *over = NULL, *first;

	if (pthread_mutex_trylock(&all.lock))
		return false;
	first = all.starting;
	if (first) {
		const berth_result end = end_of(first);

		if (works_go_on(first, first->back->begun(first->group, &first->device),
				end))
			works_push(&over, first);
		start_all(&over);
	}
	if (tests)
		test_running(false, &over);
	pthread_mutex_unlock(&all.lock);
	works_finish(over);
	return true;
}

bool works_poll(void)
{
	return works_look(true);
}

/* One that has not been watched at NOW; it and its comm stay until works_let_go(). */
static struct work *next_watched(uint64_t now)
{
	struct work *w;

	pthread_mutex_lock(&all.lock);
	w = all.starting && all.starting->watched_ns < now ? all.starting : all.running;
	while (w && w->watched_ns >= now)
		w = w->next;
	if (w) {
		w->watched_ns = now;
		works_hold(w);
		atomic_fetch_add(&w->of->works, 1);
	}
	pthread_mutex_unlock(&all.lock);
	return w;
}

static void watch_all(uint64_t now)
{
	struct work *w;

	while ((w = next_watched(now))) {
		struct comm_device *d = w->of;

		w->hooks->watch(w);
		works_let_go(w);
		atomic_fetch_sub(&d->works, 1);
	}
}

/* How long to sleep; 0: until something begins. */
static uint64_t pause_ns(uint64_t now)
{
	uint64_t ns = LOOK_NS_MOST;

	pthread_mutex_lock(&all.lock);
	if (all.starting)
		ns = LOOK_NS;
	else if (!all.running)
		ns = 0;
	for (struct work *w = all.running; w; w = w->next) {
		if (!w->begun_ns)
			w->begun_ns = now;
		if (!w->runs_ns && w->device.runs)
			w->runs_ns = now;
		if ((now - w->begun_ns) / LOOK_PART < ns)
			ns = (now - w->begun_ns) / LOOK_PART;
		ns = ns < LOOK_NS ? LOOK_NS : ns;
	}
	if (!ns)
		atomic_store(&all.dozes, true);
	pthread_mutex_unlock(&all.lock);
	return ns;
}

/* ---- their turn ---- */

static bool works_take_turn(struct turn *t)
{
	uint64_t now, ns;

	works_poll();
	now = clock_ns();
	if (now - all.watched_ns >= WATCH_NS) {
		all.watched_ns = now;
		watch_all(now);
	}
	ns = pause_ns(now);
	if (ns)
		t->until_ns = now + ns;
	return true;
}

static void works_retire(struct turn *t)
{
	pthread_mutex_lock(&all.lock);
	if (!all.running && !all.starting)
		turn_drop(t);
	pthread_mutex_unlock(&all.lock);
}

static const struct turn_hooks works_turns = { .take = works_take_turn,
					       .retire = works_retire };

/* Something runs, perhaps.  Without a thread, those that wait test it. */
static void works_wake(void)
{
	bool runs;

	pthread_mutex_lock(&all.lock);
	runs = all.running || all.starting;
	pthread_mutex_unlock(&all.lock);
	if (!runs || !atomic_exchange(&all.dozes, false))
		return;
	if (turn_start(&all.turn))
		turn_ring(&all.turn);
	else
		atomic_store(&all.dozes, true);
}

/* ---- the order ---- */

uint64_t works_propose(struct work *w)
{
	uint64_t number;

	pthread_mutex_lock(&all.lock);
	number = w->number = ++all.clock;
	if (atomic_load_explicit(&w->state, memory_order_relaxed) == WORK_NEW) {
		atomic_store_explicit(&w->state, WORK_PROPOSED, memory_order_relaxed);
		w->next = all.waiting;
		all.waiting = w;
	}
	pthread_mutex_unlock(&all.lock);
	return number;
}

/* W goes on when its caller has gone on. */
static void works_keep(struct work *w)
{
	w->kept = *w->op;
	w->kept.shape = NULL;
	if (w->op->name)
		w->kept.name = strncpy(w->name, w->op->name, sizeof w->name - 1);
	w->op = &w->kept;
	works_hold(w);
	atomic_fetch_add(&w->of->works, 1);
}

/* No lock is held: W runs, or IS_DONE, and so are those of OVER. */
static void works_are_on(struct work *w, bool is_done, struct work *over)
{
	if (is_done) { /* its caller sees to that */
		finish_one(w);
		atomic_store_explicit(&w->state, WORK_OVER, memory_order_release);
	}
	works_finish(over);
	if (!is_done)
		works_wake();
}

void works_agree(struct work *w, uint64_t number)
{
	struct work *over = NULL, **first;
	bool is_done = false;

	pthread_mutex_lock(&all.lock);
	if (all.clock < number)
		all.clock = number;
	w->number = number;
	atomic_store_explicit(&w->state, WORK_AGREED, memory_order_relaxed);
	first = find_first();
	if (*first == w && !all.starting) {
		*first = w->next;
		make_room(&over);
		is_done = works_start(w);
	}
	if (!is_done)
		works_keep(w);
	start_all(&over);
	pthread_mutex_unlock(&all.lock);
	works_are_on(w, is_done, over);
}

void works_begun(struct work *w)
{
	struct work *over = NULL;
	bool is_done;

	pthread_mutex_lock(&all.lock);
	make_room(&over);
	is_done = works_run(w);
	if (!is_done)
		works_keep(w);
	pthread_mutex_unlock(&all.lock);
	works_are_on(w, is_done, over);
}

void works_withdraw(struct work *w)
{
	struct work *over = NULL, **at = &all.waiting;

	if (atomic_load_explicit(&w->state, memory_order_relaxed) == WORK_NEW)
		return;
	pthread_mutex_lock(&all.lock);
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	atomic_store(&w->state, WORK_NEW);
	start_all(&over);
	pthread_mutex_unlock(&all.lock);
	works_finish(over);
	works_wake();
}

/* ---- waiting ---- */

static bool has_come(const struct work *w, enum work_state state)
{
	return atomic_load(&w->state) >= state;
}

bool works_wait(struct work *w, enum work_state state, uint64_t ns)
{
	/* W's start depends on no work that runs.  Queries of these would only hold up
	 * the launch of W. */
	const bool tests = state == WORK_OVER;
	uint64_t begun_ns, until_ns;

	if (has_come(w, state))
		return true;
	until_ns = clock_ns() + ns;
	for (unsigned i = 0; !has_come(w, state) && i < SPINS; i++) {
		works_look(tests);
		wait_pause();
	}
	begun_ns = clock_ns();
	for (unsigned i = 0; !has_come(w, state) && i < YIELDS; i++) {
		works_look(tests);
		if (!wait_yield(begun_ns))
			break;
	}
	while (!has_come(w, state) && clock_ns() < until_ns) {
		uint32_t now = atomic_load(&w->state);

		works_poll();
		atomic_fetch_add(&w->sleeps, 1);
		if (now < state)
			sleep_on(&w->state, now, NAP_NS);
		atomic_fetch_sub(&w->sleeps, 1);
	}
	return has_come(w, state);
}

berth_result works_follow(struct work *w, void *stream)
{
	berth_result rc = BERTH_OK;

	pthread_mutex_lock(&all.lock);
	for (struct work *at = all.running; at; at = at->next)
		if (at == w) {
			rc = w->back->follow(w->group, &w->device, stream);
			w->promised |= !rc;
		}
	pthread_mutex_unlock(&all.lock);
	return rc;
}

bool works_are_promised(const struct comm_device *d)
{
	bool promised = false;

	pthread_mutex_lock(&all.lock);
	for (struct work *w = all.running; w; w = w->next)
		promised |= w->of == d && w->promised;
	for (struct work *w = all.waiting; w; w = w->next)
		promised |= w->of == d && w->promised;
	pthread_mutex_unlock(&all.lock);
	return promised;
}

void works_nap(void)
{
	static _Atomic uint32_t never;

	works_poll();
	sleep_on(&never, 0, NAP_NS);
}

void works_end(struct comm_device *d)
{
	atomic_store(&d->stopped, true);
	while (atomic_load(&d->works))
		works_nap();
}

void works_stop(void)
{
	if (atomic_load(&all.turn.served))
		turn_leave(&all.turn);
	atomic_store(&all.turn.leaves, false);
	atomic_store(&all.dozes, true);
}

void works_in_child(void)
{
	pthread_mutex_init(&all.lock, NULL);
	all.waiting = all.running = all.starting = NULL;
	all.last = &all.running;
	all.nrunning = 0;
	all.turn = (struct turn){ .hooks = &works_turns };
	atomic_store(&all.dozes, true);
}
