#include "lib/core/set_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/boot/boot_caller.h"
#include "lib/core/comm.h"
#include "lib/core/engine.h"
#include "lib/core/init_wait.h"
#include "lib/core/messages.h"
#include "lib/core/request.h"
#include "lib/core/trace.h"
#include "lib/core/turns.h"
#include "lib/core/world.h"
#include "lib/core/world_make.h"

#define NOWHERE UINT64_MAX

enum { NUMBER_MOST = INT32_MAX }; /* of a set */

/* Numbers of nets.  The messages of all sets have one, and a set whose ranks are on
 * several hosts has one for its collectives. */
enum { NET_OF_MESSAGES, NET_OF_SETS };

/* A member tells this to the others. */
struct card {            /* sent as it is: all hosts of a job are alike */
	uint64_t region; /* offset in the host's heap, or NOWHERE */
	uint32_t number; /* of the sets that it has begun to make */
	uint32_t unused;
};

/* Once S has its number.  NULL with BERTH_OK: all its ranks are on this host, or this
 * rank is not in it. */
static berth_result open_net(struct berth_set *s, struct net **net, char *why,
			     size_t bytes)
{
	*net = NULL;
	if (s->members.me == MEMBERS_NONE || s->members.nlocal == s->members.n)
		return BERTH_OK;
	*net = comm_net(s->world, &s->members, (uint64_t)s->number + NET_OF_SETS,
			!s->number, why, bytes);
	return *net ? BERTH_OK : BERTH_SYSTEM;
}

/* NET becomes the set's. */
static berth_result open_comm(struct berth_set *s, void *region, struct net *net)
{
	struct comm_config config = { .world = s->world,
				      .members = &s->members,
				      .id = s->number,
				      .hooks = &request_works,
				      .region = region,
				      .net = net };
	berth_result rc;

	rc = comm_open(&s->comm, &config);
	if (!rc)
		rc = messages_join(&s->comm);
	if (!rc)
		engine_open(s);
	return rc;
}

/* ---- of all ranks ---- */

static berth_result open_door(struct world *w, char *why, size_t bytes)
{
	const struct net_door_config config = { .rank = w->who.rank,
						.size = w->who.size,
						.key = w->who.key,
						.range = w->params.net,
						.interfaces = w->params.interfaces };

	w->door = net_door_open(&config, why, bytes);
	return w->door ? BERTH_OK : BERTH_SYSTEM;
}

/* Each rank learns the addresses of all others. */
static berth_result exchange_addresses(struct world *w)
{
	char why[BOOT_WHY_BYTES], **address = NULL;
	struct init_wait m;
	const struct boot_patience patience = { init_wait_tick, init_wait_missing, &m };
	berth_result rc;

	init_wait_begin(&m, w, "berth_init");
	rc = w->boot->fence(w->boot_state, &w->who,
			    w->door ? net_door_address(w->door) : "", &patience,
			    &address, why);
	if (rc && m.is_over) { /* whose time was over first has ended it for all */
		init_wait_text(why, sizeof why, &m);
		return log_error(BERTH_TIMEOUT, "", m.late.missing, m.late.nmissing,
				 "%s", why);
	}
	if (rc)
		return log_error(rc, "", NULL, 0, "%s", why);
	for (unsigned i = 0; w->door && !rc && i < w->who.size; i++) {
		rc = net_door_peer(w->door, i, address[i]);
		if (rc)
			log_error(rc, "", NULL, 0,
				  "connections between ranks: rank %u gives no "
				  "address: %s",
				  i, berth_result_text(rc));
	}
	free(address);
	return rc;
}

/* The thread of all sets sleeps until this bell is rung. */
static bool open_bell(struct world *w, void *region)
{
	struct bell *bell = &region_bells(region, w->who.local_size)[w->who.local_rank];

	w->bell_fd = w->door ? bell_open(bell) : -1;
	if (w->door && w->bell_fd < 0)
		return false;
	turns_open(bell, w->bell_fd, w->who.local_size, w->cores);
	return true;
}

/* The messages of all sets, and the set of all ranks S, over NET and OF_MESSAGES, which
 * become theirs. */
static berth_result open_all(struct berth_set *s, struct net *net,
			     struct net *of_messages)
{
	struct world *w = s->world;
	void *region = memory_region(&w->memory);

	if (w->has_quota) /* others may be in other cgroups */
		world_count_cores(w);
	if (open_bell(w, region))
		w->messages = messages_open(
			w, region_messages(region, w->who.local_size),
			region_bells(region, w->who.local_size), of_messages);
	if (w->messages)
		return open_comm(s, region, net);
	net_close(net);
	net_close(of_messages);
	return BERTH_MEMORY;
}

berth_result set_of_all(struct world *w, struct berth_set **set)
{
	struct berth_set *s = set_alloc(w, w->members.rank, w->members.n);
	struct net *net = NULL, *of_messages = NULL;
	char why[256] = "out of memory";
	berth_result rc = BERTH_OK;

	if (!s)
		return log_error(BERTH_MEMORY, "", NULL, 0, "out of memory");
	if (s->members.nlocal < s->members.n)
		rc = open_door(w, why, sizeof why);
	if (!rc)
		rc = open_net(s, &net, why, sizeof why);
	if (!rc && net) {
		of_messages = comm_net(w, &w->members, NET_OF_MESSAGES, true, why,
				       sizeof why);
		rc = of_messages ? BERTH_OK : BERTH_SYSTEM;
	}
	if (rc)
		log_error(rc, "", NULL, 0, "%s", why);
	if (!rc)
		rc = exchange_addresses(w);
	if (rc) {
		net_close(net);
		net_close(of_messages);
	} else {
		rc = open_all(s, net, of_messages);
		if (rc)
			log_error(rc, "", NULL, 0, "connections between ranks: %s",
				  berth_result_text(rc));
	}
	if (rc) {
		set_free_part(s, true);
		messages_close(w->messages);
		w->messages = NULL;
		turns_close();
		return rc;
	}
	set_list(s);
	*set = s;
	return BERTH_OK;
}

/* ---- those that make a set, and how they tell each other something ---- */

struct makers {
	unsigned n;
	struct world *world;
	struct berth_set *parent; /* NULL: by a bootstrap */
	const struct berth_bootstrap *bootstrap;
};

static berth_result set_gather(const struct makers *m, const char *name,
			       const void *mine, void *all, size_t bytes)
{
	struct berth_desc d =
		BERTH_DESC(.kind = BERTH_ALLGATHER, .name = name, .in = mine,
			   .out = all, .count = bytes, .type = BERTH_U8);
	int rc;

	if (m->parent)
		return set_run(m->parent, &d);
	rc = m->bootstrap->allgather(m->bootstrap->ctx, mine, all, bytes);
	return rc ? log_error(
			    BERTH_SYSTEM, "", NULL, 0,
			    "a set of ranks: the bootstrap's allgather failed with %d",
			    rc)
		  : BERTH_OK;
}

struct choice {
	int color, key;
	unsigned rank, place;
};

static int by_key(const void *a, const void *b)
{
	const struct choice *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return (x->place > y->place) - (x->place < y->place);
}

/* Members of the set of COLOR, at the beginning of ALL, in order.  How many. */
static unsigned set_choose(struct choice *all, unsigned n, int color)
{
	unsigned members = 0;

	for (unsigned i = 0; i < n; i++) {
		all[i].place = i;
		if (all[i].color == color)
			all[members++] = all[i];
	}
	qsort(all, members, sizeof *all, by_key);
	return members;
}

/* The region of the set's members here, in the heap of the first of them. */
static berth_result alloc_region(struct berth_set *s, struct card *card)
{
	struct memory *m = &s->world->memory;

	if (s->members.me == MEMBERS_NONE || s->members.local_me)
		return BERTH_OK;
	set_free_regions(s->world);
	s->region = memory_alloc(m, region_bytes(s->members.nlocal));
	if (!s->region)
		return BERTH_MEMORY;
	card->region =
		(uint64_t)((unsigned char *)s->region - (unsigned char *)m->heap);
	return BERTH_OK;
}

/* The region of those here, as the first of them has told. */
static void *region_of(struct berth_set *s, const struct card *cards,
		       const struct choice *choice)
{
	const struct members *m = &s->members;

	return memory_at(&s->world->memory, cards[choice[*m->local_place].place].region,
			 region_bytes(m->nlocal), HEAP_ALIGN_LARGE);
}

/* Everything that the set's members have told: cards in the order of the makers. */
static berth_result set_build(struct berth_set *s, const struct card *cards,
			      const struct choice *choice)
{
	void *region = region_of(s, cards, choice);
	struct net *net;
	char why[256] = "out of memory";
	berth_result rc = BERTH_MEMORY;

	if (!s->world->memory.heap)
		snprintf(why, sizeof why,
			 "out of memory, its ranks' memory can't be mapped");
	if (region)
		rc = open_net(s, &net, why, sizeof why);
	if (region && !rc)
		rc = open_comm(s, region, net);
	if (rc)
		log_error(rc, "", NULL, 0, "a set of ranks: %s", why);
	return rc;
}

/* RC: how it went here; the others have to hear that too.  AGREED: all hear the
 * same. */
static berth_result all_is_well(const struct makers *m, berth_result rc, bool *agreed)
{
	const int32_t mine = (int32_t)rc;
	int32_t *all = calloc(m->n, sizeof *all), worst = 0;
	berth_result said =
		all ? set_gather(m, "a set is made", &mine, all, sizeof mine)
		    : BERTH_MEMORY;

	*agreed = !said;
	for (unsigned i = 0; !said && i < m->n; i++)
		worst = all[i] > worst ? all[i] : worst;
	free(all);
	if (said)
		return said;
	if (worst > BERTH_SYSTEM)
		worst = BERTH_SYSTEM;
	if (worst && !rc)
		log_error((berth_result)worst, "", NULL, 0,
			  "a set of ranks could not be made on another rank: %s",
			  berth_result_text((berth_result)worst));
	return (berth_result)worst;
}

static berth_result check_numbers(const struct card *cards, const struct makers *m)
{
	for (unsigned i = 0; i < m->n; i++)
		if (!cards[i].number || cards[i].number > NUMBER_MOST)
			return log_error(BERTH_INVALID, "", NULL, 0,
					 "a set of ranks: member %u gives an invalid "
					 "number: %u",
					 i, cards[i].number);
	return BERTH_OK;
}

/* The number of S: its first member FIRST's count, and which rank that is.  No other
 * set has it, although threads make several at a time, in other orders on each rank. */
static berth_result take_number(struct berth_set *s, const struct card *first)
{
	const uint64_t number =
		(uint64_t)first->number * s->world->who.size + s->members.rank[0];

	s->number = (uint32_t)number;
	return number <= UINT32_MAX ? BERTH_OK
				    : log_error(BERTH_MEMORY, "", NULL, 0,
						"a set of ranks: rank %u has made too "
						"many",
						s->members.rank[0]);
}

/* The set of the N that CHOICE begins with; NULL: out of memory. */
static struct berth_set *begin_set(struct world *w, const struct choice *choice,
				   unsigned n)
{
	unsigned *rank = calloc(n, sizeof *rank);
	struct berth_set *s = NULL;

	for (unsigned i = 0; rank && i < n; i++)
		rank[i] = choice[i].rank;
	if (rank)
		s = set_alloc(w, rank, n);
	free(rank);
	return s;
}

/* So that the agents know this rank as one of the set, also if it never begins an
 * operation in it. */
static void record_beginning(const struct berth_set *s)
{
	const struct coll none = { .kind = BERTH_BARRIER };

	trace_end(trace_begin(&s->world->memory, &none, "a set is made", s->number, 0,
			      BOOT_RECORD_RUNS),
		  BERTH_OK);
}

/* MEMBERS of those that CHOICE begins with. */
static berth_result make_members(const struct makers *m, struct choice *choice,
				 unsigned members, struct berth_set **set)
{
	struct berth_set *s = members ? begin_set(m->world, choice, members) : NULL;
	struct card mine = { .region = NOWHERE, .number = m->world->next_set++ },
		    *cards = calloc(m->n, sizeof *cards);
	bool agreed;
	berth_result rc = BERTH_OK, told;

	if (!cards || (members && !s))
		rc = log_error(BERTH_MEMORY, "", NULL, 0, "out of memory");
	else if (s && alloc_region(s, &mine))
		rc = log_error(BERTH_MEMORY, "", NULL, 0,
			       "a set of ranks: out of memory");
	if (cards) { /* without them the others wait: nothing better can be done */
		told = set_gather(m, "a set's members", &mine, cards, sizeof mine);
		rc = rc ? rc : told;
	}
	if (!rc)
		rc = check_numbers(cards, m);
	if (!rc && s)
		rc = take_number(s, &cards[choice[0].place]);
	if (s && !rc && s->members.me != MEMBERS_NONE)
		rc = set_build(s, cards, choice);
	free(cards);
	rc = all_is_well(m, rc, &agreed);
	if (rc && s)
		set_free_part(s, !agreed);
	if (!rc && s) {
		if (s->members.me != MEMBERS_NONE)
			record_beginning(s);
		set_list(s);
		*set = s;
	}
	return rc;
}

berth_result set_split(struct berth_set *parent, const char *name, int color, int key,
		       int seen, struct berth_set **set)
{
	const struct makers m = { .n = parent->members.n,
				  .world = parent->world,
				  .parent = parent };
	struct choice mine = { .color = color, .key = key },
		      *all = calloc(parent->members.n, sizeof *all);
	berth_result rc;

	*set = NULL;
	if (!all)
		return log_error(BERTH_MEMORY, "", NULL, 0, "out of memory");
	rc = set_gather(&m, name, &mine, all, sizeof mine);
	for (unsigned i = 0; !rc && i < m.n; i++)
		all[i].rank = parent->members.rank[i];
	if (!rc)
		rc = make_members(&m, all, seen < 0 ? 0 : set_choose(all, m.n, seen),
				  set);
	free(all);
	return rc;
}

/* ---- by a bootstrap ---- */

/* Ranks of the world, each once. */
static berth_result check_choices(const struct choice *all, unsigned n,
				  const struct world *w)
{
	for (unsigned i = 0; i < n; i++) {
		if (all[i].rank >= w->who.size)
			return log_error(BERTH_INVALID, "", NULL, 0,
					 "a set of ranks: there is no rank %u in a job "
					 "of %u",
					 all[i].rank, w->who.size);
		for (unsigned k = 0; k < i; k++)
			if (all[k].rank == all[i].rank)
				return log_error(BERTH_INVALID, "", NULL, 0,
						 "a set of ranks: rank %u is in it "
						 "twice",
						 all[i].rank);
	}
	return BERTH_OK;
}

berth_result set_make(struct world *w, const struct berth_bootstrap *bootstrap,
		      struct berth_set **set)
{
	const char *wrong = boot_caller_check(bootstrap);
	struct makers m = { .world = w, .bootstrap = bootstrap };
	struct choice mine = { .rank = w->who.rank }, *all;
	berth_result rc;

	*set = NULL;
	if (wrong)
		return log_error(BERTH_INVALID, "", NULL, 0, "a set of ranks: %s",
				 wrong);
	m.n = (unsigned)bootstrap->ranks;
	all = calloc(m.n, sizeof *all);
	if (!all)
		return log_error(BERTH_MEMORY, "", NULL, 0, "out of memory");
	rc = set_gather(&m, "", &mine, all, sizeof mine);
	if (!rc)
		rc = check_choices(all, m.n, w);
	for (unsigned i = 0; i < m.n; i++)
		all[i].place = i;
	if (!rc)
		rc = make_members(&m, all, m.n, set);
	free(all);
	return rc;
}
