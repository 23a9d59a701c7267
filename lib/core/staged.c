#include "lib/core/staged.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/fiber.h"
#include "lib/base/wait.h"
#include "lib/core/adasum.h"
#include "lib/core/comm.h"
#include "lib/core/set.h"
#include "lib/core/staged_step.h"

enum {
	SLOTS = 3, /* of the room: one is the host's, and the device is at two */
	SLOT_BYTES = 2 * STAGED_BYTES,
	SPINS = 64,
	LOOK_NS = 20000,
	LOOK_NS_MOST = 1000000,
	WATCH_NS = 50000000,
	CALM_NS = 50000000,
	STEP = 0x53544550 /* in signatures of steps */
};

struct slot {
	unsigned char *room;
	void *mark; /* of the last copy there; NULL: none is under way */
	struct staged_step step;
	struct staged_copies in, out;
	uint64_t *counts;
};

struct staged {
	const struct device_backend *back;
	unsigned n;
	void *stage;
	struct slot slot[SLOTS];
	uint64_t *counts;
};

/* A step among those of all operations of a work. */
struct staged_at {
	size_t coll;
	uint64_t step, number;
};

struct staged_run {
	struct comm *comm;
	struct staged *staged;
	struct work *work;
	uint32_t signature;
	uint64_t deadline_ns; /* from when the marks have passed; 0: none */
	bool begun;           /* the stage waits for the marks */
	unsigned char *kept;  /* a copy of the input, where it is overwritten */
};

/* ---- opening ---- */

struct staged *staged_open(const struct device_backend *back, int device, unsigned n,
			   const char **why)
{
	struct staged *s = calloc(1, sizeof *s);
	void *room;

	*why = "out of memory";
	if (!s)
		return NULL;
	s->back = back;
	s->n = n;
	s->counts = calloc(SLOTS * 2 * (size_t)n, sizeof *s->counts);
	if (!s->counts ||
	    back->stage(device, SLOTS * SLOT_BYTES, &s->stage, &room, why)) {
		free(s->counts);
		free(s);
		return NULL;
	}
	for (size_t i = 0; i < SLOTS; i++) {
		struct slot *slot = &s->slot[i];

		slot->room = (unsigned char *)room + i * SLOT_BYTES;
		slot->counts = s->counts + i * 2 * n;
		slot->step.in = &slot->in;
		slot->step.out = &slot->out;
	}
	return s;
}

static void slot_take_mark(struct staged *s, struct slot *slot, void *mark)
{
	if (slot->mark)
		s->back->forget(slot->mark);
	slot->mark = mark;
}

void staged_close(struct staged *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < SLOTS; i++) {
		slot_take_mark(s, &s->slot[i], NULL);
		free(s->slot[i].in.copy);
		free(s->slot[i].out.copy);
	}
	s->back->unstage(s->stage);
	free(s->counts);
	free(s);
}

/* ---- waiting for the device ---- */

/* Until the device has come to MARK.  What the caller's stream has may take its
 * time. */
static berth_result staged_await(struct staged_run *r, void *mark)
{
	const struct device_backend *back = r->staged->back;
	uint64_t pause_ns = LOOK_NS, watched_ns;
	berth_result rc, ends = BERTH_OK;

	for (unsigned i = 0; i < SPINS; i++) {
		rc = back->passed(mark);
		if (rc != BERTH_BUSY)
			return rc;
		wait_pause();
	}
	watched_ns = clock_ns();
	while (!ends && (rc = back->passed(mark)) == BERTH_BUSY) {
		fiber_pause(pause_ns);
		pause_ns = pause_ns < LOOK_NS_MOST ? 2 * pause_ns : pause_ns;
		if (atomic_load(&r->comm->aborted)) {
			ends = BERTH_ABORTED;
		} else if (clock_ns() - watched_ns >= WATCH_NS) {
			watched_ns = clock_ns();
			ends = comm_watch(r->comm, r->work->op, watched_ns, 0);
		}
	}
	return ends ? ends : rc;
}

/* The slot is the host's from then on. */
static berth_result slot_await(struct staged_run *r, struct slot *slot)
{
	berth_result rc = slot->mark ? staged_await(r, slot->mark) : BERTH_OK;

	if (!rc)
		slot_take_mark(r->staged, slot, NULL);
	return rc;
}

/* Other sets have their turns between two steps.  Where copies and other ranks are
 * faster than this rank's part, it waits nowhere else. */
static void staged_pass(const struct staged_run *r)
{
	if (fiber_runs() && turn_has_others(&set_of(r->comm)->turn))
		fiber_pass();
}

/* ---- copies ---- */

/* Copies of SLOT go to the device.  The first ones of a work wait for its marks; so
 * does this rank, even where it gives nothing. */
static berth_result slot_copy(struct staged_run *r, struct slot *slot,
			      const struct staged_copies *copies)
{
	const struct device_work *w = &r->work->device;
	struct staged *s = r->staged;
	void *mark = NULL;
	berth_result rc;

	if (copies->failed)
		return BERTH_MEMORY;
	if (!copies->n && r->begun)
		return BERTH_OK;
	rc = s->back->copy(s->stage, copies->copy, copies->n, w->ready,
			   r->begun ? 0 : w->nready, &mark);
	if (!rc)
		slot_take_mark(s, slot, mark);
	r->begun = true;
	return rc;
}

/* BYTES of an array, by way of the slots: from the device to HERE, or from HERE. */
static berth_result staged_move(struct staged_run *r, unsigned char *here,
				const unsigned char *there, size_t bytes, bool in)
{
	struct device_copy copy;
	const struct staged_copies copies = { .copy = &copy, .n = 1 };
	berth_result rc = BERTH_OK;

	for (size_t at = 0, k = 0; !rc && at < bytes; at += SLOT_BYTES, k++) {
		struct slot *slot = &r->staged->slot[k % SLOTS];
		const size_t n = bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES;

		copy = in ? (struct device_copy){ slot->room, there + at, n }
			  : (struct device_copy){ (void *)(uintptr_t)(there + at),
						  slot->room, n };
		if (in)
			rc = slot_copy(r, slot, &copies);
		rc = rc ? rc : slot_await(r, slot);
		if (rc)
			return rc;
		memcpy(in ? here + at : slot->room, in ? slot->room : here + at, n);
		if (!in)
			rc = slot_copy(r, slot, &copies);
		staged_pass(r);
	}
	return rc;
}

/* ---- steps ---- */

/* Nothing of IN may be overwritten before it has been read.  A step writes a part of
 * each rank's block.  Where blocks differ, and IN lies elsewhere than this rank's block
 * of OUT, that may be a part of IN that no step has read: IN is copied first. */
static berth_result staged_keep(struct staged_run *r, const struct coll *c)
{
	const unsigned me = r->comm->members->me, n = r->staged->n;
	const size_t size = kern_size(c->type), bytes = c->count * size;
	const char *in = c->in, *out = c->out;

	if (c->kind != BERTH_ALLGATHER || !c->out_counts || staged_steps(c, n) == 1 ||
	    in == out + coll_got_at(c, n, me) * size ||
	    in >= out + coll_got_at(c, n, n) * size || out >= in + bytes)
		return BERTH_OK;
	r->kept = malloc(bytes);
	return r->kept ? staged_move(r, r->kept, c->in, bytes, true) : BERTH_MEMORY;
}

/* This rank's input of the step at AT, where the device does not give it as the ranks
 * need it: beside ranks without data each rank with data scales its own (coll.h). */
static void staged_prepare(struct staged_run *r, const struct staged_at *at,
			   struct slot *slot)
{
	const struct coll *c = &r->work->coll[at->coll];
	const struct kern_scale scale = { .has_prescale = true,
					  .prescale = c->scale.prescale };
	struct coll *step = &slot->step.coll;
	const size_t size = kern_size(c->type);
	void *to = slot->room;
	struct kern k;

	if (c->has_none)
		op_fill_neutral(slot->room, step, step->count);
	if (r->kept)
		memcpy(slot->room, r->kept + slot->step.from * size,
		       step->count * size);
	if (!c->scales_apart)
		return;
	step->scale.has_prescale = false;
	if (c->has_none)
		return;
	kern_make(&k, c->type, BERTH_SUM, &scale, KERN_ELEMENTS, KERN_ELEMENTS);
	kern_reduce(&k, &to, 1, &step->in, 1, step->count, false);
}

static berth_result staged_do(struct staged_run *r, const struct staged_at *at)
{
	struct slot *slot = &r->staged->slot[at->number % SLOTS];
	struct coll *step = &slot->step.coll;
	berth_result rc = slot_await(r, slot);

	if (rc)
		return rc;
	if (!at->number && r->work->limit_ns)
		r->deadline_ns = clock_ns() + r->work->limit_ns;
	staged_prepare(r, at, slot);
	step->signature = r->signature ^ (STEP + (uint32_t)at->number);
	if (r->comm->members->n == 1)
		coll_alone(step);
	else
		rc = comm_step(r->comm, step, r->deadline_ns);
	return rc ? rc : slot_copy(r, slot, &slot->out);
}

/* AT becomes the next step.  False: AT was the last one. */
static bool staged_next(const struct staged_run *r, struct staged_at *at)
{
	const struct device_work *w = &r->work->device;

	at->number++;
	if (++at->step < staged_steps(&w->coll[at->coll], r->staged->n))
		return true;
	at->step = 0;
	return ++at->coll < w->n;
}

/* The device is asked for a step's input as soon as its slot is free. */
static berth_result staged_do_all(struct staged_run *r)
{
	const struct members *m = r->comm->members;
	struct staged_at given = { 0 }, done = { 0 };
	bool gives = true, does = true;
	berth_result rc = staged_keep(r, r->work->coll);

	while (!rc && does) {
		while (!rc && gives && given.number < done.number + SLOTS) {
			struct slot *slot = &r->staged->slot[given.number % SLOTS];

			staged_make_step(&slot->step, &r->work->coll[given.coll],
					 given.step, m->n, m->me, slot->room,
					 slot->counts);
			if (r->kept)
				slot->in.n = 0;
			rc = slot_copy(r, slot, &slot->in);
			gives = staged_next(r, &given);
		}
		if (!rc)
			rc = staged_do(r, &done);
		does = staged_next(r, &done);
		staged_pass(r);
	}
	return rc;
}

/* Adasum needs whole arrays. */
static berth_result staged_adasum(struct staged_run *r)
{
	const struct coll *c = r->work->coll;
	const size_t bytes = c->count * kern_size(c->type);
	unsigned char *p = malloc(bytes + 1);
	struct coll whole = *c;
	berth_result rc = BERTH_OK;

	if (!p)
		return BERTH_MEMORY;
	whole.in = whole.out = p;
	whole.has_none = false;
	whole.signature = r->signature ^ STEP;
	if (c->has_none)
		op_fill_neutral(p, c, c->count);
	else
		rc = staged_move(r, p, c->in, bytes, true);
	if (!rc)
		rc = adasum_run(r->comm, &whole,
				r->work->limit_ns ? clock_ns() + r->work->limit_ns : 0);
	if (!rc && !c->has_none)
		rc = staged_move(r, p, c->out, bytes, false);
	free(p);
	return rc;
}

/* ---- the last copies, as a work ---- */

static berth_result staged_test(void *group, struct device_work *w)
{
	struct staged *s = group;

	w->runs = true;
	return s->back->passed(w->own);
}

static berth_result staged_follow(void *group, struct device_work *w, void *stream)
{
	struct staged *s = group;

	return s->back->await(w->own, stream);
}

static void staged_end(void *group, struct device_work *w)
{
	struct staged *s = group;

	s->back->forget(w->own);
}

static const char *staged_says(const void *group)
{
	(void)group;
	return "the copies between the device and the host failed";
}

static const struct device_backend staged_works = { .test = staged_test,
						    .follow = staged_follow,
						    .end = staged_end,
						    .says = staged_says };

berth_result staged_run(struct comm *c, struct work *w, struct staged *s,
			uint32_t signature)
{
	struct staged_run r = {
		.comm = c, .staged = s, .work = w, .signature = signature
	};
	uint64_t until_ns;
	berth_result rc;

	rc = w->op->adasum && c->members->n > 1 ? staged_adasum(&r) : staged_do_all(&r);
	free(r.kept);
	if (!rc)
		rc = s->back->copy(s->stage, NULL, 0, w->device.ready,
				   r.begun ? 0 : w->device.nready, &w->device.own);
	if (!rc) {
		w->back = &staged_works;
		w->group = s;
		works_begun(w);
		return BERTH_OK;
	}
	/* copies to OUT may be under way, for a moment, unless the caller's stream has
	 * not come to the operation */
	until_ns = clock_ns() + CALM_NS;
	for (size_t i = 0; i < SLOTS; i++)
		while (s->slot[i].mark &&
		       s->back->passed(s->slot[i].mark) == BERTH_BUSY &&
		       clock_ns() < until_ns)
			fiber_pause(LOOK_NS);
	return rc == BERTH_MISMATCH ? BERTH_PEER_LOST : rc;
}
