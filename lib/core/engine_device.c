/* engine_device.c - operations on devices: from requests to works (works.h), and back.
 *
 * A request is not pending any more when its works are agreed on: its name may come
 * again.  It is done when they are. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/kern.h"
#include "lib/core/engine_internal.h"

enum {
	APART_BYTES = 2 << 20, /* an array of so many is not packed */
	AWHILE_NS = 1000000000,
	LATE_NS = 200000000
};

/* ---- what a work comes to ---- */

static void over(struct work *w)
{
	struct engine_wakes wakes = { .n = 0 };

	for (size_t i = 0; i < w->nrequests; i++) {
		struct failure none = { .rc = w->rc };

		engine_end(w->request[i], w->rc, w->why ? w->why : &none, &wakes);
	}
	engine_wake(&wakes);
}

/* A rank of another host would see only that connections end, and not why. */
static void failed(struct work *w, const char *why)
{
	comm_say_abort(w->comm, why);
	engine_tell_other_hosts(w->owner);
	engine_ring(w->owner);
}

/* A thread that holds the engine's WORK looks by itself.  If it waits there without a
 * deadline, it would not see that the deadline of this work is over. */
static void watch(struct work *w)
{
	struct engine *e = w->owner;
	berth_result rc;

	if (w->comm->broken)
		return;
	if (!pthread_mutex_trylock(&e->work)) {
		rc = comm_watch(w->comm, w->op, w->begun_ns, w->deadline_ns);
		w->comm->op = &e->idle;
		pthread_mutex_unlock(&e->work);
		if (rc) { /* also of a rank that leaves */
			atomic_store(&w->of->stopped, true);
			engine_ring(e);
		}
	} else if (w->deadline_ns && clock_ns() > w->deadline_ns + LATE_NS) {
		failed(w, "an operation on a device was not done in time");
	}
}

/* ---- requests ---- */

/* They come to their ends when W does. */
static void attach(struct work *w, struct berth_request **r, size_t n)
{
	w->nrequests = n;
	for (size_t i = 0; i < n; i++) {
		w->request[i] = r[i];
		r[i]->work[r[i]->nworks++] = w;
		works_hold(w);
		atomic_fetch_add(&r[i]->parts, 1);
	}
}

static void detach(struct work *w)
{
	for (size_t i = 0; i < w->nrequests; i++) {
		w->request[i]->nworks--;
		works_let_go(w);
		atomic_fetch_sub(&w->request[i]->parts, 1);
	}
}

static void begins(struct work *w)
{
	struct engine *e = w->owner;

	if (e->beginning)
		attach(w, &e->beginning, 1);
}

const struct work_hooks engine_works = { .begins = begins,
					 .withdrawn = detach,
					 .over = over,
					 .watch = watch,
					 .failed = failed };

void engine_launched(struct berth_request *r)
{
	if (r->ndevice && atomic_exchange(&r->launched, 1) == 2)
		sleep_wake(&r->launched);
}

void engine_drop_works(struct berth_request *r)
{
	for (size_t i = 0; i < r->nworks; i++)
		works_let_go(r->work[i]);
	r->nworks = 0;
}

berth_result engine_mark(struct engine *e, struct berth_request *r)
{
	berth_result rc = BERTH_OK;

	for (size_t k = 0; !rc && k < r->n; k++)
		if (op_is_device(&r->op[k]) && !r->op[k].marked)
			rc = comm_device_mark(e->comm, &r->op[k]);
	return rc;
}

void engine_forget(struct berth_request *r)
{
	for (size_t k = 0; r->ndevice && k < r->n; k++)
		if (op_is_device(&r->op[k]))
			comm_device_forget(&r->op[k]);
}

/* ---- together ---- */

static size_t bytes_of(const struct op *op)
{
	return op->coll.count * kern_size(op->coll.type);
}

static void add_apart(struct work *w, const struct op *op)
{
	w->coll[w->device.n] = op->coll;
	w->device.n++;
}

/* COLL of all that is packed, at the end. */
static void add_packed(struct work *w, struct berth_request **r, size_t n,
		       struct coll_piece *piece)
{
	struct coll packed = r[0]->op->coll;

	packed.in = packed.out = NULL;
	packed.count = 0;
	packed.piece = piece;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < r[i]->n; k++) {
			const struct op *op = &r[i]->op[k];

			if (!op->coll.count || bytes_of(op) >= APART_BYTES)
				continue;
			piece[packed.npieces++] =
				(struct coll_piece){ op->coll.in, op->coll.out,
						     packed.count };
			packed.count += op->coll.count;
		}
	if (packed.npieces)
		w->coll[w->device.n++] = packed;
}

/* A coll for each large array, and one for the others. */
static struct work *make_fused(struct engine *e, struct berth_request **r, size_t n,
			       size_t *buffer_bytes)
{
	size_t ops = 0, large = 0;
	struct work *w;

	*buffer_bytes = 0;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < r[i]->n; k++, ops++)
			if (bytes_of(&r[i]->op[k]) >= APART_BYTES)
				large++;
			else
				*buffer_bytes += bytes_of(&r[i]->op[k]);
	w = comm_device_work(e->comm, r[0]->op,
			     (struct work_room){ .colls = large + 1,
						 .pieces = ops,
						 .ready = ops,
						 .requests = n });
	if (!w)
		return NULL;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < r[i]->n; k++) {
			const struct op *op = &r[i]->op[k];

			if (bytes_of(op) >= APART_BYTES)
				add_apart(w, op);
			if (op->mark)
				w->ready[w->device.nready++] = op->mark;
		}
	/* pieces stand behind the requests */
	add_packed(w, r, n, (struct coll_piece *)(w->request + n));
	return w;
}

/* The marks are the work's now. */
static void give_marks(struct berth_request **r, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < r[i]->n; k++)
			r[i]->op[k].marked = false;
}

berth_result engine_do_on_device(struct engine *e, struct berth_request **r, size_t n,
				 uint32_t signature, uint64_t deadline_ns)
{
	size_t bytes;
	struct work *w;
	berth_result rc;

	w = make_fused(e, r, n, &bytes);
	if (!w)
		return BERTH_MEMORY;
	attach(w, r, n);
	rc = comm_device_begin(e->comm, w, signature, bytes, deadline_ns);
	if (rc)
		detach(w);
	else
		give_marks(r, n);
	works_let_go(w);
	return rc;
}

/* ---- waiting ---- */

berth_result engine_await(struct work *w, struct failure *why)
{
	const enum work_state until = w->promised ? WORK_RUNS : WORK_OVER;
	berth_result rc = BERTH_OK;

	while (!works_wait(w, until, AWHILE_NS))
		;
	if (atomic_load(&w->state) == WORK_OVER)
		rc = w->rc;
	if (rc) {
		memset(why, 0, sizeof *why);
		why->rc = rc;
		if (w->why)
			*why = *w->why;
	}
	works_let_go(w);
	return rc;
}
