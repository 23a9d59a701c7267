#include "lib/core/missing.h"

#include "lib/base/fiber.h"
#include "lib/core/world.h"

enum { SAID_MS = 20 /* in which a rank that gives up says because of which rank */ };

/* The seq of the last operation that the host's rank LOCAL began in C. */
static uint32_t seq_of(const struct comm *c, unsigned local)
{
	struct memory *m = &c->world->memory;
	const struct boot_record *ring =
		m->records +
		((ptrdiff_t)local - (ptrdiff_t)m->local_rank) * BOOT_RECORDS;
	uint64_t last = atomic_load(&m->rank[local].number);

	for (uint64_t i = last; i && i + BOOT_RECORDS > last; i--) {
		const struct boot_record *f = &ring[(i - 1) % BOOT_RECORDS];

		if (atomic_load(&f->number) == i && f->set == c->id)
			return f->seq;
	}
	return 0;
}

bool missing_is_behind(const struct comm *c, unsigned place)
{
	unsigned local = c->world->local[c->members->rank[place]];

	return local != WORLD_NOT_HERE ? (int32_t)(seq_of(c, local) - c->seq) < 0
				       : c->net && net_waits_for(c->net) == place;
}

bool missing_is_ahead(const struct comm *c, unsigned place)
{
	unsigned local = c->world->local[c->members->rank[place]];

	return local != WORLD_NOT_HERE && (int32_t)(seq_of(c, local) - c->seq) > 0;
}

bool missing_is_lost(const struct comm *c, unsigned place)
{
	const struct memory *m = &c->world->memory;
	unsigned rank = c->members->rank[place], local = c->world->local[rank];

	if (missing_has_ended(c, place))
		return true;
	return local != WORLD_NOT_HERE &&
	       atomic_load(&m->rank[local].state) == BOOT_LEFT &&
	       missing_is_behind(c, place);
}

bool missing_has_gone(const struct comm *c, unsigned place)
{
	const struct members *m = c->members;

	return members_is_here(m, place) &&
	       atomic_load(&region_left(c->shared, m->nlocal)[m->local[place]]);
}

bool missing_has_left(const struct comm *c, unsigned place)
{
	return missing_has_gone(c, place) && missing_is_behind(c, place);
}

bool missing_has_ended(const struct comm *c, unsigned place)
{
	return world_is_lost(c->world, c->members->rank[place]);
}

/* The place of the rank whose end made the rank of PLACE give up, if it says so;
 * else N. */
static unsigned failed_peer_of(const struct comm *c, unsigned place)
{
	const struct memory *m = &c->world->memory;
	const unsigned local = c->world->local[c->members->rank[place]];
	uint32_t failed_peer = 0;
	unsigned i = 0;

	if (local != WORLD_NOT_HERE)
		failed_peer = atomic_load(&m->rank[local].failed_peer);
	while (i < c->members->n &&
	       (c->members->rank[i] + 1 != failed_peer || i == c->members->me))
		i++;
	return i;
}

/* Secondary failure: it gave up because of another rank before it ended. */
static bool is_secondary(const struct comm *c, unsigned place)
{
	return failed_peer_of(c, place) < c->members->n ||
	       memory_is_secondary(&c->world->memory, c->members->rank[place]);
}

static size_t list_lost(const struct comm *c, bool secondary, unsigned *rank,
			size_t most)
{
	size_t n = 0;

	for (unsigned i = 0; i < c->members->n && n < most; i++)
		if (i != c->members->me && missing_is_lost(c, i) &&
		    is_secondary(c, i) == secondary)
			rank[n++] = c->members->rank[i];
	return n;
}

size_t missing_lost(const struct comm *c, unsigned *rank, size_t most)
{
	size_t n = list_lost(c, false, rank, most);

	for (unsigned i = 0; i < c->members->n && !n && most; i++)
		if (i != c->members->me && failed_peer_of(c, i) < c->members->n)
			rank[n++] = c->members->rank[failed_peer_of(c, i)];
	return n;
}

/* On several hosts the agents see which ranks have not come to the operation.  The
 * rank that this one waited for may be another: it may wait for them, too. */
static size_t ask_agents(struct comm *c, unsigned *rank, size_t most)
{
	const struct world *w = c->world;
	size_t n = c->net && c->op && w->boot->missing_ranks
			   ? w->boot->missing_ranks(w->boot_state, rank, most)
			   : 0,
	       ours = 0;

	for (size_t i = 0; i < n; i++)
		for (unsigned k = 0; k < c->members->n; k++)
			if (c->members->rank[k] == rank[i])
				rank[ours++] = rank[i];
	return ours;
}

/* Another rank has ended the operation.  It says soon why. */
static size_t find_lost(const struct comm *c, unsigned *rank, size_t most)
{
	const unsigned lost = c->net ? net_lost(c->net) : c->members->n;
	size_t n = 0;

	if (lost < c->members->n && lost != c->members->me && most) {
		*rank = c->members->rank[lost];
		return 1;
	}
	for (unsigned ms = 0; !n && ms < SAID_MS; ms++) {
		n = missing_lost(c, rank, most);
		if (!n)
			fiber_pause(1000000);
	}
	return n ? n : list_lost(c, true, rank, most);
}

size_t missing_find(struct comm *c, berth_result rc, unsigned *rank, size_t most)
{
	size_t n;

	for (n = 0; n < c->nlate && n < most; n++)
		rank[n] = c->members->rank[c->late[n]];
	if (n)
		return n;
	for (n = 0; n < c->ngone && n < most; n++)
		rank[n] = c->gone[n];
	if (n)
		return n;
	n = rc == BERTH_TIMEOUT ? ask_agents(c, rank, most) : 0;
	if (!n && rc == BERTH_TIMEOUT && c->op)
		for (unsigned i = 0; i < c->members->n && n < most; i++)
			if (i != c->members->me && missing_is_behind(c, i))
				rank[n++] = c->members->rank[i];
	if (n)
		return n;
	n = c->back->others(c->group, rank, most);
	n = n < most ? n : most;
	for (size_t i = 0; i < n; i++)
		rank[i] = c->members->rank[rank[i]];
	return rc == BERTH_PEER_LOST && !n ? find_lost(c, rank, most) : n;
}
