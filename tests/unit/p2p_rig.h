/* p2p_rig.h - for tests of lib/p2p/p2p: ranks (ranks.h) that send to each other, on
 * one host or on several, which are parts of them. */
#ifndef BERTH_TESTS_P2P_RIG_H
#define BERTH_TESTS_P2P_RIG_H

#include "meeting.h"

#include "lib/p2p/p2p_internal.h"
#include "lib/base/clock.h"

enum { RIG_LIMIT_S = 60 };

/* How many hosts; rank r is on host r % rig_hosts. */
static unsigned rig_hosts = 1;
static _Atomic unsigned rig_done;

/* What the ranks see of each other, behind struct meeting. */
struct rig_shared {
	_Atomic unsigned gone[64]; /* this rank has ended without a word */
	_Atomic unsigned step;     /* what a test counts */
	_Atomic uint64_t ns[8];
};

struct rig {
	struct ranks *r;
	struct p2p *p;
	struct p2p_group *all; /* the first group: all ranks */
	struct rig_shared *shared;
	struct members members;
};

static size_t rig_meeting_bytes(void)
{
	return (sizeof(struct meeting) + sizeof(struct rig_shared) + 8191) / 4096 *
	       4096;
}

static size_t rig_bytes(unsigned n)
{
	return rig_meeting_bytes() + rig_hosts * p2p_bytes((n - 1) / rig_hosts + 1);
}

static bool rig_is_lost(void *ctx, unsigned place)
{
	return atomic_load(&((struct rig *)ctx)->shared->gone[place]);
}

/* Who has ended the group, and why; nobody: empty. */
static char rig_aborted[P2P_REASON_BYTES + 20];

static void rig_note_abort(void *ctx, unsigned place, const char *text)
{
	(void)ctx;
	snprintf(rig_aborted, sizeof rig_aborted, "%u: %s", place, text);
}

static struct p2p_group *rig_group(struct rig *g, const struct members *m,
				   uint32_t number)
{
	struct p2p_group *group =
		p2p_join(g->p, &(struct p2p_group_config){ .members = m,
							   .number = number,
							   .aborted = rig_note_abort,
							   .ctx = g });

	RANKS_ASSERT(g->r, group, "p2p_join");
	return group;
}

static void rig_join(struct rig *g, struct ranks *r)
{
	unsigned rank[64], host[64];
	struct p2p_config c = {
		.members = &g->members, .is_lost = rig_is_lost, .ctx = g, .cores = 2
	};

	g->r = r;
	g->shared = (void *)((unsigned char *)r->region + sizeof(struct meeting));
	for (unsigned k = 0; k < r->n; k++) {
		rank[k] = k;
		host[k] = k % rig_hosts;
	}
	RANKS_ASSERT(r, !members_make(&g->members, rank, r->n, host, r->me),
		     "members_make");
	if (g->members.nlocal > 1)
		c.region = (unsigned char *)r->region + rig_meeting_bytes() +
			   host[r->me] * p2p_bytes((r->n - 1) / rig_hosts + 1);
	if (rig_hosts > 1)
		c.net = connect_with(r, key);
	g->p = p2p_open(&c);
	RANKS_ASSERT(r, g->p, "p2p_open");
	g->all = rig_group(g, &g->members, 0);
	atomic_store(&rig_done, 0);
}

static void rig_count(struct p2p_message *m)
{
	(void)m;
	atomic_fetch_add(&rig_done, 1);
}

static struct p2p_message rig_send(unsigned to, uint64_t tag, const void *in,
				   uint64_t bytes)
{
	return (struct p2p_message){ .sends = true,
				     .peer = (int)to,
				     .tag = tag,
				     .signature = 7,
				     .in = in,
				     .bytes = bytes,
				     .done = rig_count,
				     .rc = BERTH_BUSY };
}

static struct p2p_message rig_receive(int from, uint64_t tag, void *out, uint64_t bytes)
{
	return (struct p2p_message){ .peer = from,
				     .tag = tag,
				     .signature = 7,
				     .out = out,
				     .bytes = bytes,
				     .done = rig_count,
				     .rc = BERTH_BUSY };
}

static bool rig_has_done(void *ctx)
{
	return atomic_load(&rig_done) >= *(unsigned *)ctx;
}

/* Until N messages in all are done since the last such call. */
static void rig_await(struct rig *g, unsigned n)
{
	p2p_wait(g->p, rig_has_done, &n, clock_ns() + RIG_LIMIT_S * 1000000000ull);
	RANKS_ASSERT(g->r, atomic_load(&rig_done) == n, "%u of %u done",
		     atomic_load(&rig_done), n);
	atomic_store(&rig_done, 0);
}

static void rig_post(struct rig *g, struct p2p_message *m, size_t n)
{
	berth_result rc = p2p_post(g->all, m, n);

	RANKS_ASSERT(g->r, !rc, "p2p_post: %d", rc);
}

static void rig_run(struct rig *g, struct p2p_message *m, unsigned n)
{
	rig_post(g, m, n);
	rig_await(g, n);
}

/* One message, and how it ends. */
static berth_result rig_do(struct rig *g, struct p2p_message m)
{
	rig_run(g, &m, 1);
	return m.rc;
}

/* All ranks come here, by messages. */
static void rig_meet(struct rig *g)
{
	struct p2p_message m[128];
	unsigned k = 0;

	for (unsigned i = 0; i < g->r->n; i++)
		if (i != g->r->me) {
			m[k++] = rig_send(i, ~0ull, NULL, 0);
			m[k++] = rig_receive((int)i, ~0ull, NULL, 0);
		}
	rig_run(g, m, k);
	for (unsigned i = 0; i < k; i++)
		RANKS_ASSERT(g->r, !m[i].rc, "meeting: %d", m[i].rc);
}

/* Byte I of message number K of FROM. */
static unsigned char rig_byte(unsigned from, unsigned k, uint64_t i)
{
	return (unsigned char)(from * 31 + k * 7 + i * 13 + (i >> 8));
}

static void rig_fill(void *to, unsigned from, unsigned k, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		((unsigned char *)to)[i] = rig_byte(from, k, i);
}

static void rig_check(struct rig *g, const void *got, unsigned from, unsigned k,
		      uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		RANKS_ASSERT(g->r,
			     ((const unsigned char *)got)[i] == rig_byte(from, k, i),
			     "message %u of %u: byte %zu of %zu", k, from, (size_t)i,
			     (size_t)bytes);
}

/* ---- ranks that run a test ---- */

static void (*rig_body)(struct rig *g);

static void rig_with(struct ranks *r)
{
	struct rig g = { .r = r };

	rig_join(&g, r);
	rig_body(&g);
	p2p_leave(g.all);
	p2p_close(g.p);
	members_free(&g.members);
}

/* F as N ranks, KIND 0: of one host; 1: of N hosts; 2: of two. */
static inline void rig_start(int kind, unsigned n, void (*f)(struct rig *g))
{
	const unsigned hosts[] = { 1, n, 2 };

	rig_hosts = hosts[kind];
	rig_body = f;
	ranks_run(n, rig_bytes(n), 0, rig_with, RIG_LIMIT_S);
}

/* SEED, or any: said, so that a failure can be had again. */
static inline unsigned rig_seed(const char *what)
{
	const char *text = getenv("SEED");
	unsigned seed = text ? (unsigned)atoi(text) : (unsigned)getpid();

	printf("%s: SEED=%u\n", what, seed);
	fflush(stdout);
	return seed;
}

/* What a test does not use. */
static inline void rig_unused(void)
{
	(void)ranks_fill;
	(void)ranks_free;
	(void)ranks_array;
	(void)ranks_run;
	(void)rig_bytes;
	(void)rig_join;
	(void)rig_do;
	(void)rig_meet;
	(void)rig_fill;
	(void)rig_check;
}

#endif
