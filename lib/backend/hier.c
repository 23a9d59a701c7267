#include "lib/backend/hier_internal.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/kern.h"

enum {
	RELEASE = 0x52454c31, /* signature of what only this file calls for */
	LOCAL_MOST = 4096     /* partial sums that travel with the agreement */
};

/* What the first rank of a host tells the others. */
struct agreement {
	struct tcp_signatures signatures;
	unsigned char data[LOCAL_MOST];
	unsigned char partial[LOCAL_MOST]; /* what has come up; not told */
};

static void leave(void *group)
{
	struct hier *t = group;

	if (!t)
		return;
	if (t->local)
		shm_backend.leave(t->local);
	tcp_backend.leave(t->all);
	tcp_backend.leave(t->lane);
	free(t->place);
	free(t->host);
	free(t->first);
	free(t->counts);
	free(t->room);
	free(t->agreement);
	free(t);
}

/* ---- who is where ---- */

/* Numbers 0, 1, ... for hosts in the order of their first ranks. */
static void number_hosts(struct hier *t, const unsigned *host)
{
	for (unsigned i = 0; i < t->n; i++) {
		unsigned h = 0;

		while (h < t->nhosts && host[t->first[h]] != host[i])
			h++;
		if (h == t->nhosts)
			t->first[t->nhosts++] = i;
		t->host[i] = h;
	}
	for (unsigned i = 0; i < t->n; i++)
		if (t->host[i] == t->host[t->me]) {
			if (i == t->me)
				t->local_me = t->nlocal;
			t->place[t->nlocal++] = i;
		}
}

/* The rank of local number LOCAL on each host, as a group; NULL: out of memory. */
static struct tcp *group_of(const struct hier *t, const struct hier_config *c,
			    unsigned local, uint32_t number)
{
	unsigned *rank = calloc(t->nhosts, sizeof *rank);
	struct tcp_config config = { c->net,         number, t->nhosts,
				     t->host[t->me], rank,   c->algorithms };
	struct tcp *group = NULL;

	for (unsigned h = 0; rank && h < t->nhosts; h++)
		rank[h] = c->rank[hier_place(t, h, local)];
	if (rank)
		group = tcp_join(&config);
	free(rank);
	return group;
}

static bool join_groups(struct hier *t, const struct hier_config *c)
{
	struct tcp_config all = {
		c->net, c->group, t->n, t->me, c->rank, c->algorithms
	};

	t->lanes = t->n;
	for (unsigned h = 0; h < t->nhosts; h++)
		if (hier_ranks_on(t, h) < t->lanes)
			t->lanes = hier_ranks_on(t, h);
	t->all = tcp_join(&all);
	if (t->local_me < t->lanes)
		t->lane = group_of(t, c, t->local_me, c->group + 1);
	return t->all && (t->lane || t->local_me >= t->lanes);
}

struct hier *hier_join(const struct hier_config *c)
{
	struct hier *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	t->n = c->n;
	t->me = c->me;
	t->place = calloc(t->n, sizeof *t->place);
	t->host = calloc(t->n, sizeof *t->host);
	t->first = calloc(t->n, sizeof *t->first);
	t->counts = calloc(t->n, sizeof *t->counts);
	t->agreement = calloc(1, sizeof *t->agreement);
	if (t->place && t->host && t->first && t->counts && t->agreement) {
		number_hosts(t, c->host);
		if (join_groups(t, c)) {
			t->local = c->local;
			return t;
		}
	}
	leave(t);
	return NULL;
}

/* ---- steps ---- */

/* A step failed here: nobody is to wait for it, on this host or another. */
static berth_result give_up(struct hier *t, berth_result rc)
{
	unsigned lost;

	if (!rc || rc == BERTH_MISMATCH)
		return rc;
	lost = shm_backend.others(t->local, &lost, 1) ? t->place[lost] : t->n;
	shm_backend.end(t->local, rc, 0);
	tcp_backend.end(t->all, rc, lost);
	return rc;
}

static bool is_small(const struct coll *c)
{
	return c->kind == BERTH_ALLREDUCE &&
	       c->count * kern_size(kern_accumulator(c->type)) <= LOCAL_MOST;
}

/* Up: the host's ranks agree among themselves; the partial sum of a small allreduce. */
static berth_result go_up(struct hier *t, const struct coll *c, struct agreement *v,
			  uint64_t deadline_ns)
{
	struct coll local = *c;
	unsigned differs;
	berth_result rc;

	local.out = v->partial;
	local.out_form = KERN_PARTIAL;
	if (!is_small(c))
		local.kind = BERTH_BARRIER;
	rc = hier_in_memory(t, &local, deadline_ns);
	v->signatures =
		(struct tcp_signatures){ c->signature, c->signature, t->me, t->me };
	if (rc != BERTH_MISMATCH)
		return rc;
	/* any two that differ make all hosts see it */
	shm_backend.others(t->local, &differs, 1);
	v->signatures.high = ~c->signature;
	v->signatures.high_at = t->place[differs];
	if (v->signatures.high < v->signatures.low) {
		v->signatures = (struct tcp_signatures){ ~c->signature, c->signature,
							 t->place[differs], t->me };
	}
	return BERTH_OK;
}

/* Across, of the first rank of each host. */
static berth_result go_across(struct hier *t, const struct coll *c, struct agreement *v,
			      uint64_t deadline_ns)
{
	struct coll small = *c;

	small.in = v->partial;
	small.in_form = KERN_PARTIAL;
	small.out = v->data;
	small.count = is_small(c) ? c->count : 0;
	return tcp_agree(t->lane, &small, &v->signatures, deadline_ns);
}

/* Down: what the first rank has learnt. */
static berth_result go_down(struct hier *t, struct agreement *v, size_t bytes,
			    uint64_t deadline_ns)
{
	struct coll c = { .kind = BERTH_BROADCAST,
			  .type = BERTH_U8,
			  .in = v,
			  .out = v,
			  .count = offsetof(struct agreement, data) + bytes,
			  .signature = RELEASE };

	return hier_in_memory(t, &c, deadline_ns);
}

static berth_result agree(struct hier *t, const struct coll *c, uint64_t deadline_ns)
{
	struct agreement *v = t->agreement;
	berth_result rc = go_up(t, c, v, deadline_ns);
	/* ranks of this host that differ do so in what goes down as well */
	bool same = v->signatures.low == v->signatures.high;
	size_t bytes = same && is_small(c) ? c->count * kern_size(c->type) : 0;

	if (!rc && t->local_me == 0)
		rc = go_across(t, c, v, deadline_ns);
	if (!rc)
		rc = go_down(t, v, bytes, deadline_ns);
	if (rc)
		return rc;
	if (v->signatures.low == v->signatures.high) {
		if (bytes)
			memcpy(c->out, v->data, bytes);
		return BERTH_OK;
	}
	t->other = v->signatures.low_at == t->me || v->signatures.low == c->signature
			   ? v->signatures.high_at
			   : v->signatures.low_at;
	t->has_other = t->other < t->n; /* as peers say */
	return BERTH_MISMATCH;
}

/* ---- all kinds ---- */

static berth_result broadcast(struct hier *t, const struct coll *c,
			      uint64_t deadline_ns)
{
	struct coll here = *c, across = *c;
	unsigned home = t->host[c->root];
	berth_result rc = BERTH_OK;

	here.signature = HIER_PHASE;
	here.root = 0;
	for (unsigned i = 0; home == t->host[t->me] && i < t->nlocal; i++)
		if (t->place[i] == c->root)
			here.root = i;
	if (home == t->host[t->me])
		rc = hier_in_memory(t, &here, deadline_ns);
	across.root = home;
	across.in = c->out;
	if (!rc && t->local_me == 0)
		rc = tcp_data(t->lane, &across, deadline_ns);
	here.in = c->out;
	if (!rc && home != t->host[t->me])
		rc = hier_in_memory(t, &here, deadline_ns);
	return rc;
}

static berth_result in_steps(struct hier *t, const struct coll *c, uint64_t deadline_ns)
{
	berth_result rc = agree(t, c, deadline_ns);

	if (rc || is_small(c))
		return rc;
	switch (c->kind) {
	case BERTH_BARRIER:
		return BERTH_OK;
	case BERTH_ALLREDUCE:
		return hier_allreduce(t, c, deadline_ns);
	case BERTH_REDUCE:
		return hier_reduce(t, c, deadline_ns);
	case BERTH_REDUCESCATTER:
		return hier_reducescatter(t, c, deadline_ns);
	case BERTH_BROADCAST:
		return broadcast(t, c, deadline_ns);
	default:
		return tcp_data(t->all, c, deadline_ns);
	}
}

static berth_result run(void *group, const struct coll *c, uint64_t deadline_ns)
{
	struct hier *t = group;

	t->has_other = false;
	/* no two ranks share a host */
	return give_up(t, t->nhosts == t->n ? tcp_backend.run(t->all, c, deadline_ns)
					    : in_steps(t, c, deadline_ns));
}

/* In GROUP, which has the rank of local number LOCAL of each host. */
static size_t others_across(const struct hier *t, const struct tcp *group,
			    unsigned local, unsigned *which, size_t most)
{
	const size_t n = tcp_backend.others(group, which, most);

	for (size_t i = 0; i < n && i < most; i++)
		which[i] = hier_place(t, which[i], local);
	return n;
}

static size_t others(const void *group, unsigned *which, size_t most)
{
	const struct hier *t = group;
	size_t n;

	if (t->has_other && most) {
		*which = t->other;
		return 1;
	}
	n = shm_backend.others(t->local, which, most);
	for (size_t i = 0; i < n && i < most; i++)
		which[i] = t->place[which[i]];
	if (n)
		return n;
	n = tcp_backend.others(t->all, which, most);
	if (!n && t->lane)
		n = others_across(t, t->lane, t->local_me, which, most);
	return n;
}

static berth_result explain(void *group, const char *text, const char **said)
{
	struct hier *t = group;

	return give_up(t, tcp_backend.explain(t->all, text, said));
}

static void end(void *group, berth_result result, unsigned lost)
{
	struct hier *t = group;

	shm_backend.end(t->local, result, lost);
	tcp_backend.end(t->all, result, lost);
}

static size_t algorithms(const void *group, char *text, size_t bytes)
{
	const struct hier *t = group;
	const struct tcp *across = t->lane && t->nhosts < t->n ? t->lane : t->all;
	size_t n = shm_backend.algorithms(t->local, text, bytes);

	return n + tcp_backend.algorithms(across, n < bytes ? text + n : NULL,
					  n < bytes ? bytes - n : 0);
}

const struct backend hier_backend = { "two", run,   NULL,       others, explain,
				      end,   leave, algorithms, false,  0 };
