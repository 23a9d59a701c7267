#include "lib/backend/hier.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib/backend/tcp.h"
#include "lib/base/kern.h"

enum {
	RELEASE = 0x52454c31, /* signatures of what only this file calls for */
	PHASE = 0x50484153,
	LOCAL_MOST =
		4096 /* what travels in one operation in memory with the agreement */
};

struct hier {
	struct shm *local;
	struct tcp *all, *leaders,
		*lane; /* leaders: of first ranks only; lane: NULL where
					     hosts are not alike */
	unsigned n, me;
	unsigned nlocal, local_me;
	unsigned *place; /* of the local ones */
	unsigned *host;  /* its number, 0, 1, ..., for each place */
	unsigned *first; /* place of the first rank of each host */
	unsigned nhosts;
	uint64_t *counts; /* room for one a local rank */
	struct agreement *agreement;
	unsigned other;
	bool has_other;
};

/* What the first rank of a host tells the others. */
struct agreement {
	struct tcp_signatures signatures;
	unsigned char data[LOCAL_MOST];
};

static void leave(void *group)
{
	struct hier *t = group;

	if (!t)
		return;
	if (t->local)
		shm_backend.leave(t->local);
	tcp_backend.leave(t->all);
	tcp_backend.leave(t->leaders);
	tcp_backend.leave(t->lane);
	free(t->place);
	free(t->host);
	free(t->first);
	free(t->counts);
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

static bool hosts_are_alike(const struct hier *t)
{
	for (unsigned h = 0; h < t->nhosts; h++) {
		unsigned n = 0;

		for (unsigned i = 0; i < t->n; i++)
			n += t->host[i] == h;
		if (n != t->nlocal)
			return false;
	}
	return true;
}

/* Of the rank of local number LOCAL on HOST. */
static unsigned place_on(const struct hier *t, unsigned host, unsigned local)
{
	unsigned i = 0;

	while (t->host[i] != host || local--)
		i++;
	return i;
}

/* The rank of local number LOCAL on each host, as a group; NULL: out of memory. */
static struct tcp *group_of(const struct hier *t, const struct hier_config *c,
			    unsigned local, uint32_t number)
{
	unsigned *rank = calloc(t->nhosts, sizeof *rank);
	struct tcp_config config = { c->net, number, t->nhosts, t->host[t->me], rank };
	struct tcp *group = NULL;

	for (unsigned h = 0; rank && h < t->nhosts; h++)
		rank[h] = c->rank[place_on(t, h, local)];
	if (rank)
		group = tcp_join(&config);
	free(rank);
	return group;
}

static bool join_groups(struct hier *t, const struct hier_config *c)
{
	struct tcp_config all = { c->net, c->group, t->n, t->me, c->rank };

	t->all = tcp_join(&all);
	if (t->local_me == 0)
		t->leaders = group_of(t, c, 0, c->group + 1);
	if (hosts_are_alike(t))
		t->lane = group_of(t, c, t->local_me, c->group + 2);
	return t->all && (t->local_me || t->leaders) &&
	       (t->lane || !hosts_are_alike(t));
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

static berth_result in_memory(struct hier *t, const struct coll *c,
			      uint64_t deadline_ns)
{
	return shm_backend.run(t->local, c, deadline_ns);
}

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
	       c->count * kern_size(c->type) <= LOCAL_MOST;
}

/* Up: the host's ranks agree among themselves; the sum of a small allreduce. */
static berth_result go_up(struct hier *t, const struct coll *c, struct agreement *v,
			  uint64_t deadline_ns)
{
	struct coll local = *c;
	unsigned differs;
	berth_result rc;

	if (is_small(c))
		local.out = v->data;
	else
		local.kind = BERTH_BARRIER;
	rc = in_memory(t, &local, deadline_ns);
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

/* Down: what the first rank has signatures. */
static berth_result go_down(struct hier *t, struct agreement *v, size_t bytes,
			    uint64_t deadline_ns)
{
	struct coll c = { .kind = BERTH_BROADCAST,
			  .type = BERTH_U8,
			  .in = v,
			  .out = v,
			  .count = offsetof(struct agreement, data) + bytes,
			  .signature = RELEASE };

	return in_memory(t, &c, deadline_ns);
}

static berth_result agree(struct hier *t, const struct coll *c, uint64_t deadline_ns)
{
	struct agreement *v = t->agreement;
	size_t bytes = is_small(c) ? c->count * kern_size(c->type) : 0;
	berth_result rc = go_up(t, c, v, deadline_ns);

	if (rc)
		return rc;
	if (t->leaders) {
		rc = tcp_agree(t->leaders, c, &v->signatures, v->data, bytes,
			       deadline_ns);
		if (rc)
			return rc;
	}
	rc = go_down(t, v, bytes, deadline_ns);
	if (rc)
		return rc;
	if (v->signatures.low == v->signatures.high) {
		if (bytes)
			memcpy(c->out, v->data, bytes);
		return BERTH_OK;
	}
	t->has_other = true;
	t->other = v->signatures.low_at == t->me || v->signatures.low == c->signature
			   ? v->signatures.high_at
			   : v->signatures.low_at;
	return BERTH_MISMATCH;
}

/* ---- data ---- */

static unsigned char *at(const struct coll *c, uint64_t element)
{
	return (unsigned char *)c->out + element * kern_size(c->type);
}

/* Each local rank one part, which its lane reduces over the hosts. */
static berth_result allreduce_by_parts(struct hier *t, const struct coll *c,
				       uint64_t deadline_ns)
{
	struct coll scatter = *c, across = *c, gather = *c;
	uint64_t *counts = t->counts, from;
	berth_result rc;

	for (unsigned i = 0; i < t->nlocal; i++)
		counts[i] = c->count / t->nlocal + (i < c->count % t->nlocal);
	from = coll_part_at(c, t->nlocal, t->local_me);
	scatter.kind = BERTH_REDUCESCATTER;
	scatter.out = at(c, from); /* where it is: so this may be done in place */
	scatter.signature = PHASE;
	rc = in_memory(t, &scatter, deadline_ns);
	if (rc)
		return rc;
	across.in = across.out = at(c, from);
	across.count = counts[t->local_me];
	rc = tcp_data(t->lane, &across, deadline_ns);
	if (rc)
		return rc;
	gather.kind = BERTH_ALLGATHER;
	gather.in = at(c, from);
	gather.count = counts[t->local_me];
	gather.out_counts = counts;
	gather.signature = PHASE + 1;
	return in_memory(t, &gather, deadline_ns);
}

static berth_result allreduce_by_first(struct hier *t, const struct coll *c,
				       uint64_t deadline_ns)
{
	struct coll up = *c, across = *c, down = *c;
	berth_result rc;

	up.kind = BERTH_REDUCE;
	up.root = 0;
	up.signature = PHASE;
	rc = in_memory(t, &up, deadline_ns);
	if (rc)
		return rc;
	across.in = c->out;
	if (t->leaders)
		rc = tcp_data(t->leaders, &across, deadline_ns);
	if (rc)
		return rc;
	down.kind = BERTH_BROADCAST;
	down.in = c->out;
	down.root = 0;
	down.signature = PHASE + 1;
	return in_memory(t, &down, deadline_ns);
}

static berth_result broadcast(struct hier *t, const struct coll *c,
			      uint64_t deadline_ns)
{
	struct coll here = *c, across = *c;
	unsigned home = t->host[c->root];
	berth_result rc = BERTH_OK;

	here.signature = PHASE;
	here.root = 0;
	for (unsigned i = 0; home == t->host[t->me] && i < t->nlocal; i++)
		if (t->place[i] == c->root)
			here.root = i;
	if (home == t->host[t->me])
		rc = in_memory(t, &here, deadline_ns);
	across.root = home;
	across.in = c->out;
	if (!rc && t->leaders)
		rc = tcp_data(t->leaders, &across, deadline_ns);
	here.in = c->out;
	if (!rc && home != t->host[t->me])
		rc = in_memory(t, &here, deadline_ns);
	return rc;
}

static berth_result in_steps(struct hier *t, const struct coll *c, uint64_t deadline_ns)
{
	berth_result rc = agree(t, c, deadline_ns);

	if (rc || is_small(c) || c->kind == BERTH_BARRIER)
		return rc;
	if (c->kind == BERTH_ALLREDUCE)
		return t->lane ? allreduce_by_parts(t, c, deadline_ns)
			       : allreduce_by_first(t, c, deadline_ns);
	if (c->kind == BERTH_BROADCAST)
		return broadcast(t, c, deadline_ns);
	return tcp_data(t->all, c, deadline_ns);
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
		which[i] = place_on(t, which[i], local);
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
	if (!n && t->leaders)
		n = others_across(t, t->leaders, 0, which, most);
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
	const struct tcp *across = t->lane ? t->lane : t->leaders ? t->leaders : t->all;
	size_t n = shm_backend.algorithms(t->local, text, bytes);

	return n + tcp_backend.algorithms(across, n < bytes ? text + n : NULL,
					  n < bytes ? bytes - n : 0);
}

const struct backend hier_backend = { "two", run,        others, explain, end,
				      leave, algorithms, false,  0 };
