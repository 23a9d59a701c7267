#include "lib/channel.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "lib/kern.h"
#include "lib/log.h"
#include "lib/shm.h"
#include "lib/stall.h"
#include "lib/tcp.h"
#include "lib/two.h"
#include "lib/world.h"

enum {
	SAME_TIME_NS = 200000000, /* by which ranks' deadlines may differ */
	SAID_MS = 20              /* in which who gives up says for whose sake */
};

/* ---- while it waits ---- */

/* Of the host's rank LOCAL: the last turn that it began here. */
static uint32_t turn_of(const struct channel *c, unsigned local)
{
	struct memory *m = &c->world->memory;
	const struct boot_flight *ring =
		m->flights +
		((ptrdiff_t)local - (ptrdiff_t)m->local_rank) * BOOT_FLIGHTS;
	uint64_t last = atomic_load(&m->rank[local].number);

	for (uint64_t i = last; i && i + BOOT_FLIGHTS > last; i--) {
		const struct boot_flight *f = &ring[(i - 1) % BOOT_FLIGHTS];

		if (atomic_load(&f->number) == i && f->set == c->id)
			return f->turn;
	}
	return 0;
}

/* Has not come to the operation that we are in, as far as can be seen from here. */
static bool is_behind(const struct channel *c, unsigned place)
{
	unsigned local = c->world->local[c->rank[place]];

	return local != WORLD_NOT_HERE ? (int32_t)(turn_of(c, local) - c->turn) < 0
				       : c->net && net_waits_for(c->net) == place;
}

static bool is_gone(const struct channel *c, unsigned place)
{
	const struct memory *m = &c->world->memory;
	unsigned rank = c->rank[place], local = c->world->local[rank];

	if (memory_is_lost(m, rank, local == WORLD_NOT_HERE ? -1 : (int)local))
		return true;
	return local != WORLD_NOT_HERE &&
	       atomic_load(&m->rank[local].state) == BOOT_LEFT && is_behind(c, place);
}

/* For whose sake the rank of PLACE gave up, where it says so; N: for nobody's. */
static unsigned blamed_by(const struct channel *c, unsigned place)
{
	const struct memory *m = &c->world->memory;
	const unsigned local = c->world->local[c->rank[place]];
	uint32_t blames = 0;
	unsigned i = 0;

	if (local != WORLD_NOT_HERE)
		blames = atomic_load(&m->rank[local].blames);
	while (i < c->n && (c->rank[i] + 1 != blames || i == c->me))
		i++;
	return i;
}

/* Did it give up before it went?  It may have lived on in sets without that other. */
static bool follows(const struct channel *c, unsigned place)
{
	return blamed_by(c, place) < c->n ||
	       memory_follows(&c->world->memory, c->rank[place]);
}

static size_t list_gone(const struct channel *c, bool followers, unsigned *rank,
			size_t most)
{
	size_t n = 0;

	for (unsigned i = 0; i < c->n && n < most; i++)
		if (i != c->me && is_gone(c, i) && follows(c, i) == followers)
			rank[n++] = c->rank[i];
	return n;
}

/* Ranks that are gone by themselves.  Where there are none, who gave up knows it. */
static size_t find_gone(const struct channel *c, unsigned *rank, size_t most)
{
	size_t n = list_gone(c, false, rank, most);

	for (unsigned i = 0; i < c->n && !n && most; i++)
		if (i != c->me && blamed_by(c, i) < c->n)
			rank[n++] = c->rank[blamed_by(c, i)];
	return n;
}

static size_t missing(const struct channel *c, unsigned *rank, size_t most)
{
	size_t n = 0;

	for (unsigned i = 0; i < c->n && n < most; i++)
		if (i != c->me && is_behind(c, i))
			rank[n++] = c->rank[i];
	return n;
}

void channel_stalled(struct channel *c, uint64_t begun_ns, uint64_t *reported_ns,
		     const unsigned *place, size_t n)
{
	const struct knobs *k = &c->world->knobs;
	uint64_t now = trace_ns();
	struct stall s = { .world = c->world, .waited_ms = (now - begun_ns) / 1000000 };
	char words[OP_WORDS_BYTES];

	if (k->stall_off || !stall_is_due(k, begun_ns, *reported_ns, now))
		return;
	*reported_ns = now;
	trace_count(&c->count.stalls, 1);
	op_words(words, sizeof words, c->op);
	s.words = words;
	for (; s.nmissing < n && s.nmissing < STALL_MISSING_MOST; s.nmissing++)
		s.missing[s.nmissing] = c->rank[place[s.nmissing]];
	world_stalled(&s);
}

bool channel_is_over(const struct channel *c, uint64_t begun_ns, uint64_t deadline_ns)
{
	const struct knobs *k = &c->world->knobs;
	uint64_t now = trace_ns();

	if (deadline_ns && now >= deadline_ns)
		return true;
	return !k->stall_off && k->stall_end_ms &&
	       now - begun_ns >= (uint64_t)k->stall_end_ms * 1000000;
}

static berth_result look_for_stall(struct channel *c, uint64_t now)
{
	const struct knobs *k = &c->world->knobs;
	unsigned place[STALL_MISSING_MOST];
	size_t n = 0;

	if (c->patient || !c->op || k->stall_off)
		return BERTH_OK;
	if (channel_is_over(c, c->begun_ns, 0))
		return BERTH_TIMEOUT;
	if (!stall_is_due(k, c->begun_ns, c->reported_ns, now))
		return BERTH_OK;
	for (unsigned i = 0; i < c->n && n < STALL_MISSING_MOST; i++)
		if (i != c->me && is_behind(c, i))
			place[n++] = i;
	channel_stalled(c, c->begun_ns, &c->reported_ns, place, n);
	return BERTH_OK;
}

static berth_result look(void *ctx)
{
	struct channel *c = ctx;
	uint64_t now = trace_ns();

	if (atomic_load(&c->ends))
		return BERTH_ABORTED;
	if (!c->begun_ns)
		c->begun_ns = c->reported_ns = now;
	atomic_store(&c->world->memory.rank[c->world->memory.local_rank].waits, 1);
	for (unsigned i = 0; i < c->n; i++)
		if (i != c->me && is_gone(c, i)) {
			c->lost = i;
			c->ngone = find_gone(c, c->gone, 64);
			if (c->net) /* which tells the others who it is */
				net_break(c->net, i);
			return BERTH_PEER_LOST;
		}
	return look_for_stall(c, now);
}

static void idle(void *ctx)
{
	struct channel *c = ctx;
	berth_result rc = look(c);

	if (rc)
		c->back->end(c->group, rc, c->lost);
}

/* ---- open, close ---- */

struct net *channel_net(struct world *w, unsigned n, unsigned me, char *why,
			size_t why_bytes)
{
	struct net_config config = { .rank = me,
				     .size = n,
				     .key = w->who.key,
				     .range = w->knobs.net,
				     .interfaces = w->knobs.interfaces };

	config.spins = w->who.local_size <= w->cores ? 20000 : 20;
	return net_open(&config, why, why_bytes);
}

static struct shm *join_memory(struct channel *c, void *region, unsigned n, unsigned me)
{
	const struct world *w = c->world;
	struct shm_config config = { .n = n,
				     .me = me,
				     .region = region,
				     .cores = w->cores,
				     .heap = w->memory.heap,
				     .heap_bytes = w->memory.heap_bytes,
				     .idle = idle,
				     .ctx = c };

	return shm_join(&config);
}

static berth_result join(struct channel *c, const struct channel_config *config)
{
	unsigned nlocal = 0, me = 0, *host = calloc(c->n, sizeof *host),
		 *place = calloc(c->n, sizeof *place);
	struct two_config two = { .net = c->net, .n = c->n, .me = c->me };

	for (unsigned i = 0; host && place && i < c->n; i++) {
		place[i] = i;
		host[i] = c->world->who.host[c->rank[i]];
		if (i == c->me)
			me = nlocal;
		nlocal += host[i] == c->world->who.host[c->rank[c->me]];
	}
	two.host = host;
	two.rank = place;
	if (host && place && config->region)
		two.local = join_memory(c, config->region, nlocal, me);
	if (two.local && nlocal == c->n) {
		c->back = &shm_backend;
		c->group = two.local;
	} else if (two.local && nlocal > 0 && c->net) {
		c->back = &two_backend;
		c->group = two_join(&two);
	}
	free(host);
	free(place);
	return c->group ? BERTH_OK : BERTH_MEMORY;
}

berth_result channel_open(struct channel *c, const struct channel_config *config)
{
	berth_result rc = BERTH_OK;

	memset(c, 0, sizeof *c);
	c->world = config->world;
	c->n = config->n;
	c->me = config->me;
	c->rank = config->rank;
	c->id = config->id;
	c->net = config->net;
	c->lost = c->n;
	c->said = calloc(c->n, sizeof *c->said);
	if (!c->said)
		return BERTH_MEMORY;
	for (unsigned i = 0; !rc && c->net && i < c->n; i++)
		rc = net_peer(c->net, i, config->address[i]);
	if (c->net)
		net_watch(c->net, look, c);
	return rc ? rc : join(c, config);
}

void channel_close(struct channel *c)
{
	if (c->group)
		c->back->leave(c->group);
	if (c->net)
		net_close(c->net);
	free(c->said);
	free(c->scratch);
	free(c->kept);
	memset(c, 0, sizeof *c);
}

void channel_end(struct channel *c, berth_result rc)
{
	if (c->group)
		c->back->end(c->group, rc, c->me);
}

void *channel_scratch(struct channel *c, size_t bytes)
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

uint64_t channel_deadline(const struct channel *c, const struct op *op)
{
	int64_t ms = op->timeout_ms ? op->timeout_ms : c->world->timeout_ms;

	return ms > 0 ? trace_until(ms) : 0;
}

/* ---- what failed, in words ---- */

/* Those of several hosts that have not come to the operation, by what their agents see;
 * whom this rank waited for need not be among them, as it may wait for them itself. */
static size_t find_behind(struct channel *c, unsigned *rank, size_t most)
{
	const struct world *w = c->world;
	size_t n = c->net && c->op && w->boot->behind
			   ? w->boot->behind(w->boot_state, rank, most)
			   : 0,
	       ours = 0;

	for (size_t i = 0; i < n; i++)
		for (unsigned k = 0; k < c->n; k++)
			if (c->rank[k] == rank[i])
				rank[ours++] = rank[i];
	return ours;
}

/* Somebody has ended the operation, and says in a moment why. */
static size_t find_lost(const struct channel *c, unsigned *rank, size_t most)
{
	const unsigned lost = c->net ? net_lost(c->net) : c->n;
	size_t n = 0;

	if (lost < c->n && lost != c->me && most) {
		*rank = c->rank[lost];
		return 1;
	}
	for (unsigned ms = 0; !n && ms < SAID_MS; ms++) {
		n = find_gone(c, rank, most);
		if (!n)
			poll(NULL, 0, 1);
	}
	return n ? n : list_gone(c, true, rank, most);
}

/* Ranks of the job that are the reason, by what this channel has seen itself, by what
 * its back end heard, or by looking: another rank may have ended the operation. */
static size_t find_missing(struct channel *c, berth_result rc, unsigned *rank,
			   size_t most)
{
	size_t n;

	for (n = 0; n < c->nlate && n < most; n++)
		rank[n] = c->rank[c->late[n]];
	if (n)
		return n;
	for (n = 0; n < c->ngone && n < most; n++)
		rank[n] = c->gone[n];
	if (n)
		return n;
	n = rc == BERTH_TIMEOUT ? find_behind(c, rank, most) : 0;
	if (!n && rc == BERTH_TIMEOUT && c->op)
		n = missing(c, rank, most);
	if (n)
		return n;
	n = c->back->others(c->group, rank, most);
	n = n < most ? n : most;
	for (size_t i = 0; i < n; i++)
		rank[i] = c->rank[rank[i]];
	return rc == BERTH_PEER_LOST && !n ? find_lost(c, rank, most) : n;
}

static void say_missing(struct channel *c, struct failure *why, const char *words)
{
	size_t n = find_missing(c, why->rc, why->missing, 64);
	const char *fate = c->net && n == 1 ? net_unreached(c->net) : NULL;
	char ranks[256];

	why->nmissing = n;
	if (!n) {
		snprintf(why->text, sizeof why->text, "%s: %s", words,
			 why->rc == BERTH_TIMEOUT ? "the time of another rank was over "
						    "before this one came"
						  : "another rank has ended");
		return;
	}
	if (!fate)
		fate = n == 1 ? "has ended" : "have ended";
	if (why->rc == BERTH_TIMEOUT)
		fate = "did not come in time";
	world_fold(ranks, sizeof ranks, why->missing, n);
	snprintf(why->text, sizeof why->text, "%s: rank%s %s%s%s%s %s", words,
		 n == 1 ? "" : "s", ranks, n == 1 ? " on '" : "",
		 n == 1 ? world_host(c->world, why->missing[0]) : "", n == 1 ? "'" : "",
		 fate);
}

berth_result channel_failed(struct channel *c, berth_result rc, const struct op *op,
			    struct failure *why)
{
	char words[OP_WORDS_BYTES];

	/* A rank whose time was over first has ended it for all, as if it had gone. */
	if (rc == BERTH_PEER_LOST && c->lost == c->n && c->deadline_ns &&
	    trace_ns() + SAME_TIME_NS >= c->deadline_ns)
		rc = BERTH_TIMEOUT;
	if (c->ends || (c->parts && rc == BERTH_PEER_LOST))
		rc = BERTH_ABORTED;
	memset(why, 0, sizeof *why);
	why->rc = rc;
	if (op->name)
		snprintf(why->tensor, sizeof why->tensor, "%s", op->name);
	op_words(words, sizeof words, op);
	if (rc == BERTH_PEER_LOST || rc == BERTH_TIMEOUT)
		say_missing(c, why, words);
	else if (rc == BERTH_ABORTED && (c->ends || c->parts))
		snprintf(why->text, sizeof why->text, "%s: " CHANNEL_ENDED, words);
	else
		snprintf(why->text, sizeof why->text, "%s: %s", words,
			 berth_result_text(rc));
	/* what all ranks come to alike, or nobody waits for, breaks nothing */
	if (rc == BERTH_UNSUPPORTED || rc == BERTH_INVALID || c->n == 1 || c->broken)
		return rc;
	if (rc == BERTH_PEER_LOST && why->nmissing)
		atomic_store(&c->world->memory.rank[c->world->memory.local_rank].blames,
			     why->missing[0] + 1);
	c->finally = *why;
	atomic_store(&c->broken, rc);
	if (rc == BERTH_MEMORY) /* of this rank alone, for which the others wait */
		channel_end(c, rc);
	return rc;
}

berth_result channel_broken(const struct channel *c, struct failure *why)
{
	berth_result rc = atomic_load(&c->broken);

	if (rc)
		*why = c->finally;
	return rc;
}

void channel_abort(struct channel *c)
{
	if (c->broken)
		return;
	c->finally = (struct failure){ .rc = BERTH_ABORTED };
	snprintf(c->finally.text, sizeof c->finally.text, CHANNEL_ENDED);
	atomic_store(&c->broken, BERTH_ABORTED);
}

/* ---- running ---- */

berth_result channel_step(struct channel *c, const struct coll *coll,
			  uint64_t deadline_ns)
{
	c->deadline_ns = deadline_ns;
	return c->back->run(c->group, coll, deadline_ns);
}

berth_result channel_explain(struct channel *c, const char *text, const char ***said)
{
	*said = c->said;
	return c->back->explain(c->group, text, c->said);
}
