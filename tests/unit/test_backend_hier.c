/* lib/hier: the collectives of ranks on several hosts; here a host is a part of the
 * ranks.
 * limit_s: 400  takes_s: 15
 * more: reductions on seven groups of hosts, of which two show most */
#include "collectives.h"
#include "meeting.h"

#include "lib/backend/hier.h"
#include "lib/backend/shm.h"

/* How many hosts, and which rank is on which: one after the other, or in turn. */
static unsigned hosts;
static bool in_turn;

static unsigned host_of(unsigned rank, unsigned n)
{
	return in_turn ? rank % hosts : rank * hosts / n;
}

static struct members members;

static struct group join(struct ranks *r, struct net *net)
{
	unsigned rank[64], host[64];
	struct shm_config local = { .cores = 2, .cache_bytes = 1 << 20 };
	struct hier_config c = { .way = &hier_ways[HIER_HOST],
				 .net = net,
				 .group = 5,
				 .members = &members };
	struct group g;

	for (unsigned k = 0; k < r->n; k++) {
		rank[k] = k;
		host[k] = 100 - host_of(k, r->n);
	}
	RANKS_ASSERT(r, !members_make(&members, rank, r->n, host, r->me),
		     "members_make");
	local.n = members.nlocal;
	local.me = members.local_me;
	local.region = (char *)r->region +
		       (sizeof(struct meeting) + 4095) / 4096 * 4096 +
		       host_of(r->me, r->n) * shm_bytes(r->n);
	c.local = shm_join(&local);
	RANKS_ASSERT(r, c.local, "shm_join");
	g = (struct group){ &hier_backend, hier_join(&c), host_of };
	RANKS_ASSERT(r, g.group, "hier_join");
	return g;
}

static void with_group(struct ranks *r, void (*check)(struct ranks *r, struct group *g))
{
	struct net *n = connect_with(r, key);
	struct group g = join(r, n);

	check(r, &g);
	g.back->leave(g.group);
	net_close(n);
}

static void all_reductions(struct ranks *r)
{
	with_group(r, check_reductions);
}

static void all_moves(struct ranks *r)
{
	with_group(r, check_moves);
}

static void differ(struct ranks *r)
{
	with_group(r, check_mismatch);
}

/* The last rank does not come before the others have given up, of whom only one's time
 * is ever over: that of the one on its host.  Nobody leaves before all have. */
static void one_is_late(struct ranks *r, struct group *g)
{
	_Atomic uint64_t *back = &((struct meeting *)r->region)->left;
	struct coll c = { .kind = BERTH_BARRIER, .signature = 5 };
	bool last = r->me == r->n - 1;
	struct timespec now;
	berth_result rc;

	while (last && atomic_load(back) < r->n - 1)
		usleep(1000);
	clock_gettime(CLOCK_MONOTONIC, &now);
	rc = g->back->begin(g->group, &c,
			    r->me == r->n - 2
				    ? (uint64_t)now.tv_sec * 1000000000 +
					      (uint64_t)now.tv_nsec + 200000000
				    : 0);
	RANKS_ASSERT(r, rc == BERTH_TIMEOUT || rc == BERTH_PEER_LOST, "%d", rc);
	atomic_fetch_add(back, 1);
	while (atomic_load(back) < r->n)
		usleep(1000);
}

static void late(struct ranks *r)
{
	with_group(r, one_is_late);
}

static const struct {
	unsigned n, hosts;
	bool in_turn;
} cases[] = {
	{ 4, 2, false }, { 5, 3, true },  { 4, 2, true }, { 6, 3, false },
	{ 5, 2, false }, { 3, 3, false }, { 8, 2, true },
};
enum { MOST_TELLING = 2 }; /* the first ones, for reductions */

static void run(int i, void (*f)(struct ranks *r))
{
	hosts = cases[i].hosts;
	in_turn = cases[i].in_turn;
	ranks_run(cases[i].n,
		  8192 + sizeof(struct meeting) + hosts * shm_bytes(cases[i].n), 0, f,
		  300); /* each rank waits for another one a thousand times */
}

START_TEST(reductions)
{
	run(_i, all_reductions);
}
END_TEST

START_TEST(moves)
{
	run(_i, all_moves);
}
END_TEST

START_TEST(mismatch)
{
	run(_i, differ);
}
END_TEST

START_TEST(timeout)
{
	run(0, late);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hier");
	TCase *t = tcase_create("hier");
	SRunner *r = srunner_create(s);
	const char *which = getenv("CHECK");
	int failed, n = (int)(sizeof cases / sizeof *cases);

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, reductions, 0,
			    which && !strcmp(which, "user") ? MOST_TELLING : n);
	tcase_add_loop_test(t, moves, 0, n);
	tcase_add_loop_test(t, mismatch, 0, n);
	tcase_add_test(t, timeout);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
