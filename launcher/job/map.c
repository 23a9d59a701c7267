#include "launcher/job/map.h"

#include "launcher/hosts/hosts.h"

enum {
	RANKS_MAX = 1 << 20,  /* a mistyped -np must not take all memory */
	SHOWN_MAX_BYTES = 240 /* of a sum in a message */
};

#define NO_LIMIT UINT32_MAX

/* The ranks that a host takes in the first round, and in all rounds. */
struct room {
	uint32_t slots, most;
};

/* What -ppn, or --map-by ppr:N:OBJECT, gives host H. */
static int per_host(const struct request *r, const struct map_host *h)
{
	const long n = (long)r->per_host * (r->per_object == PER_SOCKET ? h->sockets
					    : r->per_object == PER_NUMA ? h->numas
									: 1);

	return n < RANKS_MAX ? (int)n : RANKS_MAX;
}

/* "1 rank", "9 ranks" */
static const char *count(char out[static 32], long n, const char *what)
{
	snprintf(out, 32, "%ld %s%s", n, what, str_plural((uint64_t)n));
	return out;
}

static struct room *make_room(const struct request *r, const struct map_host *hosts,
			      size_t nhosts)
{
	struct room *room = xcalloc(nhosts, sizeof *room);

	for (size_t h = 0; h < nhosts; h++) {
		int slots = r->per_host ? per_host(r, &hosts[h]) : hosts[h].slots;
		uint32_t most =
			hosts[h].max_slots ? (uint32_t)hosts[h].max_slots : NO_LIMIT;

		room[h].slots = slots < 0 || hosts[h].lost ? 0 : (uint32_t)slots;
		if (room[h].slots > most)
			room[h].slots = most;
		/* A host that takes nothing at first takes nothing later. */
		room[h].most = room[h].slots ? most : 0;
	}
	return room;
}

/* The sum of all slots, or of all limits (NO_LIMIT if one host has none). */
static uint64_t total(const struct room *room, size_t n, bool most)
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

/* "-np 9"; "-np 2 + -np 1" for several programs. */
static void show_np(struct str *s, const struct request *r)
{
	for (size_t a = 0; a < r->napp && s->len < SHOWN_MAX_BYTES; a++)
		str_addf(s, "%s-np %d", a ? " + " : "", r->app[a].np);
}

static int too_few(const struct request *r, const struct map_host *hosts,
		   const struct room *room, size_t nhosts, long np,
		   const char *slots_from, struct err *e)
{
	struct str asked = { 0 }, sum = { 0 }, from = { 0 };
	long has = (long)total(room, nhosts, r->oversubscribe);
	char ranks[32], slots[32];

	show_np(&asked, r);
	show_sum(&sum, hosts, room, nhosts, r->oversubscribe);
	str_addf(&from, r->per_host ? "%s with -ppn %d" : "%s", slots_from,
		 r->per_host);
	count(ranks, np, "rank");
	count(slots, has, "slot");
	if (r->oversubscribe && total(room, nhosts, false) > 0)
		err_set(e, E_MAX_SLOTS, str_text(&asked), ranks, slots, str_text(&sum));
	else if (has == 0)
		err_set(e, E_NO_SLOTS, str_text(&from), str_text(&sum));
	else
		err_set(e, E_SLOTS, str_text(&asked), ranks, str_text(&from), slots,
			str_text(&sum));
	if (e && e->id == E_SLOTS && r->per_host)
		err_hint(e, "use --oversubscribe to start more ranks than slots, or "
			    "raise -ppn, or name more hosts");
	else if (e && e->id == E_SLOTS)
		err_hint(e,
			 "use --oversubscribe to start more ranks than slots, or give "
			 "more slots, as in '%s:%ld'",
			 hosts[0].name, (long)room[0].slots + np - has);
	str_free(&asked);
	str_free(&sum);
	str_free(&from);
	return -1;
}

/* Set NP to the number of ranks to start. */
static int find_np(uint32_t *np, const struct request *r, const struct map_host *hosts,
		   const struct room *room, size_t nhosts, const char *slots_from,
		   struct err *e)
{
	uint64_t room_for = total(room, nhosts, r->oversubscribe);
	long sum = 0;

	for (size_t a = 0; a < r->napp; a++) {
		const struct app *app = &r->app[a];

		if (app->np == 0 && r->napp > 1) {
			struct str shown = { 0 };

			str_add_word(&shown, app->argv.n ? app->argv.v[0] : "", false);
			err_set(e, E_APP_NP, str_text(&shown), a + 1, r->napp);
			str_free(&shown);
			return -1;
		}
		sum += app->np;
	}
	if (sum == 0) /* all slots, not more, even with --oversubscribe */
		sum = (long)(room_for = total(room, nhosts, false));
	if (sum == 0 || (uint64_t)sum > room_for)
		return too_few(r, hosts, room, nhosts, sum, slots_from, e);
	if (sum > RANKS_MAX) {
		struct str asked = { 0 };

		show_np(&asked, r);
		err_set(e, E_RANKS_MANY, r->app[0].np ? str_text(&asked) : slots_from,
			sum, RANKS_MAX);
		str_free(&asked);
		return -1;
	}
	*np = (uint32_t)sum;
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

static void number_by_node(struct plan *p)
{
	uint32_t *active = xcalloc(p->nhosts, sizeof *active);
	size_t n = 0;

	for (uint32_t h = 0; h < p->nhosts; h++)
		active[n++] = h;
	for (uint32_t local = 0, rank = 0; rank < p->np; local++) {
		size_t kept = 0;

		for (size_t i = 0; i < n; i++) {
			uint32_t h = active[i];

			if (p->local_size[h] <= local)
				continue;
			p->rank[rank++] =
				(struct plan_rank){ .host = h, .local = local };
			active[kept++] = h;
		}
		n = kept;
	}
	free(active);
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

/* By --rankfile.  Most often the host is that of the rank before. */
static int number_by_file(struct plan *p, const struct request *r,
			  const struct map_host *hosts, struct err *e)
{
	uint32_t h = 0;

	if (p->np != r->rank_hosts.n)
		return err_set(e, E_RANKFILE_NP, (unsigned)r->rank_hosts.n, p->np);
	for (uint32_t k = 0; k < p->np; k++) {
		const char *typed = r->rank_hosts.v[k];
		uint32_t tried = 0;

		for (; tried < p->nhosts && !is_host(typed, hosts[h].name); tried++)
			h = (h + 1) % p->nhosts;
		if (tried == p->nhosts || hosts[h].lost)
			return err_set(e, E_RANKFILE_HOST, k, typed);
		p->rank[k] =
			(struct plan_rank){ .host = h, .local = p->local_size[h]++ };
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

int map_ranks(struct plan *plan, const struct request *r, const struct map_host *hosts,
	      size_t nhosts, const char *slots_from, struct err *e)
{
	struct room *room = make_room(r, hosts, nhosts);
	struct plan p = { .nhosts = (uint32_t)nhosts };
	int rc = find_np(&p.np, r, hosts, room, nhosts, slots_from, e);
	uint32_t rank = 0, *at;

	if (rc)
		goto out;
	p.rank = xcalloc(p.np, sizeof *p.rank);
	p.node = xcalloc(nhosts, sizeof *p.node);
	p.local_size = xcalloc(nhosts, sizeof *p.local_size);
	p.ranks = xcalloc(nhosts, sizeof *p.ranks);
	if (r->rank_hosts.n) {
		rc = number_by_file(&p, r, hosts, e);
	} else if (r->map_by == MAP_NODE) {
		count_by_node(p.local_size, room, nhosts, p.np);
		number_by_node(&p);
	} else {
		count_by_slot(p.local_size, room, nhosts, p.np);
		for (uint32_t h = 0; h < p.nhosts; h++)
			for (uint32_t l = 0; l < p.local_size[h]; l++)
				p.rank[rank++] =
					(struct plan_rank){ .host = h, .local = l };
	}
	if (rc) {
		plan_free(&p);
		goto out;
	}
	rank = 0;
	for (uint32_t a = 0; a < r->napp; a++)
		for (int n = r->napp == 1 ? (int)p.np : r->app[a].np; n > 0; n--)
			p.rank[rank++].app = a;
	at = xcalloc(p.np, sizeof *at); /* plan_free() frees it as ranks[0] */
	for (uint32_t h = 0; h < p.nhosts; h++) {
		p.node[h] = p.local_size[h] ? p.nodes++ : PLAN_UNUSED;
		p.ranks[h] = at;
		at += p.local_size[h];
	}
	for (uint32_t k = 0; k < p.np; k++)
		p.ranks[p.rank[k].host][p.rank[k].local] = k;
	number_across(&p);
	*plan = p;
out:
	free(room);
	return rc;
}

void plan_free(struct plan *plan)
{
	free(plan->rank);
	free(plan->node);
	free(plan->local_size);
	if (plan->ranks)
		free(plan->ranks[0]);
	free(plan->ranks);
	*plan = (struct plan){ 0 };
}
