#include "lib/core/set.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "lib/backend/shm.h"
#include "lib/base/log.h"
#include "lib/core/engine.h"
#include "lib/core/init_wait.h"
#include "lib/core/op_run.h"

#define NOWHERE UINT64_MAX

enum { NUMBER_MOST = INT32_MAX }; /* of a set: comms need a bit */

/* What a member tells the others, for the two comms. */
struct card {               /* sent as it is: all hosts of a job are alike */
	uint64_t region[2]; /* offset in the host's heap, or NOWHERE */
	uint32_t number;    /* the least that it can give to the set */
	char address[2][NET_ADDRESS_BYTES];
};

/* ---- all that there are ---- */

static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;

/* Complete: set_stop_all() may look at its comms. */
static void list_set(struct berth_set *s)
{
	pthread_mutex_lock(&listing);
	s->next = s->world->sets;
	s->world->sets = s;
	pthread_mutex_unlock(&listing);
}

static void count_set(struct berth_set *s, struct berth_metrics *sum)
{
	struct engine_count later = { 0 };

	if (s->engine)
		engine_counts(s->engine, &later);
	sum->operations += trace_counted(&s->now.count.operations) + later.operations;
	sum->bytes += trace_counted(&s->now.count.bytes) + later.bytes;
	sum->fused += later.fused;
	sum->negotiations += later.negotiations;
	sum->stalls += trace_counted(&s->now.count.stalls) + later.stalls;
	sum->errors += trace_counted(&s->now.count.errors) + later.errors;
	sum->wait_ns += trace_counted(&s->now.count.wait_ns) + later.wait_ns;
}

static void unlist_set(struct berth_set *s)
{
	struct berth_set **at;

	pthread_mutex_lock(&listing);
	for (at = &s->world->sets; *at && *at != s; at = &(*at)->next)
		;
	if (*at) {
		*at = s->next;
		count_set(s, &s->world->past);
	}
	pthread_mutex_unlock(&listing);
}

void set_count_all(struct world *w, struct berth_metrics *sum)
{
	pthread_mutex_lock(&listing);
	*sum = w->past;
	for (struct berth_set *s = w->sets; s; s = s->next)
		count_set(s, sum);
	pthread_mutex_unlock(&listing);
}

void set_stop_all(struct world *w)
{
	pthread_mutex_lock(&listing);
	for (struct berth_set *s = w->sets; s; s = s->next) {
		atomic_store(&s->now.aborted, true);
		atomic_store(&s->later.aborted, true); /* who joins waits there too */
	}
	pthread_mutex_unlock(&listing);
}

/* ---- the engine ---- */

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

void set_in_child(void)
{
	pthread_mutex_init(&listing, NULL);
	pthread_mutex_init(&starting, NULL);
}

berth_result set_engine(struct berth_set *s, struct engine **engine)
{
	*engine = atomic_load(&s->engine);
	if (*engine)
		return BERTH_OK;
	pthread_mutex_lock(&starting);
	if (!s->engine)
		s->engine = engine_make(&s->later);
	*engine = s->engine;
	pthread_mutex_unlock(&starting);
	return *engine ? BERTH_OK
		       : log_error(BERTH_MEMORY, "", NULL, 0,
				   "no memory, or no thread, for asynchronous "
				   "operations");
}

/* ---- blocking operations ---- */

berth_result set_tell(berth_result rc, const struct failure *why)
{
	if (rc)
		log_error(rc, why->tensor, why->missing, why->nmissing, "%s",
			  *why->text ? why->text : berth_result_text(rc));
	return rc;
}

berth_result set_refuse(enum berth_kind kind, const struct berth_desc *d,
			const char *text)
{
	const char *name = d->size > offsetof(struct berth_desc, set) ? d->name : NULL;

	return log_error(text == op_unknown ? BERTH_UNSUPPORTED : BERTH_INVALID, name,
			 NULL, 0, name ? "%s \"%.70s\": %s" : "%s%s: %s",
			 op_kind_name(kind), name ? name : "", text);
}

berth_result set_run(struct berth_set *set, enum berth_kind kind,
		     const struct berth_desc *d)
{
	struct failure why;
	struct op op;
	const char *text;
	berth_result rc;

	if (!d)
		return log_error(BERTH_INVALID, "", NULL, 0, "d is NULL");
	text = op_make(&op, kind, d, set->n, (unsigned)set->me);
	if (text)
		return set_refuse(kind, d, text);
	pthread_mutex_lock(&set->lock);
	rc = comm_run(&set->now, &op, &why);
	pthread_mutex_unlock(&set->lock);
	return rc ? set_tell(rc, &why) : BERTH_OK;
}

/* ---- freeing one ---- */

/* No call is in it. */
static void close_comms(struct berth_set *s)
{
	if (s->engine)
		engine_free(s->engine);
	comm_close(&s->now);
	comm_close(&s->later);
}

static void free_rest(struct berth_set *s)
{
	for (int i = 0; i < 2; i++)
		if (s->region[i])
			memory_free(&s->world->memory, s->region[i]);
	if (s->slot)
		handle_free(s->slot);
	pthread_mutex_destroy(&s->lock);
	free(s->rank);
	free(s);
}

void set_free_all(struct world *w)
{
	while (w->sets) {
		struct berth_set *s = w->sets;

		/* others may still look at the regions: they go with the memory */
		s->region[0] = s->region[1] = NULL;
		unlist_set(s);
		close_comms(s);
		free_rest(s);
	}
}

/* It was not complete: no caller has it. */
static void free_part(struct berth_set *s)
{
	close_comms(s);
	free_rest(s);
}

/* ---- making one ---- */

static struct berth_set *alloc_set(struct world *w, unsigned n)
{
	struct berth_set *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->world = w;
	s->n = n;
	s->me = -1;
	s->rank = calloc(n, sizeof *s->rank);
	pthread_mutex_init(&s->lock, NULL);
	if (!s->rank) {
		free_rest(s);
		return NULL;
	}
	return s;
}

/* Who is who, once s->rank is complete. */
static void find_place(struct berth_set *s)
{
	const struct boot_world *who = &s->world->who;

	for (unsigned i = 0; i < s->n; i++) {
		if (s->rank[i] == who->rank) {
			s->me = (int)i;
			s->local_me = s->nlocal;
		}
		s->nlocal += s->world->local[s->rank[i]] != WORLD_NOT_HERE;
	}
}

static bool is_here(const struct berth_set *s)
{
	return s->nlocal == s->n;
}

static berth_result open_nets(struct berth_set *s, struct net *net[2], char *why,
			      size_t bytes)
{
	if (s->me < 0 || is_here(s))
		return BERTH_OK;
	for (int i = 0; i < 2; i++) {
		net[i] = comm_net(s->world, s->n, (unsigned)s->me, why, bytes);
		if (!net[i])
			return BERTH_SYSTEM;
	}
	return BERTH_OK;
}

static void close_nets(struct net *net[2])
{
	for (int i = 0; i < 2; i++)
		if (net[i])
			net_close(net[i]);
}

/* ADDRESS[i][place], of the two comms. */
static berth_result open_comms(struct berth_set *s, void *region[2], struct net *net[2],
			       char **address[2])
{
	struct comm *comm[2] = { &s->now, &s->later };
	berth_result rc = BERTH_OK;

	for (unsigned i = 0; !rc && i < 2; i++) {
		struct comm_config config = { .world = s->world,
					      .n = s->n,
					      .me = (unsigned)s->me,
					      .rank = s->rank,
					      .id = s->number | i << 31,
					      .region = region[i],
					      .address = address[i],
					      .net = net[i] };

		net[i] = NULL;
		rc = comm_open(comm[i], &config);
	}
	return rc;
}

/* ---- of all ranks ---- */

/* The texts of a fence are "FIRST-ADDRESS\nSECOND-ADDRESS". */
static berth_result exchange_addresses(struct world *w, struct net *net[2],
				       char ***first, char **second[2])
{
	char mine[BOOT_TEXT_BYTES] = "", why[BOOT_WHY_BYTES];
	struct init_wait m;
	const struct boot_patience patience = { init_wait_tick, init_wait_missing, &m };
	berth_result rc;

	if (net[0])
		snprintf(mine, sizeof mine, "%s\n%s", net_address(net[0]),
			 net_address(net[1]));
	init_wait_begin(&m, w);
	rc = w->boot->fence(w->boot_state, &w->who, mine, &patience, first, why);
	if (rc && m.is_over) { /* whose time was over first has ended it for all */
		init_wait_text(why, sizeof why, &m);
		return log_error(BERTH_TIMEOUT, "", m.late.missing, m.late.nmissing,
				 "%s", why);
	}
	if (rc)
		return log_error(rc, "", NULL, 0, "%s", why);
	second[0] = *first;
	second[1] = calloc(w->who.size, sizeof **second);
	for (unsigned i = 0; second[1] && i < w->who.size; i++) {
		char *end = strchr((*first)[i], '\n');

		second[1][i] = end ? end + 1 : (*first)[i];
		if (end)
			*end = '\0';
	}
	return second[1] ? BERTH_OK
			 : log_error(BERTH_MEMORY, "", NULL, 0, "out of memory");
}

berth_result set_of_all(struct world *w, struct berth_set **set)
{
	struct berth_set *s = alloc_set(w, w->who.size);
	void *region[2] = { memory_region(&w->memory, 0),
			    memory_region(&w->memory, 1) };
	struct net *net[2] = { NULL, NULL };
	char why[256] = "out of memory", **first = NULL, **address[2] = { NULL, NULL };
	berth_result rc;

	if (!s)
		return log_error(BERTH_MEMORY, "", NULL, 0, "out of memory");
	for (unsigned i = 0; i < s->n; i++)
		s->rank[i] = i;
	find_place(s);
	rc = open_nets(s, net, why, sizeof why);
	if (rc)
		log_error(rc, "", NULL, 0, "%s", why);
	if (!rc)
		rc = exchange_addresses(w, net, &first, address);
	if (!rc) {
		if (w->has_quota) /* others may be in other cgroups */
			world_count_cores(w);
		rc = open_comms(s, region, net, address);
		if (rc)
			log_error(rc, "", NULL, 0, "connections between ranks: %s",
				  berth_result_text(rc));
	}
	close_nets(net);
	free(first);
	free(address[1]);
	if (rc) {
		free_part(s);
		return rc;
	}
	list_set(s);
	*set = s;
	return BERTH_OK;
}

/* ---- a part of another ---- */

static berth_result gather(struct berth_set *parent, const char *name, const void *mine,
			   void *all, size_t bytes)
{
	struct berth_desc d = BERTH_DESC(.name = name, .in = mine, .out = all,
					 .count = bytes, .type = BERTH_U8);

	return set_run(parent, BERTH_ALLGATHER, &d);
}

struct choice {
	int color, key;
	unsigned place;
};

static int by_key(const void *a, const void *b)
{
	const struct choice *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return (x->place > y->place) - (x->place < y->place);
}

/* Members of the set of COLOR, at the beginning of ALL, in order.  How many. */
static unsigned choose(struct choice *all, unsigned n, int color)
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

static size_t region_bytes(const struct berth_set *s)
{
	return shm_bytes(s->nlocal) + 64; /* and GONE */
}

/* The two regions of the set's members here, in the heap of the first of them. */
static berth_result alloc_regions(struct berth_set *s, struct card *card)
{
	struct memory *m = &s->world->memory;

	card->region[0] = card->region[1] = NOWHERE;
	if (s->me < 0 || s->local_me)
		return BERTH_OK;
	for (int i = 0; i < 2; i++) {
		s->region[i] = memory_alloc(m, region_bytes(s));
		if (!s->region[i])
			return BERTH_MEMORY;
		card->region[i] = (uint64_t)((unsigned char *)s->region[i] -
					     (unsigned char *)m->heap);
	}
	return BERTH_OK;
}

/* Everything that the set's members have told: cards in the order of PARENT's
 * places. */
static berth_result build(struct berth_set *s, struct card *cards,
			  const struct choice *choice, struct net *net[2])
{
	struct memory *m = &s->world->memory;
	void *region[2] = { NULL, NULL };
	char **address[2];
	berth_result rc = BERTH_MEMORY;
	bool here = false;

	address[0] = calloc(s->n, sizeof **address);
	address[1] = calloc(s->n, sizeof **address);
	for (unsigned i = 0; address[0] && address[1] && i < s->n; i++) {
		struct card *card = &cards[choice[i].place];

		bool is_first = !here && s->world->local[s->rank[i]] != WORLD_NOT_HERE;

		here |= is_first;
		for (int k = 0; k < 2; k++) {
			address[k][i] = card->address[k];
			card->address[k][NET_ADDRESS_BYTES - 1] = '\0';
			if (is_first)
				region[k] =
					memory_at(m, card->region[k], region_bytes(s),
						  HEAP_ALIGN_LARGE);
		}
	}
	if (region[0] && region[1]) {
		s->gone = (_Atomic uint32_t *)((unsigned char *)region[0] +
					       shm_bytes(s->nlocal));
		rc = open_comms(s, region, net, address);
	}
	free(address[0]);
	free(address[1]);
	if (rc)
		log_error(rc, "", NULL, 0, "a set of ranks: %s%s",
			  berth_result_text(rc),
			  m->heap ? "" : ", its ranks' memory can't be mapped");
	return rc;
}

static void fill_card(struct card *card, struct net *net[2])
{
	for (int i = 0; i < 2; i++)
		if (net[i])
			snprintf(card->address[i], NET_ADDRESS_BYTES, "%s",
				 net_address(net[i]));
}

/* RC: how it went here; the others have to hear that too.  AGREED: all hear the
 * same. */
static berth_result all_is_well(struct berth_set *parent, berth_result rc, bool *agreed)
{
	int32_t mine = (int32_t)rc, worst = 0;
	struct berth_desc d =
		BERTH_DESC(.name = "berth_set_split", .in = &mine, .out = &worst,
			   .count = 1, .type = BERTH_I32, .op = BERTH_MAX);
	berth_result said = set_run(parent, BERTH_ALLREDUCE, &d);

	*agreed = !said;
	if (said)
		return said;
	if (worst < 0 || worst > BERTH_SYSTEM)
		worst = BERTH_SYSTEM;
	if (worst && !rc)
		log_error((berth_result)worst, "", NULL, 0,
			  "a set of ranks could not be made on another rank: %s",
			  berth_result_text((berth_result)worst));
	return (berth_result)worst;
}

/* Several threads may make sets at a time. */
static uint32_t next_number(struct world *w)
{
	uint32_t number;

	pthread_mutex_lock(&listing);
	number = w->next_set++;
	pthread_mutex_unlock(&listing);
	return number;
}

static void use_number(struct world *w, uint32_t number)
{
	pthread_mutex_lock(&listing);
	if (number >= w->next_set)
		w->next_set = number + 1;
	pthread_mutex_unlock(&listing);
}

/* The number of S, which may be NULL, from the cards of all. */
static berth_result take_number(struct berth_set *s, const struct card *cards,
				const struct berth_set *parent)
{
	uint32_t number = 0;

	for (unsigned i = 0; i < parent->n; i++) {
		if (!cards[i].number) /* zeros, as of a rank that has joined */
			return log_error(BERTH_INVALID, "", NULL, 0,
					 "a set of ranks: rank %u has joined",
					 parent->rank[i]);
		if (cards[i].number > NUMBER_MOST)
			return log_error(BERTH_INVALID, "", NULL, 0,
					 "a set of ranks: rank %u gives it number %u",
					 parent->rank[i], cards[i].number);
		if (cards[i].number > number)
			number = cards[i].number;
	}
	if (s) {
		s->number = number;
		use_number(s->world, number);
	}
	return BERTH_OK;
}

static berth_result make_members(struct berth_set *parent, struct choice *choice,
				 unsigned members, struct berth_set **set)
{
	struct world *w = parent->world;
	struct berth_set *s = members ? alloc_set(w, members) : NULL;
	struct card mine = { .region = { NOWHERE, NOWHERE }, .number = next_number(w) },
		    *cards = calloc(parent->n, sizeof *cards);
	struct net *net[2] = { NULL, NULL };
	bool agreed;
	char why[256] = "out of memory";
	berth_result rc = cards && (s || !members) ? BERTH_OK : BERTH_MEMORY;

	for (unsigned i = 0; s && i < members; i++)
		s->rank[i] = parent->rank[choice[i].place];
	if (s)
		find_place(s);
	if (s && !rc)
		rc = open_nets(s, net, why, sizeof why);
	if (s && !rc)
		rc = alloc_regions(s, &mine);
	if (rc)
		log_error(rc, "", NULL, 0, "a set of ranks: %s", why);
	fill_card(&mine, net);
	if (cards) /* without them the others would wait: nothing better can be done */
		rc = rc ? (gather(parent, "a set's members", &mine, cards, sizeof mine),
			   rc)
			: gather(parent, "a set's members", &mine, cards, sizeof mine);
	if (!rc)
		rc = take_number(s, cards, parent);
	if (s && !rc && s->me >= 0)
		rc = build(s, cards, choice, net);
	close_nets(net);
	free(cards);
	rc = all_is_well(parent, rc, &agreed);
	if (rc && s) {
		if (!agreed) /* to others it may be whole: regions go with the world */
			s->region[0] = s->region[1] = NULL;
		free_part(s);
	} else if (s) {
		list_set(s);
		*set = s;
	}
	return rc;
}

berth_result set_split(struct berth_set *parent, const char *name, int color, int key,
		       int seen, struct berth_set **set)
{
	struct choice mine = { .color = color, .key = key },
		      *all = calloc(parent->n, sizeof *all);
	berth_result rc;

	*set = NULL;
	if (!all)
		return log_error(BERTH_MEMORY, "", NULL, 0, "out of memory");
	rc = gather(parent, name, &mine, all, sizeof mine);
	if (!rc)
		rc = make_members(parent, all,
				  seen < 0 ? 0 : choose(all, parent->n, seen), set);
	free(all);
	return rc;
}

/* ---- the end of one ---- */

/* The regions are the first local member's, who frees them when nobody reads them any
 * more; that takes as long as it takes to return from a barrier. */
static void leave_regions(struct berth_set *s)
{
	uint64_t until = clock_ns() + 1000000000;

	if (s->gone && !s->region[0])
		atomic_fetch_add(s->gone, 1);
	while (s->gone && s->region[0] && atomic_load(s->gone) + 1 < s->nlocal) {
		sched_yield();
		if (clock_ns() > until) /* who is left has died */
			s->region[0] = s->region[1] = NULL;
	}
}

/* All members, each of which waits for its calls that came before. */
static berth_result end_calls(struct berth_set *s)
{
	struct failure why;
	berth_result rc;

	pthread_mutex_lock(&s->lock);
	do
		rc = comm_run(&s->now, &op_run_removal, &why);
	while (rc == BERTH_MISMATCH); /* with a call of another rank, which ends so */
	comm_abort(&s->now);
	pthread_mutex_unlock(&s->lock);
	return rc ? set_tell(rc, &why) : BERTH_OK;
}

berth_result set_remove(struct berth_set *s)
{
	berth_result rc = BERTH_OK;

	atomic_store(&s->later.closing, true);
	if (s->me >= 0)
		rc = end_calls(s);
	if (rc) { /* nobody comes any more */
		comm_end(&s->now, BERTH_ABORTED);
		comm_end(&s->later, BERTH_ABORTED);
	}
	atomic_store(&s->now.aborted, true);
	atomic_store(&s->later.aborted, true);
	handle_wait(s->slot);
	unlist_set(s);
	close_comms(s);
	if (!rc)
		leave_regions(s);
	else /* others may still look at it: it goes with the world */
		s->region[0] = s->region[1] = NULL;
	free_rest(s);
	return rc;
}
