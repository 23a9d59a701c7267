#include "lib/core/comm.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "lib/backend/coll_rows.h"
#include "lib/backend/hier.h"
#include "lib/backend/shm.h"
#include "lib/backend/tcp.h"
#include "lib/base/clock.h"
#include "lib/base/fiber.h"
#include "lib/base/kern.h"
#include "lib/base/log.h"
#include "lib/base/rank_text.h"
#include "lib/core/fault.h"
#include "lib/core/missing.h"
#include "lib/core/stall.h"
#include "lib/core/trace.h"
#include "lib/core/world.h"

enum {
	SAME_TIME_NS = 200000000, /* by which ranks' deadlines may differ */
	TOLD_NS = 200000000,      /* until a rank is told why another one has aborted */
	TOLD_LOOK_NS = 1000000,
	LOOKS_CLOSED = 3 /* at a closed connection, before it is asked why */
};

/* ---- while it waits ---- */

void comm_stalled(struct comm *c, uint64_t begun_ns, uint64_t *reported_ns,
		  const unsigned *place, size_t n)
{
	const struct params *k = &c->world->params;
	uint64_t now = clock_ns();
	struct stall s = { .waited_ms = (now - begun_ns) / 1000000 };
	char words[OP_WORDS_BYTES];

	if (k->stall_off || !stall_is_due(k, begun_ns, *reported_ns, now))
		return;
	*reported_ns = now;
	trace_count(&c->count.stalls, 1);
	op_words(words, sizeof words, c->op);
	s.words = words;
	for (; s.nmissing < n && s.nmissing < STALL_MISSING_MOST; s.nmissing++)
		s.missing[s.nmissing] = c->members->rank[place[s.nmissing]];
	stall_tell(c->world, &s);
}

bool comm_is_over(const struct comm *c, uint64_t begun_ns, uint64_t deadline_ns)
{
	const struct params *k = &c->world->params;
	uint64_t now = clock_ns();

	if (deadline_ns && now >= deadline_ns)
		return true;
	return !k->stall_off && k->stall_end_ms &&
	       now - begun_ns >= (uint64_t)k->stall_end_ms * 1000000;
}

static berth_result look_for_stall(struct comm *c, uint64_t now)
{
	const struct params *k = &c->world->params;
	unsigned place[STALL_MISSING_MOST];
	size_t n = 0;

	if (c->no_stall_check || !c->op || k->stall_off)
		return BERTH_OK;
	if (comm_is_over(c, c->begun_ns, 0))
		return BERTH_TIMEOUT;
	if (!stall_is_due(k, c->begun_ns, c->reported_ns, now))
		return BERTH_OK;
	for (unsigned i = 0; i < c->members->n && n < STALL_MISSING_MOST; i++)
		if (i != c->members->me && missing_is_behind(c, i))
			place[n++] = i;
	comm_stalled(c, c->begun_ns, &c->reported_ns, place, n);
	return BERTH_OK;
}

/* The place of who has aborted the set. */
static unsigned comm_aborter(const struct comm *c)
{
	unsigned by = atomic_load(&c->shared->aborted);

	return by && by <= c->members->n ? by - 1 : c->members->me;
}

/* Has this rank, or another, ended what the set does? */
static berth_result look_for_end(struct comm *c)
{
	if (atomic_load(&c->shared->aborted))
		atomic_store(&c->aborts, true);
	if (atomic_load(&c->aborts) && c->net)
		net_break(c->net, comm_aborter(c), BERTH_ABORTED);
	if (atomic_load(&c->aborted) || atomic_load(&c->aborts))
		return BERTH_ABORTED;
	for (unsigned i = 0; c->id && i < c->members->n; i++)
		if (i != c->members->me && missing_has_left(c, i)) {
			c->left = i;
			return BERTH_ABORTED;
		}
	return BERTH_OK;
}

static berth_result comm_look(void *ctx)
{
	struct comm *c = ctx;
	uint64_t now = clock_ns();

	if (look_for_end(c))
		return BERTH_ABORTED;
	if (!c->begun_ns)
		c->begun_ns = c->reported_ns = now;
	atomic_store(&c->world->memory.rank[c->world->memory.local_rank].waits, 1);
	for (unsigned i = 0; i < c->members->n; i++)
		if (i != c->members->me && missing_is_lost(c, i)) {
			c->lost = i;
			c->ngone = missing_lost(c, c->gone, 64);
			if (c->net) /* which tells the others who it is */
				net_break(c->net, i, BERTH_PEER_LOST);
			return BERTH_PEER_LOST;
		}
	return look_for_stall(c, now);
}

static void comm_idle(void *ctx)
{
	struct comm *c = ctx;
	berth_result rc = comm_look(c);

	if (rc)
		c->back->revoke(c->group, rc, c->lost);
}

/* ---- open, close ---- */

struct net *comm_net(struct world *w, const struct members *m, uint64_t id, bool all,
		     char *why, size_t why_bytes)
{
	struct net_config config = {
		.rank = m->me,
		.size = m->n,
		.door = w->door,
		.ranks = m->rank,
		.id = id,
		.epoch = (uint32_t)w->who.epoch,
		.guard = w->params.guard,
		.leaver = all ? BERTH_PEER_LOST : BERTH_ABORTED,
		.spins = w->who.local_size <= w->cores ? 20000 : 20,
	};

	return net_open(&config, why, why_bytes);
}

static struct shm *join_memory(struct comm *c, void *region)
{
	const struct world *w = c->world;
	struct shm_config config = { .n = c->members->nlocal,
				     .me = c->members->local_me,
				     .region = region,
				     .cores = w->cores,
				     .heap = w->memory.heap,
				     .heap_bytes = w->memory.heap_bytes,
				     .done = &c->done,
				     .bells = &c->bells,
				     .idle = comm_idle,
				     .ctx = c };

	return shm_join(&config);
}

static berth_result comm_join(struct comm *c, void *region)
{
	const struct members *m = c->members;
	struct hier_config hier = { .way = &hier_ways[HIER_HOST],
				    .net = c->net,
				    .members = m,
				    .algorithms = c->world->params.algorithms };

	if (!region)
		return BERTH_MEMORY;
	c->shared = region_shared(region, m->nlocal);
	hier.local = join_memory(c, region);
	if (hier.local && m->nlocal == m->n) {
		c->back = hier.way->local;
		c->group = hier.local;
	} else if (hier.local && c->net) {
		c->back = &hier_backend;
		c->group = hier_join(&hier);
	}
	return c->group ? BERTH_OK : BERTH_MEMORY;
}

static berth_result comm_find_bells(struct comm *c)
{
	const struct members *m = c->members;
	struct world *w = c->world;
	struct bell *bell = region_bells(memory_region(&w->memory), w->who.local_size);

	c->bells = (struct bells){ .n = m->nlocal,
				   .me = m->local_me,
				   .of = calloc(m->nlocal, sizeof *c->bells.of),
				   .fd = w->bell_fd };
	for (unsigned i = 0; c->bells.of && i < m->nlocal; i++)
		c->bells.of[i] = &bell[w->local[m->rank[members_place(m, m->here, i)]]];
	return c->bells.of ? BERTH_OK : BERTH_MEMORY;
}

berth_result comm_open(struct comm *c, const struct comm_config *config)
{
	memset(c, 0, sizeof *c);
	c->world = config->world;
	c->members = config->members;
	c->id = config->id;
	c->net = config->net;
	c->hooks = config->hooks;
	c->lost = c->members->n;
	c->left = c->members->n;
	c->said = calloc(c->members->n, sizeof *c->said);
	if (!c->said || comm_find_bells(c))
		return BERTH_MEMORY;
	if (c->net)
		net_watch(c->net, comm_look, &c->done, c);
	return comm_join(c, config->region);
}

void comm_close(struct comm *c)
{
	if (c->group)
		c->back->leave(c->group);
	net_close(c->net);
	free(c->bells.of);
	free(c->said);
	free(c->scratch);
	free(c->kept);
	memset(c, 0, sizeof *c);
}

void comm_end(struct comm *c, berth_result rc)
{
	if (c->group)
		c->back->revoke(c->group, rc, c->members->me);
}

berth_result comm_refuse(struct comm *c, unsigned place)
{
	c->lost = place;
	c->gone[0] = c->members->rank[place];
	c->ngone = 1;
	c->refused = true;
	c->back->revoke(c->group, BERTH_PEER_LOST, place);
	return BERTH_PEER_LOST;
}

void *comm_scratch(struct comm *c, size_t bytes)
{
	if (bytes > c->scratch_bytes) {
		free(c->scratch);
		c->scratch_bytes = 0;
		c->scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
		if (c->scratch)
			c->scratch_bytes = bytes;
	}
	return bytes ? c->scratch : c->said;
}

uint64_t comm_deadline(const struct comm *c, const struct op *op)
{
	int64_t ms = op->timeout_ms ? op->timeout_ms : c->world->timeout_ms;

	return ms > 0 ? clock_until(ms) : 0;
}

/* ---- what failed, in words ---- */

static void say_missing(struct comm *c, struct failure *why, const char *words)
{
	size_t n = missing_find(c, why->rc, why->missing, 64);
	const char *fate = c->net && n == 1 ? net_lanes.unreached(c->net) : NULL;
	const struct net_fault *f = c->net ? net_fault(c->net) : NULL;
	char ranks[256], cut[200] = "";

	why->nmissing = n;
	if (!n) {
		snprintf(why->text, sizeof why->text, "%s: %s", words,
			 why->rc == BERTH_TIMEOUT ? "the time of another rank was over "
						    "before this one came"
						  : "another rank has ended");
		return;
	}
	if (c->refused)
		fate = "sent invalid data";
	else if (!fate) {
		fate = n == 1 ? "has ended" : "have ended";
		if (n == 1 && why->rc == BERTH_PEER_LOST)
			fault_say_cut(c, f, *why->missing, cut, sizeof cut);
	}
	if (why->rc == BERTH_TIMEOUT)
		fate = "did not come in time";
	rank_text(ranks, sizeof ranks, why->missing, n);
	snprintf(why->text, sizeof why->text, "%s: rank%s %s%s%s%s %s%s", words,
		 n == 1 ? "" : "s", ranks, n == 1 ? " on '" : "",
		 n == 1 ? boot_host_name(&c->world->who, why->missing[0]) : "",
		 n == 1 ? "'" : "", fate, cut);
}

void comm_say_end(const struct comm *c, struct failure *why, const char *words)
{
	const struct region_shared *s = c->shared;
	unsigned by = atomic_load(&s->aborted), who = c->left;

	if (c->aborted) {
		snprintf(why->text, sizeof why->text, "%s: " COMM_ENDED, words);
		return;
	}
	if (by && by <= c->members->n)
		snprintf(why->text, sizeof why->text,
			 "%s: rank %u aborted the set%s%.200s", words,
			 c->members->rank[by - 1], *s->why ? ": " : "", s->why);
	else if (c->net && who == c->members->n)
		who = net_lost(c->net);
	for (unsigned i = 0; !by && who == c->members->n && i < c->members->n; i++)
		if (i != c->members->me &&
		    missing_has_left(c, i)) /* as another rank saw */
			who = i;
	who = who > c->members->n ? c->members->n : who;
	if (!*why->text && who < c->members->n)
		snprintf(why->text, sizeof why->text,
			 "%s: rank %u left the set, or aborted it", words,
			 c->members->rank[who]);
	else if (!*why->text)
		snprintf(why->text, sizeof why->text,
			 "%s: another rank left the set, or aborted it", words);
}

berth_result comm_failed(struct comm *c, berth_result rc, const struct op *op,
			 struct failure *why)
{
	const uint64_t told_ns = clock_ns() + TOLD_NS;
	char words[OP_WORDS_BYTES];

	/* A rank whose time was over first has ended it for all.  In the middle of a
	 * message it could not say so: its stream has just ended. */
	if ((rc == BERTH_PEER_LOST || rc == BERTH_ABORTED) &&
	    c->lost == c->members->n && c->left == c->members->n &&
	    !c->shared->aborted && !c->aborted && c->deadline_ns &&
	    clock_ns() + SAME_TIME_NS >= c->deadline_ns)
		rc = BERTH_TIMEOUT;
	if (c->aborted)
		rc = BERTH_ABORTED;
	memset(why, 0, sizeof *why);
	why->rc = rc;
	if (op->name)
		snprintf(why->tensor, sizeof why->tensor, "%s", op->name);
	op_words(words, sizeof words, op);
	/* A rank that aborts the set tells each other rank so, with the reason.  It
	 * breaks off its connections, too, and a rank may see that first. */
	while (rc == BERTH_ABORTED && c->net && !c->aborted &&
	       !atomic_load(&c->shared->aborted) && c->left == c->members->n &&
	       clock_ns() < told_ns)
		fiber_pause(TOLD_LOOK_NS);
	if (rc == BERTH_PEER_LOST || rc == BERTH_TIMEOUT)
		say_missing(c, why, words);
	else if (rc == BERTH_ABORTED)
		comm_say_end(c, why, words);
	else if (rc == BERTH_AUTH)
		fault_say(c, c->net ? net_fault(c->net) : NULL, why, words);
	else
		snprintf(why->text, sizeof why->text, "%s: %s", words,
			 c->reason ? c->reason : berth_result_text(rc));
	c->reason = NULL;
	/* what all ranks come to alike, or nobody waits for, breaks nothing */
	if (rc == BERTH_UNSUPPORTED || rc == BERTH_INVALID || c->members->n == 1 ||
	    c->broken)
		return rc;
	if (rc == BERTH_PEER_LOST && why->nmissing)
		atomic_store(
			&c->world->memory.rank[c->world->memory.local_rank].failed_peer,
			why->missing[0] + 1);
	c->finally = *why;
	atomic_store(&c->broken, rc);
	if (rc == BERTH_MEMORY) /* of this rank alone, for which the others wait */
		comm_end(c, rc);
	/* Only ranks of its host see that a rank leaves a set.  Ranks of other hosts
	 * that wait for this one hear of it here. */
	if (rc == BERTH_ABORTED && !c->aborted && c->net)
		net_break(c->net, c->left, rc);
	return rc;
}

berth_result comm_note_failure(berth_result rc, const struct failure *why)
{
	static const struct failure none;
	const struct failure *f = why ? why : &none;
	const char *text = rc ? berth_result_text(rc) : "";

	return log_error(rc, f->tensor, f->missing, f->nmissing, "%s",
			 *f->text ? f->text : text);
}

berth_result comm_broken(const struct comm *c, struct failure *why)
{
	berth_result rc = atomic_load(&c->broken);

	if (rc)
		*why = c->finally;
	return rc;
}

/* The first rank that aborts gives the reason. */
void comm_hear_abort(struct comm *c, unsigned place, const char *why)
{
	struct region_shared *s = c->shared;
	uint32_t nobody = 0;

	if (atomic_compare_exchange_strong(&s->aborting, &nobody, place + 1)) {
		snprintf(s->why, sizeof s->why, "%s", why ? why : "");
		atomic_store(&s->aborted, place + 1);
	}
	atomic_store(&c->aborts, true);
}

void comm_say_abort(struct comm *c, const char *why)
{
	comm_hear_abort(c, c->members->me, why);
}

void comm_abort(struct comm *c)
{
	if (c->broken)
		return;
	c->finally = (struct failure){ .rc = BERTH_ABORTED };
	comm_say_end(c, &c->finally, "an operation");
	atomic_store(&c->broken, BERTH_ABORTED);
	if (c->members->n > 1)
		c->back->revoke(c->group, BERTH_ABORTED, comm_aborter(c));
	if (c->net)
		net_break(c->net, comm_aborter(c), BERTH_ABORTED);
}

/* ---- running ---- */

/* Has a peer of another host closed its connection?  It may have said why. */
static bool has_closed(const struct comm *c)
{
	struct pollfd *p =
		c->net ? calloc((size_t)c->members->n * NET_LANES + 1, sizeof *p)
		       : NULL;
	size_t n = p ? net_sockets(c->net, p) : 0;
	bool closed = false;

	for (size_t i = 0; i < n; i++)
		p[i].events = POLLRDHUP;
	if (n && poll(p, n, 0) > 0)
		for (size_t i = 0; i < n; i++)
			closed |= p[i].revents != 0;
	free(p);
	return closed;
}

/* An operation with such a peer fails, and tells of which rank. */
static berth_result ask_why(struct comm *c)
{
	enum { SOON_MS = 1000 };
	const struct coll barrier = { .kind = BERTH_BARRIER, .signature = 0x434c4f53 };
	berth_result rc = comm_step(c, &barrier, clock_until(SOON_MS));

	c->deadline_ns = 0; /* what was over is not the operation's time */
	if (rc == BERTH_TIMEOUT && net_waits_for(c->net) < c->members->n)
		c->lost = net_waits_for(c->net);
	return rc == BERTH_MISMATCH || rc == BERTH_TIMEOUT ? BERTH_PEER_LOST : rc;
}

/* A rank of this host has given up, for another one. */
static berth_result look_for_given_up(struct comm *c)
{
	c->ngone = missing_lost(c, c->gone, 64);
	for (unsigned i = 0; c->ngone && i < c->members->n; i++)
		if (c->members->rank[i] == c->gone[0])
			c->lost = i;
	return c->ngone ? BERTH_PEER_LOST : BERTH_OK;
}

/* The place of a rank of this host that has left the set; N: none has. */
static unsigned find_gone(const struct comm *c)
{
	unsigned i = 0;

	while (i < c->members->n && (i == c->members->me || !missing_has_gone(c, i)))
		i++;
	return i;
}

/* A running operation may end meanwhile: a rank that has done its part may leave. */
static berth_result look_beyond(struct comm *c)
{
	berth_result rc = look_for_given_up(c);
	const unsigned gone = find_gone(c);

	c->closed = !rc && (gone < c->members->n || has_closed(c)) ? c->closed + 1 : 0;
	if (c->closed <= LOOKS_CLOSED)
		return rc;
	if (gone == c->members->n)
		return ask_why(c);
	c->left = gone;
	return BERTH_ABORTED;
}

berth_result comm_watch(struct comm *c, const struct op *op, uint64_t begun_ns,
			uint64_t deadline_ns)
{
	struct memory *m = &c->world->memory;
	struct failure why;
	berth_result rc = BERTH_OK;

	if (c->broken)
		return c->broken;
	c->op = op;
	c->no_stall_check = true;
	if (c->members->n > 1 && !c->aborted) {
		rc = comm_look(c);
		if (!rc)
			rc = look_beyond(c);
		if (!rc && c->back->ended) /* say, since its time is over */
			rc = c->back->ended(c->group);
	}
	c->no_stall_check = false;
	c->begun_ns = 0;
	atomic_store(&m->rank[m->local_rank].waits, 0);
	if (!rc && comm_is_over(c, begun_ns, deadline_ns))
		rc = BERTH_TIMEOUT;
	if (!rc)
		return BERTH_OK;
	if (c->members->n > 1)
		c->back->revoke(c->group, rc, c->lost);
	return comm_failed(c, rc, op, &why);
}

berth_result comm_step(struct comm *c, const struct coll *coll, uint64_t deadline_ns)
{
	c->deadline_ns = deadline_ns;
	if (coll->rows)
		return coll_run_rows(c->back, c->group, coll, deadline_ns);
	return c->back->begin(c->group, coll, deadline_ns);
}

berth_result comm_explain(struct comm *c, const char *text, const char ***said)
{
	*said = c->said;
	return c->back->explain(c->group, text, c->said);
}
