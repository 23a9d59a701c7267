#include "lib/core/comm_device.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib/backend/devices.h"
#include "lib/backend/host_stage.h"
#include "lib/base/apart.h"
#include "lib/base/clock.h"
#include "lib/base/fiber.h"
#include "lib/base/log.h"
#include "lib/core/comm.h"
#include "lib/core/missing.h"
#include "lib/core/staged.h"
#include "lib/core/world.h"

enum {
	TIME = 0x54494d45, /* signatures of what only this file calls for */
	CARDS = 0x43415244,
	JOINS = 0x4a4e5347,
	JOINED = 0x4a4e4544,
	STAGED = 0x53544744,
	LOOK_NS = 20000,
	LOOK_NS_MOST = 1000000,
	WATCH_NS = 50000000,
	PATIENCE_NS = 1000000000
};

/* No rank has begun so many works: who says so lies. */
#define NUMBER_MOST (UINT64_MAX >> 8)

/* ---- agreements ---- */

/* The greatest of all ranks' MINE. */
static berth_result device_agree(struct comm *c, uint32_t signature, uint64_t mine,
				 uint64_t *most, uint64_t deadline_ns)
{
	const struct coll coll = { .kind = BERTH_ALLREDUCE,
				   .type = BERTH_U64,
				   .op = BERTH_MAX,
				   .count = 1,
				   .in = &mine,
				   .out = most,
				   .signature = signature };

	*most = mine;
	return c->members->n > 1 ? comm_step(c, &coll, deadline_ns) : BERTH_OK;
}

/* ---- joining ---- */

/* RC BERTH_UNSUPPORTED: the rank can't be joined with others.  Any other error: it has
 * no such device. */
struct card {
	uint64_t rc;
	uint64_t way;               /* enum device_way */
	char why[DEVICE_WHY_BYTES]; /* where RC is an error */
	unsigned char card[DEVICE_CARD_BYTES];
};

/* The back end is asked for these in a thread apart.  It may wait for the device, and
 * what runs there may wait for a rank that has gone: the works' turns end that. */
struct join_call {
	struct comm *c;
	struct comm_device *d;
	const struct device_options *options;
	const struct device_join *join;
	struct card *card;
	const struct device_backend *stages;
	struct staged *staged;
	const char *no_stage;
	char *why;
	berth_result rc;
};

static void device_ask_card(void *ctx)
{
	struct join_call *k = ctx;
	const struct members *m = k->c->members;

	k->card->rc = k->d->back->card(k->options, k->d->device, m->n, m->me,
				       k->card->card, k->card->why);
}

static void device_ask_join(void *ctx)
{
	struct join_call *k = ctx;

	k->rc = k->d->back->join(k->join, &k->d->group, k->why);
}

static void device_ask_stage(void *ctx)
{
	struct join_call *k = ctx;

	k->staged =
		staged_open(k->stages, k->d->device, k->c->members->n, &k->no_stage);
}

static berth_result tell_cards(struct comm *c, struct comm_device *d, struct card *all,
			       uint64_t deadline_ns)
{
	const struct params *k = &c->world->params;
	/* NCCL neither encrypts nor authenticates what it sends to other hosts */
	const bool in_clear = c->net && k->guard == NET_GUARD_AEAD && !k->nccl_clear;
	const struct device_options options = {
		.nccl = k->nccl, .by_host = in_clear || k->device == DEVICE_HOST
	};
	struct card own = { .way = k->device };
	const struct coll gather = { .kind = BERTH_ALLGATHER,
				     .type = BERTH_U64,
				     .in = &own,
				     .out = all,
				     .count = sizeof own / 8,
				     .signature = CARDS };
	struct join_call call = { .c = c, .d = d, .options = &options, .card = &own };

	apart_call(device_ask_card, &call);
	if (!own.rc && in_clear) {
		own.rc = BERTH_UNSUPPORTED;
		snprintf(own.why, sizeof own.why,
			 "BERTH_NET_SECURE=aead, and NCCL does not encrypt "
			 "(BERTH_NCCL_CLEAR=1 allows it)");
	}
	all[0] = own;
	return c->members->n > 1 ? comm_step(c, &gather, deadline_ns) : BERTH_OK;
}

/* BERTH_BUSY becomes another result, or the comm breaks. */
static berth_result await_group(struct comm *c, struct comm_device *d,
				const struct op *op, uint64_t deadline_ns)
{
	uint64_t begun_ns = clock_ns(), looked_ns = begun_ns, pause_ns = LOOK_NS;
	berth_result rc;

	for (;;) {
		rc = d->back->joined(d->group);
		if (rc != BERTH_BUSY)
			return rc;
		fiber_pause(pause_ns);
		pause_ns = pause_ns < LOOK_NS_MOST ? 2 * pause_ns : pause_ns;
		if (atomic_load(&c->aborted))
			return BERTH_ABORTED;
		if (clock_ns() - looked_ns < WATCH_NS)
			continue;
		looked_ns = clock_ns();
		rc = comm_watch(c, op, begun_ns, deadline_ns);
		if (rc)
			return rc;
	}
}

/* This rank's part of it begins.  WHY: the back end's reason for an error. */
static berth_result join_begin(struct comm *c, struct comm_device *d,
			       const struct card *all, char why[DEVICE_WHY_BYTES])
{
	const struct members *m = c->members;
	unsigned char *cards = malloc((size_t)m->n * DEVICE_CARD_BYTES);
	struct device_join join = { d->device, m->n, m->me, m->rank, cards };
	struct join_call call = { .d = d, .join = &join, .why = why };

	if (!cards)
		return BERTH_MEMORY;
	for (unsigned i = 0; i < m->n; i++)
		memcpy(cards + (size_t)i * DEVICE_CARD_BYTES, all[i].card,
		       DEVICE_CARD_BYTES);
	apart_call(device_ask_join, &call);
	free(cards);
	return call.rc;
}

/* The cards of all ranks come to this, the same on all of them. */
struct cards_say {
	bool refuses;   /* a rank has no device */
	bool cannot;    /* a rank can't be joined */
	bool by_host;   /* a user says so */
	bool only_nccl; /* a user says so, and none the contrary */
};

/* WHY, of BYTES, gets the error of the first card that has one which counts. */
static struct cards_say cards_say(const struct comm *c, const struct card *all,
				  char *why, size_t bytes)
{
	struct cards_say s = { .refuses = false };

	for (unsigned i = c->members->n; i-- > 0;) {
		const bool refuses = all[i].rc && all[i].rc != BERTH_UNSUPPORTED;

		if (all[i].rc && (refuses || !s.refuses))
			snprintf(why, bytes, "rank %u%s: %.*s", c->members->rank[i],
				 refuses ? " has no device for it" : "",
				 DEVICE_WHY_BYTES, all[i].why);
		s.refuses |= refuses;
		s.cannot |= all[i].rc == BERTH_UNSUPPORTED;
		s.by_host |= all[i].way == DEVICE_HOST;
		s.only_nccl |= all[i].way == DEVICE_ONLY_NCCL;
	}
	s.only_nccl &= !s.by_host;
	return s;
}

/* The ranks are joined, or D->why says why not, the same on all of them.  They wait for
 * one another there only if all have begun. */
static berth_result join_group(struct comm *c, struct comm_device *d,
			       const struct card *all, const struct op *op,
			       uint64_t deadline_ns)
{
	char why[DEVICE_WHY_BYTES] = "";
	berth_result own = join_begin(c, d, all, why);
	uint64_t worst = 0;
	berth_result rc = device_agree(c, JOINS, own, &worst, deadline_ns);
	const char *said;

	if (!rc && !worst) {
		own = await_group(c, d, op, deadline_ns);
		said = own ? d->back->says(d->group) : NULL;
		if (said)
			snprintf(why, sizeof why, "%s", said);
		rc = c->broken || own == BERTH_ABORTED
			     ? own
			     : device_agree(c, JOINED, own, &worst, deadline_ns);
	}
	if ((rc || worst) && d->group) {
		works_lock();
		d->revoked = true;
		d->back->revoke(d->group);
		works_unlock();
	}
	d->whole = !rc && !worst;
	if (!rc && worst)
		snprintf(d->why, sizeof d->why,
			 "the ranks' devices can't be joined: %s",
			 own == worst && *why ? why
					      : berth_result_text((berth_result)worst));
	return rc;
}

/* All that the group can't do goes by way of the host from now on, if all ranks have
 * room for that. */
static berth_result device_open_staged(struct comm *c, struct comm_device *d,
				       uint64_t deadline_ns)
{
	struct join_call call = { .c = c, .d = d, .stages = d->back };
	uint64_t failed;
	berth_result rc;

	apart_call(device_ask_stage, &call);
	rc = device_agree(c, STAGED, !call.staged, &failed, deadline_ns);
	if (!rc && !failed) {
		d->staged = call.staged;
		return BERTH_OK;
	}
	staged_close(call.staged);
	if (!rc && !d->whole)
		snprintf(d->why, sizeof d->why,
			 "a rank has no memory for copies to the host: %s",
			 call.staged ? "another one" : call.no_stage);
	return rc;
}

/* The first rank of a set says why NCCL is not used, or what it does not protect; once
 * in a process. */
static void device_say_way(const struct comm *c, const struct comm_device *d,
			   bool asked)
{
	static _Atomic bool said[2];
	const unsigned first = c->members->rank[0];
	const char *host = boot_host_name(&c->world->who, first);

	if (c->members->me || atomic_exchange(&said[d->whole], true))
		return;
	if (d->staged && !d->whole && !asked)
		log_say(BERTH_LOG_WARNING,
			"arrays in GPU memory go through the host's memory, in the set "
			"of rank %u on '%s': %s",
			first, host, d->why);
	if (d->whole && c->net && params_is_given("BERTH_NET_SECURE"))
		log_say(BERTH_LOG_WARNING,
			"NCCL neither authenticates nor encrypts what it sends between "
			"hosts: BERTH_NET_SECURE does not reach arrays in GPU memory");
}

/* As device_say_way(), of the first such operation. */
static void device_say_mixed(const struct comm *c, const struct op *op)
{
	static _Atomic bool said;
	char words[OP_WORDS_BYTES];

	if (c->members->me || atomic_exchange(&said, true))
		return;
	op_words(words, sizeof words, op);
	log_say(BERTH_LOG_WARNING,
		"%s: some ranks have it in GPU memory and others in the host's: it "
		"goes through the host's memory, in the set of rank %u on '%s'",
		words, c->members->rank[0],
		boot_host_name(&c->world->who, c->members->rank[0]));
}

/* All ranks come to it.  Neither whole nor staged: the same on all of them. */
static berth_result device_join(struct comm *c, struct comm_device *d,
				const struct op *op, uint64_t deadline_ns)
{
	struct card *all = calloc(c->members->n, sizeof *all);
	struct cards_say say;
	berth_result rc;

	if (!all)
		return BERTH_MEMORY;
	rc = tell_cards(c, d, all, deadline_ns);
	d->tried = !rc;
	say = cards_say(c, all, d->why, sizeof d->why);
	if (!rc && !say.refuses && !say.cannot && !say.by_host)
		rc = join_group(c, d, all, op, deadline_ns);
	if (!rc && !say.refuses && !say.only_nccl)
		rc = device_open_staged(c, d, deadline_ns);
	if (!rc)
		device_say_way(c, d, say.by_host);
	free(all);
	return rc;
}

/* ---- an operation ---- */

static _Atomic int last_device;

int comm_device_last(void)
{
	return atomic_load(&last_device);
}

static struct comm_device *device_for(struct comm *c, const struct op *op)
{
	struct comm_device *d = atomic_load(&c->device);

	if (!d) {
		d = calloc(1, sizeof *d);
		if (!d)
			return NULL;
		d->device = -1;
		atomic_store(&c->device, d);
	}
	if (op_is_device(op) && !d->back) {
		d->back = device_of(op->memory);
		atomic_store(&last_device, op->device);
		atomic_store(&d->device, op->device);
	}
	return d;
}

void comm_device_limit(struct work *w, const struct op *op)
{
	const int64_t ms = op->timeout_ms ? op->timeout_ms : w->comm->world->timeout_ms;

	if (ms > 0 && (!w->limit_ns || (uint64_t)ms * 1000000 < w->limit_ns))
		w->limit_ns = (uint64_t)ms * 1000000;
}

struct work *comm_device_work(struct comm *c, const struct op *op,
			      struct work_room room)
{
	const size_t bytes = sizeof(struct work) + room.colls * sizeof(struct coll) +
			     room.pieces * sizeof(struct coll_piece) +
			     room.ready * sizeof(void *) +
			     room.requests * sizeof(struct berth_request *);
	struct comm_device *d = device_for(c, op);
	struct work *w = d ? malloc(bytes) : NULL;

	if (!w)
		return NULL;
	memset(w, 0, offsetof(struct work, kept));
	w->name[sizeof w->name - 1] = '\0';
	w->said[0] = '\0';
	w->refs = 1;
	w->comm = c;
	w->of = d;
	w->coll = (struct coll *)(w + 1);
	w->ready = (void **)(w->coll + room.colls);
	w->request = (struct berth_request **)(w->ready + room.ready);
	w->device.coll = w->coll;
	w->device.ready = w->ready;
	w->hooks = c->hooks;
	w->op = op;
	comm_device_limit(w, op);
	return w;
}

/* All are there. */
static berth_result agree_on_time(struct comm *c, struct work *w, uint64_t deadline_ns)
{
	uint64_t number = works_propose(w);
	berth_result rc = device_agree(c, TIME, number, &number, deadline_ns);

	if (!rc && number > NUMBER_MOST) {
		comm_end(c, BERTH_PEER_LOST);
		rc = BERTH_PEER_LOST;
	}
	if (!rc)
		works_agree(w, number);
	return rc;
}

/* Can't the group do W?  Then NULL, or why nothing else can, either. */
static bool goes_by_host(const struct comm_device *d, const struct work *w,
			 const char **why)
{
	*why = d->whole ? NULL : d->why;
	if (!*why && w->op->adasum)
		*why = "NCCL has no Adasum";
	for (size_t i = 0; !*why && i < w->device.n; i++)
		*why = d->back->takes(d->group, &w->coll[i]);
	return *why && d->staged;
}

/* Arrays of some ranks are in the host's memory: what begins there is done when this
 * returns. */
static berth_result device_begin_mixed(struct comm *c, struct work *w,
				       uint32_t signature, uint64_t deadline_ns)
{
	enum { GOES, NO_MEMORY, NOT_WANTED };
	const bool there = op_is_device(w->op);
	struct comm_device *d = w->of;
	struct join_call call = { .c = c,
				  .d = d,
				  .stages = there ? d->back : &host_stage };
	uint64_t worst = GOES;
	berth_result rc;

	if (!d->mixed[there]) {
		apart_call(device_ask_stage, &call);
		d->mixed[there] = call.staged;
	}
	if (!d->mixed[there])
		worst = NO_MEMORY;
	if (c->world->params.device == DEVICE_ONLY_NCCL)
		worst = NOT_WANTED;
	rc = device_agree(c, signature, worst, &worst, deadline_ns);
	if (!rc && worst != GOES) {
		c->reason = worst == NO_MEMORY
				    ? "a rank has no memory for copies to the host"
				    : "some ranks have it in the host's memory, and "
				      "BERTH_DEVICE=nccl-only allows no way between";
		return BERTH_UNSUPPORTED;
	}
	if (rc)
		return rc;
	device_say_mixed(c, w->op);
	return staged_run(c, w, d->mixed[there], signature);
}

/* Arrays of all ranks are in memory of their devices. */
static berth_result device_begin_alike(struct comm *c, struct work *w,
				       uint32_t signature, uint64_t deadline_ns)
{
	struct comm_device *d = w->of;
	/* is this process in a further set? */
	const bool sets =
		atomic_load_explicit(&c->world->next_set, memory_order_relaxed) > 1;
	const uint64_t own = sets ? 0 : works_propose(w);
	uint64_t overlaps = 0;
	const char *why = NULL;
	bool by_host = false;
	berth_result rc = device_agree(c, signature, sets, &overlaps, deadline_ns);

	if (!rc && !d->tried)
		rc = device_join(c, d, w->op, deadline_ns);
	if (!rc)
		by_host = goes_by_host(d, w, &why);
	if (by_host) {
		works_withdraw(w);
		rc = staged_run(c, w, d->staged, signature);
	} else if (!rc && why) { /* the same on all ranks */
		c->reason = why;
		rc = BERTH_UNSUPPORTED;
	}
	if (!rc && !by_host) {
		w->back = d->back;
		w->group = d->group;
		if (sets || overlaps)
			rc = agree_on_time(c, w, deadline_ns);
		else
			works_agree(w, own);
	}
	return rc;
}

berth_result comm_device_begin(struct comm *c, struct work *w, uint32_t signature,
			       uint64_t deadline_ns)
{
	berth_result rc;

	w->deadline_ns = deadline_ns;
	rc = w->op->mixed ? device_begin_mixed(c, w, signature, deadline_ns)
			  : device_begin_alike(c, w, signature, deadline_ns);
	if (!rc)
		return BERTH_OK;
	works_withdraw(w);
	if (rc != BERTH_UNSUPPORTED && rc != BERTH_INVALID && rc != BERTH_MISMATCH)
		atomic_store(&w->of->cut, true);
	return rc;
}

berth_result comm_device_run(struct comm *c, const struct op *op,
			     const struct coll *coll, uint64_t deadline_ns)
{
	const bool counts = coll->in_counts || coll->out_counts;
	const size_t n = c->members->n;
	/* in the place of requests, of which there are none */
	struct work *w = comm_device_work(
		c, op,
		(struct work_room){
			.colls = 1, .ready = 1, .requests = 1 + (counts ? 2 * n : 0) });
	uint64_t *kept;
	berth_result rc;

	if (!w)
		return BERTH_MEMORY;
	w->coll[0] = *coll;
	w->coll[0].rows = NULL;
	kept = (uint64_t *)(w->request + 1); /* the counts, behind the work */
	if (coll->in_counts)
		w->coll[0].in_counts = memcpy(kept, coll->in_counts, n * sizeof *kept);
	if (coll->out_counts)
		w->coll[0].out_counts =
			memcpy(kept + n, coll->out_counts, n * sizeof *kept);
	w->device.n = 1;
	if (op_is_device(op) && op->mark)
		w->ready[w->device.nready++] = op->mark;
	c->hooks->begins(w);
	rc = comm_device_begin(c, w, coll->signature, deadline_ns);
	if (rc) {
		c->hooks->withdrawn(w);
		works_let_go(w);
	} else {
		c->work = w;
	}
	return rc;
}

berth_result comm_device_mark(struct comm *c, struct op *op, const struct op *before,
			      const char **why)
{
	const struct device_backend *back = device_of(op->memory);
	const struct comm_device *d = atomic_load(&c->device);
	berth_result rc;
	int device;

	op->mark = NULL;
	*why = "the set's operations are on another device";
	device = d ? atomic_load(&d->device) : -1;
	/* a set has one group for each memory */
	if (device >= 0 && device != op->device)
		return BERTH_UNSUPPORTED;
	op->marked = true;
	if (op->stream == BERTH_HOST_STREAM && !op->ready)
		return BERTH_OK;
	if (before && before->mark && !before->ready && !op->ready &&
	    before->memory == op->memory && before->device == op->device &&
	    before->stream == op->stream) {
		op->mark = before->mark;
		back->share(op->mark);
		return BERTH_OK;
	}
	rc = back->mark(op->device, op->stream, op->ready, &op->mark, why);
	op->marked = !rc;
	if (!device_is_there) /* the mark may have loaded it */
		device_look();
	return rc;
}

void comm_device_forget(struct op *op)
{
	if (op->marked && op->mark)
		device_of(op->memory)->forget(op->mark);
	op->marked = false;
}

size_t comm_device_algorithms(const struct comm *c, char *text, size_t bytes)
{
	const struct comm_device *d = atomic_load(&c->device);
	char by[DEVICE_WHY_BYTES];
	const char *how;
	int n;

	if (!d || !d->tried)
		return 0;
	how = d->whole     ? "by "
	      : !d->staged ? "not at all: "
	      : *d->why    ? "through the host's memory: "
			   : "through the host's memory, as BERTH_DEVICE says";
	if (d->whole)
		d->back->tells(by);
	n = snprintf(text, bytes, "arrays in GPU memory: %s%s\n", how,
		     d->whole ? by : d->why);
	return (size_t)n;
}

/* ---- the end ---- */

static bool has_lost(const struct comm *c)
{
	for (unsigned i = 0; i < c->members->n; i++)
		if (i != c->members->me && missing_has_ended(c, i))
			return true;
	return false;
}

bool comm_device_ends(struct comm *c)
{
	struct comm_device *d = atomic_load(&c->device);

	const uint64_t now = clock_ns();
	bool hopeless = false;

	if (!d || !atomic_load(&d->works))
		return true;
	if (!d->leaves_ns)
		d->leaves_ns = now;
	/* does another rank not do what this one does? */
	if (c->members->n > 1)
		hopeless = atomic_load(&c->aborts) ||
			   atomic_load(&c->shared->aborted) || has_lost(c);
	/* where ranks have parted, one that stays does not say what it has not
	 * started */
	if (hopeless || (now - d->leaves_ns > PATIENCE_NS &&
			 (atomic_load(&c->broken) || !works_are_promised(d))))
		atomic_store(&d->stopped, true);
	return !atomic_load(&d->works);
}

bool comm_device_was_cut(struct comm *c)
{
	struct comm_device *d = atomic_load(&c->device);
	const bool cut = d && (d->cut || (d->whole && d->revoked));

	if (cut)
		d->cut = d->whole = false;
	return cut && c->members->n > 1 && !has_lost(c);
}

void comm_device_close(struct comm *c)
{
	struct comm_device *d = atomic_load(&c->device);

	if (!d)
		return;
	works_end(d);
	if (d->group)
		d->back->leave(d->group);
	staged_close(d->staged);
	staged_close(d->mixed[false]);
	staged_close(d->mixed[true]);
	free(d);
	atomic_store(&c->device, NULL);
}
