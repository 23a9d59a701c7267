#include "lib/backend/hier.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib/backend/tcp.h"
#include "lib/base/kern.h"

enum {
	RELEASE = 0x52454c31, /* signatures of what only this file calls for */
	PHASE = 0x50484153,
	LOCAL_MOST = 4096 /* partial sums that travel with the agreement */
};

struct hier {
	struct shm *local;
	struct tcp *all; /* every rank of every host */
	struct tcp
		*lane; /* the rank of the same number on each host; NULL: it has none */
	unsigned n, me;
	unsigned nlocal, local_me;
	unsigned lanes;  /* the ranks of the host that has fewest */
	unsigned *place; /* of the local ones */
	unsigned *host;  /* its number, 0, 1, ..., for each place */
	unsigned *first; /* place of the first rank of each host */
	unsigned nhosts;
	uint64_t *counts; /* room for one of each rank */
	unsigned char *room;
	size_t room_bytes;
	struct agreement *agreement;
	unsigned other;
	bool has_other;
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

static unsigned ranks_on(const struct hier *t, unsigned host)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->n; i++)
		n += t->host[i] == host;
	return n;
}

static bool hosts_are_alike(const struct hier *t)
{
	for (unsigned h = 0; h < t->nhosts; h++)
		if (ranks_on(t, h) != t->lanes)
			return false;
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
	struct tcp_config config = { c->net,         number, t->nhosts,
				     t->host[t->me], rank,   c->algorithms };
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
	struct tcp_config all = {
		c->net, c->group, t->n, t->me, c->rank, c->algorithms
	};

	t->lanes = t->n;
	for (unsigned h = 0; h < t->nhosts; h++)
		if (ranks_on(t, h) < t->lanes)
			t->lanes = ranks_on(t, h);
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
	       c->count * kern_size(kern_accumulator(c->type)) <= LOCAL_MOST;
}

/* T->room has BYTES at least. */
static berth_result need_room(struct hier *t, size_t bytes)
{
	if (bytes <= t->room_bytes)
		return BERTH_OK;
	free(t->room);
	t->room = aligned_alloc(64, (bytes + 63) / 64 * 64);
	t->room_bytes = t->room ? bytes : 0;
	return t->room ? BERTH_OK : BERTH_MEMORY;
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

	return in_memory(t, &c, deadline_ns);
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

/* ---- reductions ---- */

static unsigned char *at(const struct coll *c, uint64_t element)
{
	return (unsigned char *)c->out + element * kern_size(c->type);
}

/* Elements of each lane's part of C: the same parts on every host. */
static void cut_by_lanes(struct hier *t, const struct coll *c)
{
	for (unsigned i = 0; i < t->nlocal; i++)
		t->counts[i] =
			i >= t->lanes ? 0
				      : c->count / t->lanes + (i < c->count % t->lanes);
}

/* The host's partial sums of this rank's part, T->counts of C->in, at WHERE. */
static berth_result scatter(struct hier *t, const struct coll *c, void *where,
			    uint64_t deadline_ns)
{
	struct coll local = *c;

	local.kind = BERTH_REDUCESCATTER;
	local.out = where;
	local.out_form = KERN_PARTIAL;
	local.in_counts = t->counts;
	local.signature = PHASE;
	return in_memory(t, &local, deadline_ns);
}

/* Room for partial sums of N elements: where the result goes, if that is as wide. */
static berth_result partial_room(struct hier *t, const struct coll *c, uint64_t n,
				 void *result, void **where)
{
	const size_t bytes = kern_size(kern_accumulator(c->type));
	berth_result rc;

	*where = result;
	if (bytes == kern_size(c->type))
		return BERTH_OK;
	rc = need_room(t, n * bytes);
	*where = t->room;
	return rc;
}

/* Each lane reduces its part over the hosts, all at once, and the parts are put
 * together in memory. */
static berth_result allreduce(struct hier *t, const struct coll *c,
			      uint64_t deadline_ns)
{
	struct coll across = *c, gather = *c;
	void *where = NULL;
	uint64_t from = 0, n;
	berth_result rc;

	cut_by_lanes(t, c);
	n = t->counts[t->local_me];
	for (unsigned i = 0; i < t->local_me; i++)
		from += t->counts[i];
	rc = partial_room(t, c, n, at(c, from), &where);
	if (!rc)
		rc = scatter(t, c, where, deadline_ns);
	if (!rc && t->lane) {
		across.in = where;
		across.in_form = KERN_PARTIAL;
		across.out = at(c, from);
		across.count = n;
		rc = tcp_data(t->lane, &across, deadline_ns);
	}
	if (rc)
		return rc;
	gather.kind = BERTH_ALLGATHER;
	gather.in = at(c, from);
	gather.count = n;
	gather.out_counts = t->counts;
	gather.signature = PHASE + 1;
	return in_memory(t, &gather, deadline_ns);
}

/* The lanes' parts of the result on the root's host, to the root. */
static berth_result collect(struct hier *t, const struct coll *c, const void *part,
			    uint64_t deadline_ns)
{
	uint64_t give[t->nlocal], got[t->nlocal];
	struct coll local = *c;
	bool is_root = c->root == t->me;

	for (unsigned i = 0; i < t->nlocal; i++) {
		give[i] = t->place[i] == c->root ? t->counts[t->local_me] : 0;
		got[i] = is_root ? t->counts[i] : 0;
	}
	local.kind = BERTH_ALLTOALL;
	local.in = part;
	local.count = t->counts[t->local_me];
	local.in_counts = give;
	local.out_counts = got;
	local.largest = t->counts[0];
	local.signature = PHASE + 1;
	return in_memory(t, &local, deadline_ns);
}

static berth_result reduce(struct hier *t, const struct coll *c, uint64_t deadline_ns)
{
	const size_t bytes = kern_size(kern_accumulator(c->type));
	struct coll across = *c;
	unsigned home = t->host[c->root];
	unsigned char *part;
	uint64_t n;
	berth_result rc;

	cut_by_lanes(t, c);
	n = t->counts[t->local_me];
	/* partial sums, and behind them the part of the result */
	rc = need_room(t, n * (bytes + kern_size(c->type)));
	part = t->room ? t->room + n * bytes : NULL;
	if (!rc)
		rc = scatter(t, c, t->room, deadline_ns);
	if (!rc && t->lane) {
		across.in = t->room;
		across.in_form = KERN_PARTIAL;
		across.out = part;
		across.count = n;
		across.root = home;
		rc = tcp_data(t->lane, &across, deadline_ns);
	}
	return rc || t->host[t->me] != home ? rc : collect(t, c, part, deadline_ns);
}

/* The parts of the ranks of each lane, side by side, at TO; T->counts: of each lane. */
static void sort_by_lanes(struct hier *t, const struct coll *c, unsigned char *to)
{
	const size_t size = kern_size(c->type);

	for (unsigned i = 0; i < t->lanes; i++) {
		t->counts[i] = 0;
		for (unsigned h = 0; h < t->nhosts; h++) {
			unsigned place = place_on(t, h, i);
			uint64_t n = coll_part(c, t->n, place);

			if (n)
				memcpy(to,
				       (const unsigned char *)c->in +
					       coll_part_at(c, t->n, place) * size,
				       n * size);
			to += n * size;
			t->counts[i] += n;
		}
	}
}

/* Hosts are alike: each lane reduces the parts of its own ranks. */
static berth_result reducescatter_by_lanes(struct hier *t, const struct coll *c,
					   uint64_t deadline_ns)
{
	const size_t bytes = kern_size(kern_accumulator(c->type));
	uint64_t counts[t->nhosts], own = 0;
	struct coll sorted = *c, across = *c;
	size_t in_bytes = (c->count * kern_size(c->type) + 63) / 64 * 64;
	berth_result rc;

	for (unsigned h = 0; h < t->nhosts; h++) {
		counts[h] = coll_part(c, t->n, place_on(t, h, t->local_me));
		own += counts[h];
	}
	rc = need_room(t, in_bytes + own * bytes);
	if (rc)
		return rc;
	sort_by_lanes(t, c, t->room);
	sorted.in = t->room;
	rc = scatter(t, &sorted, t->room + in_bytes, deadline_ns);
	if (rc)
		return rc;
	across.in = t->room + in_bytes;
	across.in_form = KERN_PARTIAL;
	across.in_counts = counts;
	across.count = own;
	return tcp_data(t->lane, &across, deadline_ns);
}

/* They are not: every rank gets all, and keeps its own. */
static berth_result reducescatter_of_all(struct hier *t, const struct coll *c,
					 uint64_t deadline_ns)
{
	const size_t size = kern_size(c->type);
	struct coll whole = *c;
	unsigned char *all = malloc(c->count * size + 1);
	berth_result rc;

	if (!all)
		return BERTH_MEMORY;
	whole.kind = BERTH_ALLREDUCE;
	whole.in_counts = NULL;
	whole.out = all;
	rc = allreduce(t, &whole, deadline_ns);
	if (!rc && coll_part(c, t->n, t->me))
		memcpy(c->out, all + coll_part_at(c, t->n, t->me) * size,
		       coll_part(c, t->n, t->me) * size);
	free(all);
	return rc;
}

/* ---- everything else ---- */

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
	if (!rc && t->local_me == 0)
		rc = tcp_data(t->lane, &across, deadline_ns);
	here.in = c->out;
	if (!rc && home != t->host[t->me])
		rc = in_memory(t, &here, deadline_ns);
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
		return allreduce(t, c, deadline_ns);
	case BERTH_REDUCE:
		return reduce(t, c, deadline_ns);
	case BERTH_REDUCESCATTER:
		return hosts_are_alike(t) ? reducescatter_by_lanes(t, c, deadline_ns)
					  : reducescatter_of_all(t, c, deadline_ns);
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
