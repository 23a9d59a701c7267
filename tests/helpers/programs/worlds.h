/* worlds.h - the worlds of a random program: how it begins the first, how it
 * changes to the next, and what stays behind then: sets that were not removed, memory
 * of berth_alloc(), and threads that block. */
#ifndef BERTH_TESTS_PROGRAM_WORLDS_H
#define BERTH_TESTS_PROGRAM_WORLDS_H

#include <pthread.h>

#include "tests/helpers/own_ranks.h"
#include "tests/helpers/programs/requests.h"
#include "tests/helpers/programs/sets.h"
#include "tests/helpers/slow.h"

enum {
	LEFT_GROUPS = 64,
	LEFT_BLOCKS = 6,
	BLOCK_BYTES = 20000,
	USED = 64, /* elements of a block that an operation uses */
	HOSTS_MOST = 4,
	TIMEOUT_MS = 60000 /* of each operation: a rank that hangs says in which */
};

static struct {
	struct group *group[LEFT_GROUPS];
	size_t groups;
	struct {
		unsigned char *p, value;
		size_t bytes;
	} block[LEFT_BLOCKS];
} left;

static const char *host_name; /* a pretended one */
/* This process' part at the beginning of each program. */
static int own_number, home_hosts;
static bool home_in_turn;
static unsigned long changes;

/* ---- sets ---- */

/* Requests of G may still be checked: it is freed at the program's end. */
static void leave_group(struct group *g, struct place_in_program at)
{
	expect(left.groups < LEFT_GROUPS, at, "too many sets");
	left.group[left.groups++] = g;
}

static void check_left_set(berth_set *set, struct place_in_program at)
{
	struct berth_desc d = BERTH_DESC(.kind = BERTH_BARRIER, .set = set);
	berth_request *r;
	berth_set *made;

	expect(berth_set_rank(set) == -1 && berth_set_size(set) == -1 &&
		       berth_set_member(set, 0) == -1,
	       at, "a set of an old world has rank %d of %d", berth_set_rank(set),
	       berth_set_size(set));
	expect(berth_run(&d, -1, NULL) == BERTH_STATE, at, "berth_run in it");
	expect(berth_submit(&d, 1, &r) == BERTH_STATE, at, "berth_submit in it");
	expect(berth_set_split(set, 0, 0, &made) == BERTH_STATE, at, "its split");
	expect(berth_set_remove(set) == BERTH_STATE, at, "its removal");
}

static void check_left_sets(struct place_in_program at)
{
	for (size_t i = 0; i < left.groups; i++)
		if (left.group[i]->set)
			check_left_set(left.group[i]->set, at);
}

static void forget_groups(void)
{
	while (left.groups)
		free(left.group[--left.groups]);
}

/* ---- memory ---- */

static void check_blocks(struct place_in_program at)
{
	for (int i = 0; i < LEFT_BLOCKS; i++)
		for (size_t k = 0; left.block[i].p && k < left.block[i].bytes; k++)
			expect(left.block[i].p[k] == left.block[i].value, at,
			       "byte %zu of a block of an old world", k);
}

/* Some come, and some go. */
static void change_blocks(uint64_t id, struct place_in_program at)
{
	check_blocks(at);
	for (unsigned i = 0; i < LEFT_BLOCKS; i++) {
		if (own(id, i, 2))
			continue;
		berth_free(left.block[i].p);
		left.block[i].p = NULL;
		if (!own(id, 10 + i, 3))
			continue;
		left.block[i].bytes = 1 + own(id, 20 + i, BLOCK_BYTES);
		left.block[i].value = (unsigned char)own(id, 30 + i, 256);
		left.block[i].p = berth_alloc(left.block[i].bytes, BERTH_HOST, 0);
		expect(left.block[i].p, at, "berth_alloc");
		memset(left.block[i].p, left.block[i].value, left.block[i].bytes);
	}
}

static void free_blocks(void)
{
	for (int i = 0; i < LEFT_BLOCKS; i++) {
		berth_free(left.block[i].p);
		left.block[i].p = NULL;
	}
}

/* A sum over all ranks in a block of an old world, where this one has any. */
static void use_block(uint64_t id, struct place_in_program at)
{
	uint64_t here[USED], *p = here;
	const unsigned i = own(id, 1, LEFT_BLOCKS);
	const uint64_t n = (uint64_t)size;
	struct berth_desc d =
		BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_U64, .count = USED);

	if (left.block[i].p && left.block[i].bytes >= sizeof here)
		p = (void *)left.block[i].p;
	d.in = d.out = p;
	for (uint64_t k = 0; k < USED; k++)
		p[k] = (uint64_t)rank + k;
	expect(!berth_run(&d, -1, NULL), at, "a sum in the memory of an old world");
	for (uint64_t k = 0; k < USED; k++)
		expect(p[k] == n * (n - 1) / 2 + n * k, at, "element %" PRIu64, k);
	if (p != here)
		memset(p, left.block[i].value, sizeof here);
}

/* ---- a thread that blocks ---- */

struct blocked {
	pthread_t thread;
	berth_set *set; /* NULL: there is none */
	berth_result rc;
};

static void *block_in_vain(void *arg)
{
	struct blocked *b = arg;
	struct berth_desc d =
		BERTH_DESC(.kind = BERTH_BARRIER, .name = "in vain", .set = b->set);

	b->rc = berth_run(&d, -1, NULL);
	return NULL;
}

/* In a barrier of G, to which one rank does not come. */
static void begin_blocked(struct blocked *b, const struct group *g, uint64_t id,
			  struct place_in_program at)
{
	const int absent = (int)choose(id, 1, (unsigned)g->n);

	b->set = g->n > 1 && g->me != absent ? g->set : NULL;
	if (b->set)
		expect(!pthread_create(&b->thread, NULL, block_in_vain, b), at,
		       "pthread_create");
}

/* This world, or that of another rank, has changed. */
static void end_blocked(struct blocked *b, struct place_in_program at)
{
	if (!b->set)
		return;
	pthread_join(b->thread, NULL);
	expect(b->rc == BERTH_ABORTED || b->rc == BERTH_PEER_LOST ||
		       b->rc == BERTH_STATE,
	       at, "a barrier of an old world: %s", berth_result_text(b->rc));
}

/* ---- worlds ---- */

/* Ranks of one host follow each other, or do not. */
static void name_host(int hosts, bool in_turn)
{
	static char name[16];

	snprintf(name, sizeof name, "host%d",
		 in_turn ? rank * rank % hosts : rank * hosts / size);
	host_name = name;
}

/* Ranks on one host have its name. */
static void find_hosts(void)
{
	char mine[64] = "", all[REFERENCE_RANKS][64];
	struct berth_desc d = BERTH_DESC(.kind = BERTH_ALLGATHER, .type = BERTH_U8,
					 .in = mine, .out = all, .count = sizeof mine);
	int hosts = 0;

	if (host_name)
		snprintf(mine, sizeof mine, "%s", host_name);
	else
		gethostname(mine, sizeof mine - 1);
	expect(!berth_run(&d, -1, NULL), (struct place_in_program){ 0, 0 }, "hosts");
	for (int r = 0; r < size; r++) {
		host_of[r] = hosts;
		for (int k = 0; k < r; k++)
			if (!memcmp(all[k], all[r], sizeof mine))
				host_of[r] = host_of[k];
		hosts += host_of[r] == hosts;
	}
}

/* All call it; FIRST: berth_init(), or the world changes. */
static void join_world(bool first)
{
	const struct berth_bootstrap b = { .size = sizeof b,
					   .rank = rank,
					   .ranks = size,
					   .allgather = own_ranks_gather,
					   .ctx = &rank,
					   .host = host_name };
	const struct berth_config c = { .size = sizeof c,
					.timeout_ms = first ? slow_s(TIMEOUT_MS) : 0,
					.bootstrap = own_ranks ? &b : NULL };

	if (first ? berth_init(&c) : berth_change(&c)) {
		fprintf(stderr, "%s\n", berth_last_error()->text);
		_exit(3);
	}
}

static void begin_library(void)
{
	join_world(true);
	rank = berth_rank();
	size = berth_size();
	if (size > REFERENCE_RANKS)
		_exit(2);
	find_hosts();
}

/* The rank of this process in a world of other numbers. */
static int renumbered(uint64_t id)
{
	int number[REFERENCE_RANKS];

	for (int i = 0; i < size; i++)
		number[i] = i;
	for (int i = size; i-- > 1;) {
		const int k = (int)choose(id, 500 + (unsigned)i, (unsigned)i + 1),
			  x = number[i];

		number[i] = number[k];
		number[k] = x;
	}
	return number[own_number];
}

/* HOME: to the numbers and hosts with which each program begins.  Runner's ranks keep
 * theirs in each world. */
static void change_world(uint64_t id, bool home, struct place_in_program at)
{
	struct berth_world old = { .size = sizeof old }, w = { .size = sizeof w };

	expect(!berth_world(&old), at, "berth_world");
	if (own_ranks) {
		rank = home ? own_number : renumbered(id);
		if (home)
			name_host(home_hosts, home_in_turn);
		else
			name_host(1 + (int)choose(id, 400, HOSTS_MOST),
				  choose(id, 401, 2));
	}
	join_world(false);
	changes++;
	expect(!berth_world(&w) && w.rank == rank && w.ranks == size &&
		       w.epoch == old.epoch + 1,
	       at, "rank %d of %d, epoch %" PRIu64 " after %" PRIu64, w.rank, w.ranks,
	       w.epoch, old.epoch);
	find_hosts();
}

#endif
