/* requests.h - requests of a random program: begun and ended in each way that
 * there is, which each rank chooses for itself. */
#ifndef BERTH_TESTS_PROGRAM_REQUESTS_H
#define BERTH_TESTS_PROGRAM_REQUESTS_H

#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "tests/helpers/programs/check.h"

enum { GROUP_MOST = 5, PENDING_MOST = 24, PENDING_ROOM = 96 };

/* The function that berth_then() is given. */
enum callback { NO_CALLBACK, NOTES, ENDS_REQUEST };

struct request {
	uint64_t id;
	size_t n;
	bool has_name;
	berth_result wants; /* of all ranks: another result than BERTH_OK */
	bool is_left;       /* a change of the world may end it */
	bool has_run;       /* by berth_run(), without a limit */
	berth_request *request;
	enum callback callback;
	_Atomic int called;
	berth_result told; /* by the callback */
	sem_t over;
	struct operation op[GROUP_MOST];
};

/* One thread of a program, and what it has submitted. */
struct worker {
	unsigned program, number, step, steps;
	uint64_t id;
	bool only_names; /* others share its set */
	bool leaves;     /* its world, before all of it is done */
	unsigned names;  /* given since nothing was in flight */
	struct request *pending[PENDING_ROOM];
	size_t npending;
};

static bool has_messages; /* the library can send and receive */

static void delay(uint64_t id, unsigned k)
{
	if (!own(id, k, 14))
		usleep((useconds_t)own(id, k + 1, 2000));
	else if (!own(id, k + 2, 6))
		sched_yield();
}

/* ---- their end ---- */

static void note_end(void *ctx, berth_result result)
{
	struct request *r = ctx;

	r->told = result;
	if (r->callback == ENDS_REQUEST) {
		berth_result rc = berth_wait(r->request, 0);

		if (rc != result)
			fail_operation(r->op, "a callback's own wait: %s, told %s",
				       berth_result_text(rc),
				       berth_result_text(result));
	}
	if (atomic_fetch_add(&r->called, 1))
		fail_operation(r->op, "a callback was called again");
	sem_post(&r->over);
}

/* Has the end of its world ended R?  PEER_LOST: another rank's was first. */
static bool is_ended(const struct request *r, berth_result rc)
{
	return r->is_left && (rc == BERTH_ABORTED || rc == BERTH_PEER_LOST);
}

/* Has berth_run() said no more than that O has begun?  A change of another rank's world
 * may have ended it since; but the stream goes on. */
static bool has_only_begun(const struct request *r, const struct operation *o)
{
	return r->has_run && r->is_left && o->is_device &&
	       o->d.stream != BERTH_HOST_STREAM;
}

/* It came to RC. */
static void finish(struct request *r, berth_result rc)
{
	if (rc != r->wants && !is_ended(r, rc))
		fail_operation(r->op, "%s", berth_result_text(rc));
	if (r->callback && (r->called != 1 || r->told != rc))
		fail_operation(r->op, "called %d times, told %s", r->called,
			       berth_result_text(r->told));
	for (size_t i = 0; i < r->n; i++)
		if (!rc && !has_only_begun(r, &r->op[i])) {
			check_operation(&r->op[i]);
		} else {
			if (!rc)
				fetch(&r->op[i], device_stream);
			release(&r->op[i]);
		}
	sem_destroy(&r->over);
	free(r);
}

/* In slices, some of them of no time. */
static berth_result wait_in_slices(struct request *r)
{
	unsigned turn = 0;
	berth_result rc;

	do
		rc = berth_wait(r->request, turn++ < 3 ? own(r->id, turn, 3) : 50);
	while (rc == BERTH_BUSY);
	return rc;
}

static berth_result poll_until_done(struct request *r)
{
	for (unsigned turn = 0; berth_poll(r->request) == BERTH_BUSY; turn++)
		if (turn < 20)
			sched_yield();
		else
			usleep(200);
	return berth_wait(r->request, 0);
}

static struct request *take_pending(struct worker *w, size_t i)
{
	struct request *r = w->pending[i];

	w->pending[i] = w->pending[--w->npending];
	return r;
}

/* All of a request goes by the host, if one operation of it does for its memories. */
static void choose_way(struct request *r)
{
	bool mixed = false;

	for (size_t i = 0; i < r->n; i++)
		mixed |= r->op[i].mixed;
	for (size_t i = 0; i < r->n; i++)
		r->op[i].by_nccl &= !mixed;
}

static bool has_device(const struct request *r)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->op[i].is_device)
			return true;
	return false;
}

/* Arrays on devices are fetched behind it, before it is known to be done. */
static void wait_on_stream(struct request *r)
{
	berth_result rc;

	begin_device();
	rc = berth_wait_stream(r->request, device_stream, -1);
	if (is_ended(r, rc) || (rc && rc == r->wants))
		return;
	expect_ok(r->op, rc, "berth_wait_stream");
	for (size_t i = 0; i < r->n; i++)
		fetch(&r->op[i], device_stream);
}

static void end_one(struct worker *w, size_t i)
{
	struct request *r = take_pending(w, i);
	berth_result rc;

	if (r->callback == ENDS_REQUEST) {
		while (sem_wait(&r->over))
			;
		finish(r, r->told);
		return;
	}
	if (has_device(r) && !own(r->id, 57, 2))
		wait_on_stream(r);
	switch (own(r->id, 50, 3)) {
	case 0:
		rc = wait_in_slices(r);
		break;
	case 1:
		rc = poll_until_done(r);
		break;
	default:
		rc = berth_wait(r->request, -1);
	}
	finish(r, rc);
}

/* That is done first. */
static void end_any(struct worker *w)
{
	berth_request *all[PENDING_ROOM];
	size_t which = PENDING_ROOM, given = 0;
	berth_result rc;

	for (size_t i = 0; i < w->npending; i++) {
		struct request *r = w->pending[i];

		all[i] = r->callback == ENDS_REQUEST ? NULL : r->request;
		given += all[i] != NULL;
	}
	if (!given) {
		end_one(w, 0);
		return;
	}
	do
		rc = berth_wait_any(all, w->npending, own(w->id, w->step, 2) ? -1 : 1,
				    &which);
	while (rc == BERTH_BUSY);
	if (which >= w->npending || !all[which])
		fail_operation(w->pending[0]->op, "berth_wait_any: which %zu", which);
	finish(take_pending(w, which), rc);
}

/* Until at most MOST are left. */
static void end_pending(struct worker *w, size_t most)
{
	while (w->npending > most) {
		const uint64_t id = w->pending[w->npending - 1]->id;

		delay(id, 60);
		if (own(id, 63, 4))
			end_one(w, own(id, 64, (unsigned)w->npending));
		else
			end_any(w);
	}
}

/* ---- their beginning ---- */

static void submit(struct worker *w, struct request *r)
{
	struct berth_desc d[GROUP_MOST];
	berth_result rc;

	for (size_t i = 0; i < r->n; i++)
		d[i] = r->op[i].d;
	rc = berth_submit(d, r->n, &r->request);
	if (is_ended(r, rc)) {
		finish(r, rc);
		return;
	}
	expect_ok(r->op, rc, "berth_submit");
	r->callback = (enum callback)own(r->id, 51, 3);
	if (own(r->id, 52, 2))
		r->callback = NO_CALLBACK;
	delay(r->id, 53);
	w->pending[w->npending++] = r;
	if (r->callback)
		expect_ok(r->op, berth_then(r->request, note_end, r), "berth_then");
}

/* For who reduces a failure. */
static void say_begin(const struct request *r, const char *how)
{
	static _Atomic int wanted = -1; /* of several threads */

	if (wanted < 0)
		wanted = getenv("PROGRAMS_TRACE") != NULL;
	for (size_t i = 0; wanted && i < r->n; i++) {
		const struct operation *o = &r->op[i];

		fprintf(stderr,
			"rank %d program %u step %u set %p: %s%s %s, kind %d type %d "
			"op %d "
			"count %" PRIu64 " scales %g %g%s\n",
			rank, o->program, o->step, (void *)o->group->set, how,
			i ? " with it" : "", o->has_name ? o->name : "unnamed",
			(int)o->kind, (int)o->type, (int)o->op, o->d.count, o->prescale,
			o->postscale, o->in_place ? ", in place" : "");
	}
}

/* BLOCKS: all other operations of the step have begun, so that this one may wait. */
static void begin(struct worker *w, struct request *r, bool blocks)
{
	const unsigned way = own(r->id, 54, 4);
	berth_result rc;

	if (!w->leaves) /* what nobody ends is not awaited here */
		end_pending(w, PENDING_MOST - 1);
	delay(r->id, 55);
	for (size_t i = 0; i < r->n; i++)
		prepare(&r->op[i]);
	if (r->n == 1 && blocks && way < 2 && r->op[0].kind < BERTH_SEND &&
	    (with_known || !w->only_names)) {
		say_begin(r, "runs");
		r->has_run = true;
		finish(r, berth_run(&r->op[0].d, -1, NULL));
	} else if (r->n == 1 && way == 2 && r->op[0].kind < BERTH_SEND) {
		say_begin(r, "runs in slices");
		rc = berth_run(&r->op[0].d, own(r->id, 56, 2), &r->request);
		if (rc == BERTH_BUSY)
			w->pending[w->npending++] = r;
		else
			finish(r, rc);
	} else {
		say_begin(r, "submits");
		submit(w, r);
	}
}

static struct request *new_request(struct worker *w, uint64_t id, size_t n)
{
	struct request *r = calloc(1, sizeof *r);

	if (!r)
		abort();
	sem_init(&r->over, 0, 0);
	r->id = id;
	r->n = n;
	r->is_left = w->leaves;
	r->has_name = w->only_names || choose(id, 1, 2);
	for (size_t i = 0; i < n; i++) {
		struct operation *o = &r->op[i];

		o->id = part_of(id, i);
		o->program = w->program;
		o->step = w->step;
		/* A group with one operation without a name has none. */
		o->has_name = r->has_name || choose(o->id, 30, 2 + 6 * (n == 1)) == 1;
		if (n == 1)
			o->has_name = r->has_name;
		else if (!r->has_name && !i)
			o->has_name = false;
		snprintf(o->name, sizeof o->name, "w%u %u", w->number, w->names++);
	}
	return r;
}

/* In an order of this rank's own, but for those without a name. */
static void shuffle(struct request **r, size_t n, uint64_t id)
{
	struct request *fixed[64];
	size_t nfixed = 0, next = 0;

	for (size_t i = 0; i < n; i++)
		if (!r[i]->has_name)
			fixed[nfixed++] = r[i];
	for (size_t i = n; i-- > 1;) {
		size_t k = own(id, 300 + (unsigned)i, (unsigned)i + 1);
		struct request *x = r[i];

		r[i] = r[k];
		r[k] = x;
	}
	for (size_t i = 0; i < n; i++)
		if (!r[i]->has_name)
			r[i] = fixed[next++];
}

static void begin_all(struct worker *w, struct request **r, size_t n, uint64_t id)
{
	shuffle(r, n, id);
	for (size_t i = 0; i < n; i++)
		begin(w, r[i], i + 1 == n);
}

/* All of this thread's are done, on all ranks at the same step: names may be given
 * again. */
static void end_all(struct worker *w)
{
	end_pending(w, 0);
	w->names = 0;
}

#endif
