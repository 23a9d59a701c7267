#include "launcher/job/map.h"

enum {
	RANKS_MAX = 1 << 20,  /* a mistyped -np must not take all memory */
	SHOWN_MAX_BYTES = 240 /* of a sum in a message */
};

#define NO_LIMIT UINT32_MAX

/* The ranks that a host takes in the first round, and in all rounds. */
struct room {
	uint32_t slots, most;
};

/* The slots of a host that pools have taken. */
struct use {
	uint32_t ranks, slots;
	uint32_t new; /* ranks of the pool that is being filled */
};

/* Apps that take slots together: the first one and those without -H and -ppn of their
 * own; or one other app. */
struct pool {
	size_t app; /* the first of them */
	int per_host;
	enum per_object per_object;
	const char *slots_from;
	struct map_host *host; /* those of its list, in the order of that */
	uint32_t *at;          /* the same among all hosts */
	size_t nhosts;
	struct room *room; /* of each host */
	uint32_t np, *seq; /* the host of each rank, of all hosts */
};

/* The first app of the pool of app A. */
static size_t pool_of(const struct request *r, size_t a)
{
	return r->app[a].hosts.n || r->app[a].per_host ? a : 0;
}

/* The number that -ppn, or --map-by ppr:N:OBJECT, gives host H. */
static int per_host(const struct pool *q, const struct map_host *h)
{
	const long n = (long)q->per_host * (q->per_object == PER_SOCKET ? h->sockets
					    : q->per_object == PER_NUMA ? h->numas
									: 1);

	return n < RANKS_MAX ? (int)n : RANKS_MAX;
}

/* "1 rank", "9 ranks" */
static const char *map_count(char out[static 32], long n, const char *what)
{
	snprintf(out, 32, "%ld %s%s", n, what, str_plural((uint64_t)n));
	return out;
}

static void make_room(struct pool *q)
{
	q->room = xcalloc(q->nhosts, sizeof *q->room);
	for (size_t h = 0; h < q->nhosts; h++) {
		const struct map_host *host = &q->host[h];
		int slots = q->per_host ? per_host(q, host) : host->slots;
		uint32_t most = host->max_slots ? (uint32_t)host->max_slots : NO_LIMIT;
		struct room *room = &q->room[h];

		room->slots = slots < 0 || host->lost ? 0 : (uint32_t)slots;
		if (room->slots > most)
			room->slots = most;
		/* A host that takes nothing at first takes nothing later. */
		room->most = room->slots ? most : 0;
	}
}

/* The pool that begins with app A, of the hosts in its list.  USED is that of each
 * host. */
static void open_pool(struct pool *q, const struct request *r, size_t a,
		      const struct map_host *hosts, size_t nhosts,
		      const struct use *used, const char *slots_from)
{
	const struct app *app = &r->app[a];

	*q = (struct pool){ .app = a, .slots_from = slots_from };
	q->per_host = app->per_host ? app->per_host : r->per_host;
	q->per_object = app->per_host ? PER_NODE : r->per_object;
	if (app->hosts.n)
		q->slots_from = app->hosts_from;
	q->host = xcalloc(nhosts, sizeof *q->host);
	q->at = xcalloc(nhosts, sizeof *q->at);
	for (size_t h = 0; h < nhosts; h++) {
		const struct host_in_list *in =
			hosts[h].list ? &hosts[h].list[app->hosts.n ? a : 0] : NULL;
		const size_t at = in ? in->at - 1 : h;
		const int left = hosts[h].slots - (int)used[h].slots;
		struct map_host *host = &q->host[at];

		if (in && !in->at)
			continue;
		*host = hosts[h];
		if (in)
			host->slots = in->slots;
		/* Beyond its slots a host takes only what --oversubscribe allows. */
		if (host->slots > left && !r->oversubscribe)
			host->slots = left;
		if (host->max_slots && (uint32_t)host->max_slots <= used[h].ranks)
			host->lost = true;
		else if (host->max_slots)
			host->max_slots -= (int)used[h].ranks;
		q->at[at] = (uint32_t)h;
		q->nhosts++;
	}
	make_room(q);
}

/* The sum of all slots, or of all limits (NO_LIMIT if one host has none). */
static uint64_t map_total(const struct room *room, size_t n, bool most)
{
	uint64_t sum = 0;

	for (size_t h = 0; h < n; h++) {
		if (most && room[h].most == NO_LIMIT)
			return NO_LIMIT;
		sum += most ? room[h].most : room[h].slots;
	}
	return sum;
}

/* "a:4 + b:4"; hosts with the same slots are folded: "gpu[01-16]:8 + b:4". */
static void show_sum(struct str *s, const struct map_host *hosts,
		     const struct room *room, size_t n, bool most)
{
	const char **names = xcalloc(n, sizeof *names);

	for (size_t h = 0, end; h < n && s->len <= SHOWN_MAX_BYTES; h = end) {
		uint32_t slots = most ? room[h].most : room[h].slots;
		struct str folded = { 0 };
		bool inside = false; /* of [] */

		for (end = h; end < n; end++) {
			if ((most ? room[end].most : room[end].slots) != slots)
				break;
			names[end] = hosts[end].name;
		}
		hosts_fold(&folded, names + h, end - h);
		str_add(s, h ? " + " : "");
		for (const char *p = str_text(&folded); *p; p++) {
			inside = *p == '[' || (inside && *p != ']');
			if (*p == ',' && !inside)
				str_addf(s, ":%u + ", slots);
			else
				str_addn(s, p, 1);
		}
		str_addf(s, ":%u", slots);
		str_free(&folded);
	}
	if (s->len > SHOWN_MAX_BYTES) {
		s->len = SHOWN_MAX_BYTES;
		str_add(s, "...");
	}
	free(names);
}

/* "-np 9"; "-np 2 + -np 1" for several programs of the pool Q. */
static void show_np(struct str *s, const struct request *r, const struct pool *q)
{
	for (size_t a = q->app; a < r->napp && s->len < SHOWN_MAX_BYTES; a++)
		if (pool_of(r, a) == q->app)
			str_addf(s, "%s-np %d", s->len ? " + " : "", r->app[a].np);
}

static int too_few(const struct request *r, const struct pool *q, long np,
		   struct err *e)
{
	const struct room *room = q->room;
	struct str asked = { 0 }, sum = { 0 }, from = { 0 };
	long has = (long)map_total(room, q->nhosts, r->oversubscribe);
	char ranks[32], slots[32];

	show_np(&asked, r, q);
	show_sum(&sum, q->host, room, q->nhosts, r->oversubscribe);
	str_addf(&from, q->per_host ? "%s with -ppn %d" : "%s", q->slots_from,
		 q->per_host);
	map_count(ranks, np, "rank");
	map_count(slots, has, "slot");
	if (r->oversubscribe && map_total(room, q->nhosts, false) > 0)
		err_set(e, E_MAX_SLOTS, str_text(&asked), ranks, slots, str_text(&sum));
	else if (has == 0)
		err_set(e, E_NO_SLOTS, str_text(&from), str_text(&sum));
	else
		err_set(e, E_SLOTS, str_text(&asked), ranks, str_text(&from), slots,
			str_text(&sum));
	if (e && e->id == E_SLOTS && q->per_host)
		err_hint(e, "use --oversubscribe to start more ranks than slots, or "
			    "raise -ppn, or name more hosts");
	else if (e && e->id == E_SLOTS)
		err_hint(e,
			 "use --oversubscribe to start more ranks than slots, or give "
			 "more slots, as in '%s:%ld'",
			 q->host[0].name, (long)room[0].slots + np - has);
	str_free(&asked);
	str_free(&sum);
	str_free(&from);
	return q->app ? err_in(e, "app %zu", q->app + 1) : -1;
}

/* Whether each of several apps has -np. */
static int check_np(const struct request *r, struct err *e)
{
	for (size_t a = 0; a < r->napp && r->napp > 1; a++) {
		const struct app *app = &r->app[a];
		struct str shown = { 0 };

		if (app->np)
			continue;
		str_add_word(&shown, app->argv.n ? app->argv.v[0] : "", false);
		err_set(e, E_APP_NP, str_text(&shown), a + 1, r->napp);
		str_free(&shown);
		return -1;
	}
	return 0;
}

/* As many as there is room for, between two bounds. */
static int find_growing_np(struct pool *q, const struct request *r, struct err *e)
{
	const uint64_t most = (uint64_t)r->growing.max_np;
	uint64_t np = map_total(q->room, q->nhosts, r->oversubscribe);
	struct str sum = { 0 };

	if (np > most)
		np = most;
	q->np = (uint32_t)np;
	if (np >= (uint64_t)r->growing.min_np)
		return 0;
	show_sum(&sum, q->host, q->room, q->nhosts, r->oversubscribe);
	err_set(e, E_MIN_NP, r->growing.min_np, q->slots_from,
		sum.len ? sum.s : "there is no host");
	str_free(&sum);
	return -1;
}

/* The number of ranks of the pool Q; BEFORE of others are counted. */
static int find_np(struct pool *q, const struct request *r, uint32_t before,
		   struct err *e)
{
	uint64_t room_for = map_total(q->room, q->nhosts, r->oversubscribe);
	long sum = 0;

	for (size_t a = q->app; a < r->napp; a++)
		sum += pool_of(r, a) == q->app ? r->app[a].np : 0;
	if (sum == 0) /* all slots, not more, even with --oversubscribe */
		sum = (long)(room_for = map_total(q->room, q->nhosts, false));
	if (r->growing.min_np)
		return find_growing_np(q, r, e);
	if (sum == 0 || (uint64_t)sum > room_for)
		return too_few(r, q, sum, e);
	if (before + sum > RANKS_MAX) {
		struct str asked = { 0 };

		show_np(&asked, r, q);
		err_set(e, E_RANKS_MANY,
			r->app[0].np ? str_text(&asked) : q->slots_from, before + sum,
			RANKS_MAX);
		str_free(&asked);
		return -1;
	}
	q->np = (uint32_t)sum;
	return 0;
}

/* By slot: fill the slots of each host before the next one; then the same again, up to
 * each host's limit. */
static void count_by_slot(uint32_t *size, const struct room *room, size_t nhosts,
			  uint32_t left)
{
	for (size_t h = 0; left > 0; h = (h + 1) % nhosts) {
		uint32_t give = room[h].slots;

		if (give > room[h].most - size[h])
			give = room[h].most - size[h];
		if (give > left)
			give = left;
		size[h] += give;
		left -= give;
	}
}

/* By node: deal one rank to each host in turn, until all slots are full; then the same
 * up to each host's limit. */
static void count_by_node(uint32_t *size, const struct room *room, size_t nhosts,
			  uint32_t left)
{
	/* The hosts that take one more. */
	uint32_t *active = xcalloc(nhosts, sizeof *active);

	for (int most = 0; most <= 1; most++) {
		size_t n = nhosts, kept;

		for (size_t h = 0; h < nhosts; h++)
			active[h] = (uint32_t)h;
		for (; n > 0 && left > 0; n = kept) {
			kept = 0;
			for (size_t i = 0; i < n && left > 0; i++) {
				uint32_t h = active[i];

				if (size[h] >= (most ? room[h].most : room[h].slots))
					continue;
				size[h]++;
				left--;
				active[kept++] = h;
			}
		}
	}
	free(active);
}

/* The hosts of the ranks of Q, dealt one to each host in turn, up to its SIZE. */
static void deal_by_node(struct pool *q, const uint32_t *size)
{
	uint32_t *active = xcalloc(q->nhosts, sizeof *active);
	size_t n = 0;

	for (uint32_t h = 0; h < q->nhosts; h++)
		active[n++] = h;
	for (uint32_t local = 0, rank = 0; rank < q->np; local++) {
		size_t kept = 0;

		for (size_t i = 0; i < n; i++) {
			uint32_t h = active[i];

			if (size[h] <= local)
				continue;
			q->seq[rank++] = q->at[h];
			active[kept++] = h;
		}
		n = kept;
	}
	free(active);
}

/* The hosts of the ranks of Q. */
static void fill_pool(struct pool *q, enum map_by by)
{
	uint32_t *size = xcalloc(q->nhosts, sizeof *size), rank = 0;

	q->seq = xcalloc(q->np, sizeof *q->seq);
	if (by == MAP_NODE) {
		count_by_node(size, q->room, q->nhosts, q->np);
		deal_by_node(q, size);
	} else {
		count_by_slot(size, q->room, q->nhosts, q->np);
		for (uint32_t h = 0; h < q->nhosts; h++)
			for (uint32_t l = 0; l < size[h]; l++)
				q->seq[rank++] = q->at[h];
	}
	free(size);
}

/* Whether TYPED, as -H takes a host, is NAME. */
static bool is_host(const char *typed, const char *name)
{
	const char *at = strrchr(typed, '@');
	size_t n = strlen(name);

	typed = at ? at + 1 : typed;
	if (*typed == '[')
		return !strncmp(typed + 1, name, n) && !strcmp(typed + 1 + n, "]");
	return !strcmp(typed, name);
}

/* By --rankfile, where all apps are one pool.  Most often the host is that of the rank
 * before. */
static int fill_by_file(struct pool *q, const struct request *r, struct err *e)
{
	uint32_t h = 0;

	if (q->np != r->rank_hosts.n)
		return err_set(e, E_RANKFILE_NP, (unsigned)r->rank_hosts.n, q->np);
	q->seq = xcalloc(q->np, sizeof *q->seq);
	for (uint32_t k = 0; k < q->np; k++) {
		const char *typed = r->rank_hosts.v[k];
		uint32_t tried = 0;

		for (; tried < q->nhosts && !is_host(typed, q->host[h].name); tried++)
			h = (h + 1) % (uint32_t)q->nhosts;
		if (tried == q->nhosts || q->host[h].lost)
			return err_set(e, E_RANKFILE_HOST, k, typed);
		q->seq[k] = q->at[h];
	}
	return 0;
}

/* Number the ranks that have the same local rank: the "cross" numbers of horovodrun. */
static void number_across(struct plan *p)
{
	uint32_t *seen = xcalloc(p->np, sizeof *seen); /* hosts with a local rank */

	for (uint32_t h = 0; h < p->nhosts; h++)
		for (uint32_t l = 0; l < p->local_size[h]; l++)
			p->rank[p->ranks[h][l]].cross_rank = seen[l]++;
	for (uint32_t k = 0; k < p->np; k++)
		p->rank[k].cross_size = seen[p->rank[k].local];
	free(seen);
}

/* Count the ranks of Q.  More ranks than slots, as -ppn allows, leave other pools what
 * their own lists give. */
static void use_pool(struct use *used, const struct pool *q)
{
	for (uint32_t k = 0; k < q->np; k++)
		used[q->seq[k]].new ++;
	for (size_t i = 0; i < q->nhosts; i++) {
		struct use *u = &used[q->at[i]];
		const int slots = q->host[i].slots;

		u->ranks += u->new;
		if (slots > 0)
			u->slots += u->new < (uint32_t)slots ? u->new : (uint32_t)slots;
		u->new = 0;
	}
}

/* The hosts of the ranks of each pool.  Pools of one app come first: they have fewer
 * hosts to choose from. */
static int fill_pools(struct pool *pools, struct plan *p, const struct request *r,
		      const struct map_host *hosts, const char *slots_from,
		      struct err *e)
{
	struct use *used = xcalloc(p->nhosts, sizeof *used);
	int rc = check_np(r, e);

	for (size_t i = 1; i <= r->napp && !rc; i++) {
		const size_t a = i % r->napp;
		struct pool *q = &pools[a];

		if (pool_of(r, a) != a)
			continue;
		open_pool(q, r, a, hosts, p->nhosts, used, slots_from);
		rc = find_np(q, r, p->np, e);
		if (!rc && r->rank_hosts.n)
			rc = fill_by_file(q, r, e);
		else if (!rc)
			fill_pool(q, r->map_by);
		if (!rc)
			use_pool(used, q);
		p->np += q->np;
	}
	free(used);
	return rc;
}

/* Number the ranks app by app, each with the next host of its pool. */
static void map_number(struct plan *p, const struct request *r,
		       const struct pool *pools)
{
	uint32_t *dealt = xcalloc(r->napp, sizeof *dealt), rank = 0;

	for (uint32_t a = 0; a < r->napp; a++) {
		const size_t q = pool_of(r, a);

		for (uint32_t n = r->napp == 1 ? p->np : (uint32_t)r->app[a].np; n > 0;
		     n--) {
			uint32_t h = pools[q].seq[dealt[q]++];

			p->rank[rank++] = (struct plan_rank){
				.host = h, .local = p->local_size[h]++, .app = a
			};
		}
	}
	free(dealt);
}

int map_ranks(struct plan *plan, const struct request *r, const struct map_host *hosts,
	      size_t nhosts, const char *slots_from, struct err *e)
{
	struct pool *pools = xcalloc(r->napp, sizeof *pools);
	struct plan p = { .nhosts = (uint32_t)nhosts };
	int rc = fill_pools(pools, &p, r, hosts, slots_from, e);

	if (rc)
		goto out;
	p.rank = xcalloc(p.np, sizeof *p.rank);
	p.node = xcalloc(nhosts, sizeof *p.node);
	p.local_size = xcalloc(nhosts, sizeof *p.local_size);
	p.ranks = xcalloc(nhosts, sizeof *p.ranks);
	map_number(&p, r, pools);
	for (uint32_t h = 0; h < p.nhosts; h++) {
		p.node[h] = p.local_size[h] ? p.nodes++ : PLAN_UNUSED;
		if (p.local_size[h])
			p.ranks[h] = xcalloc(p.local_size[h], sizeof *p.ranks[h]);
	}
	for (uint32_t k = 0; k < p.np; k++)
		p.ranks[p.rank[k].host][p.rank[k].local] = k;
	number_across(&p);
	*plan = p;
out:
	for (size_t a = 0; a < r->napp; a++) {
		free(pools[a].host);
		free(pools[a].at);
		free(pools[a].room);
		free(pools[a].seq);
	}
	free(pools);
	return rc;
}

void plan_leave(struct plan *plan, uint32_t host)
{
	free(plan->ranks[host]);
	plan->ranks[host] = NULL;
	plan->local_size[host] = 0;
	plan->node[host] = PLAN_UNUSED;
}

bool plan_has(const struct plan *plan, uint32_t rank)
{
	const struct plan_rank *p = &plan->rank[rank];

	return p->local < plan->local_size[p->host] &&
	       plan->ranks[p->host][p->local] == rank;
}

/* Places for hosts up to HOST. */
static void plan_grow(struct plan *plan, uint32_t host)
{
	const uint32_t n = host + 1;

	if (n <= plan->nhosts)
		return;
	plan->node = xreallocarray(plan->node, n, sizeof *plan->node);
	plan->local_size = xreallocarray(plan->local_size, n, sizeof *plan->local_size);
	plan->ranks = xreallocarray(plan->ranks, n, sizeof *plan->ranks);
	for (; plan->nhosts < n; plan->nhosts++) {
		plan->ranks[plan->nhosts] = NULL;
		plan->local_size[plan->nhosts] = 0;
		plan->node[plan->nhosts] = PLAN_UNUSED;
	}
}

void plan_come(struct plan *plan, uint32_t host, const uint32_t *rank, uint32_t n)
{
	plan_grow(plan, host);
	plan->local_size[host] = n;
	plan->ranks[host] = xcalloc(n, sizeof *plan->ranks[host]);
	for (uint32_t i = 0; i < n; i++) {
		if (rank[i] >= plan->np) {
			plan->np = rank[i] + 1;
			plan->rank =
				xreallocarray(plan->rank, plan->np, sizeof *plan->rank);
		}
		plan->rank[rank[i]] = (struct plan_rank){ .host = host, .local = i };
		plan->ranks[host][i] = rank[i];
	}
	plan->nodes = 0; /* in the order of hosts, as exchanges have it */
	for (uint32_t h = 0; h < plan->nhosts; h++)
		plan->node[h] = plan->local_size[h] ? plan->nodes++ : PLAN_UNUSED;
	number_across(plan);
}

void plan_free(struct plan *plan)
{
	free(plan->rank);
	free(plan->node);
	free(plan->local_size);
	for (uint32_t h = 0; h < plan->nhosts && plan->ranks; h++)
		free(plan->ranks[h]);
	free(plan->ranks);
	*plan = (struct plan){ 0 };
}
