#include "lib/backend/hier_internal.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib/backend/tcp.h"
#include "lib/base/kern.h"

enum {
	RELEASE = 0x52454c31, /* signature of operations of this file alone */
	LOCAL_MOST = 4096     /* partial sums that travel with the agreement */
};

/* The first rank of a host tells this to the others. */
struct agreement {
	struct signatures signatures;
	unsigned char data[LOCAL_MOST];
	unsigned char partial[LOCAL_MOST]; /* the host's partial sums; not told */
};

static void hier_leave(void *group)
{
	struct hier *t = group;

	if (!t)
		return;
	if (t->local)
		t->in->leave(t->local);
	t->across->leave(t->all);
	t->across->leave(t->lane);
	free(t->counts);
	free(t->room);
	free(t->agreement);
	free(t);
}

/* ---- joining ---- */

/* A group of N ranks across hosts, of which this is ME: those with local number LOCAL
 * on each host, or with MEMBERS_NONE all.  NULL: out of memory. */
static void *join_across(const struct hier_config *c, uint32_t group, unsigned n,
			 unsigned me, unsigned local)
{
	unsigned *place = calloc(n, sizeof *place);
	struct tcp_config config = { c->way->lanes, c->net,       group, n, me,
				     place,         c->algorithms };
	void *made = NULL;

	for (unsigned i = 0; place && i < n; i++)
		place[i] =
			local == MEMBERS_NONE ? i : members_place(c->members, i, local);
	if (place)
		made = c->way->join_across(&config);
	free(place);
	/* cppcheck-suppress returnDanglingLifetime */
	return made;
}

struct hier *hier_join(const struct hier_config *c)
{
	const struct members *m = c->members;
	const bool has_lane = m->local_me < m->lanes;
	struct hier *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	t->m = m;
	t->in = c->way->local;
	t->across = c->way->across;
	t->counts = calloc(m->n, sizeof *t->counts);
	t->agreement = calloc(1, sizeof *t->agreement);
	if (t->counts && t->agreement)
		t->all = join_across(c, c->group, m->n, m->me, MEMBERS_NONE);
	if (t->all && has_lane)
		t->lane = join_across(c, c->group + 1, m->nhosts, m->here, m->local_me);
	if (t->all && (t->lane || !has_lane)) {
		t->local = c->local;
		return t;
	}
	hier_leave(t);
	return NULL;
}

/* ---- steps ---- */

/* If a step has failed here, ends the waits for it on this host and on others. */
static berth_result hier_give_up(struct hier *t, berth_result rc)
{
	unsigned lost;

	if (!rc || rc == BERTH_MISMATCH)
		return rc;
	lost = t->in->others(t->local, &lost, 1) ? t->m->local_place[lost] : t->m->n;
	t->in->revoke(t->local, rc, 0);
	t->across->revoke(t->all, rc, lost);
	return rc;
}

static bool is_small(const struct coll *c)
{
	return c->kind == BERTH_ALLREDUCE &&
	       c->count * kern_size(kern_accumulator(c->type)) <= LOCAL_MOST;
}

/* Up: the host's ranks agree among themselves, and make the partial sum of a small
 * allreduce. */
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
		(struct signatures){ c->signature, c->signature, t->m->me, t->m->me };
	if (rc != BERTH_MISMATCH)
		return rc;
	/* two signatures that differ are enough for all hosts to see it */
	t->in->others(t->local, &differs, 1);
	v->signatures.high = ~c->signature;
	v->signatures.high_at = t->m->local_place[differs];
	if (v->signatures.high < v->signatures.low) {
		v->signatures =
			(struct signatures){ ~c->signature, c->signature,
					     t->m->local_place[differs], t->m->me };
	}
	return BERTH_OK;
}

static berth_result hier_agree(struct hier *t, const struct coll *c,
			       uint64_t deadline_ns)
{
	struct agreement *v = t->agreement;
	berth_result rc = go_up(t, c, v, deadline_ns);
	/* if ranks of this host differ, the signatures that go down differ, too */
	bool same = v->signatures.low == v->signatures.high;
	size_t bytes = same && is_small(c) ? c->count * kern_size(c->type) : 0;
	struct coll across = *c;
	const struct coll down = { .kind = BERTH_BROADCAST,
				   .type = BERTH_U8,
				   .in = v,
				   .out = v,
				   .count = offsetof(struct agreement, data) + bytes,
				   .signature = RELEASE };

	/* across: the first ranks of all hosts agree */
	across.in = v->partial;
	across.in_form = KERN_PARTIAL;
	across.out = v->data;
	across.count = is_small(c) ? c->count : 0;
	if (!rc && t->m->local_me == 0)
		rc = t->across->agree(t->lane, &across, &v->signatures, deadline_ns);
	if (!rc) /* down: it tells the others what it has learnt */
		rc = hier_in_memory(t, &down, deadline_ns);
	if (rc)
		return rc;
	if (v->signatures.low == v->signatures.high) {
		if (bytes)
			memcpy(c->out, v->data, bytes);
		return BERTH_OK;
	}
	t->other = v->signatures.low_at == t->m->me || v->signatures.low == c->signature
			   ? v->signatures.high_at
			   : v->signatures.low_at;
	t->has_other = t->other < t->m->n; /* the number comes from peers */
	return BERTH_MISMATCH;
}

/* ---- all kinds ---- */

static berth_result hier_broadcast(struct hier *t, const struct coll *c,
				   uint64_t deadline_ns)
{
	struct coll here = *c, across = *c;
	unsigned home = t->m->host[c->root];
	berth_result rc = BERTH_OK;

	here.signature = HIER_PHASE;
	here.root = 0;
	for (unsigned i = 0; home == t->m->here && i < t->m->nlocal; i++)
		if (t->m->local_place[i] == c->root)
			here.root = i;
	if (home == t->m->here)
		rc = hier_in_memory(t, &here, deadline_ns);
	across.root = home;
	across.in = c->out;
	if (!rc && t->m->local_me == 0)
		rc = t->across->data(t->lane, &across, deadline_ns);
	here.in = c->out;
	if (!rc && home != t->m->here)
		rc = hier_in_memory(t, &here, deadline_ns);
	return rc;
}

static berth_result in_steps(struct hier *t, const struct coll *c, uint64_t deadline_ns)
{
	berth_result rc = hier_agree(t, c, deadline_ns);

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
		return hier_broadcast(t, c, deadline_ns);
	default:
		return t->across->data(t->all, c, deadline_ns);
	}
}

static berth_result hier_begin(void *group, const struct coll *c, uint64_t deadline_ns)
{
	struct hier *t = group;

	t->has_other = false;
	/* no two ranks share a host */
	return hier_give_up(t, t->m->nhosts == t->m->n
				       ? t->across->begin(t->all, c, deadline_ns)
				       : in_steps(t, c, deadline_ns));
}

static size_t hier_others(const void *group, unsigned *which, size_t most)
{
	const struct hier *t = group;
	size_t n;

	if (t->has_other && most) {
		*which = t->other;
		return 1;
	}
	n = t->in->others(t->local, which, most);
	for (size_t i = 0; i < n && i < most; i++)
		which[i] = t->m->local_place[which[i]];
	if (n)
		return n;
	n = t->across->others(t->all, which, most);
	if (n || !t->lane)
		return n;
	n = t->across->others(t->lane, which, most);
	for (size_t i = 0; i < n && i < most; i++)
		which[i] = members_place(t->m, which[i], t->m->local_me);
	return n;
}

static berth_result hier_explain(void *group, const char *text, const char **said)
{
	struct hier *t = group;

	return hier_give_up(t, t->across->explain(t->all, text, said));
}

static void hier_revoke(void *group, berth_result result, unsigned lost)
{
	struct hier *t = group;

	t->in->revoke(t->local, result, lost);
	t->across->revoke(t->all, result, lost);
}

static berth_result hier_ended(const void *group)
{
	const struct hier *t = group;

	return t->in->ended(t->local);
}

static size_t hier_algorithms(const void *group, char *text, size_t bytes)
{
	const struct hier *t = group;
	const void *across = t->lane && t->m->nhosts < t->m->n ? t->lane : t->all;
	size_t n = t->in->algorithms(t->local, text, bytes);

	return n + t->across->algorithms(across, n < bytes ? text + n : NULL,
					 n < bytes ? bytes - n : 0);
}

const struct backend hier_backend = { .name = "two",
				      .begin = hier_begin,
				      .others = hier_others,
				      .explain = hier_explain,
				      .revoke = hier_revoke,
				      .ended = hier_ended,
				      .leave = hier_leave,
				      .algorithms = hier_algorithms };

const struct hier_way hier_ways[HIER_WAYS] = {
	[HIER_HOST] = { &shm_backend, &tcp_backend, &net_lanes, tcp_join },
};
