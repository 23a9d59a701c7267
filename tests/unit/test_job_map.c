/* map.h: hosts and -np to a plan. */
#include <check.h>

#include "launcher/job/map.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* A case: hosts "a:4 b:4/8" (slots/max_slots), one -np per program (0: none), options;
 * what is expected is a plan "rank's host.local.app", or an error. */
struct map_case {
	const char *hosts;
	int np[3];
	size_t napp;
	enum map_by by;
	int per_host;
	enum per_object
		per; /* host a has 2 sockets and 4 NUMA nodes, others 1 of each */
	bool oversubscribe;
	const char *file; /* --rankfile: the host of each rank */
	/* -H of each program, as in hosts; the first one's is of all without one.  Or
	 * NULL. */
	const char *lists[3];
	int own_ppn[3]; /* -ppn of a later program */
	const char *want;
	enum err_id id;
	const char *hint;
};

struct input {
	struct map_host hosts[16];
	struct host_in_list lists[16][3];
	char *names;
	size_t n;
	struct app app[3];
	struct request r;
};

static void make(struct input *in, const struct map_case *c)
{
	char *rest, *word;

	*in = (struct input){ .names = xstrdup(c->hosts) };
	rest = in->names;
	while ((word = strsep(&rest, " "))) {
		char *colon = strchr(word, ':'), *slash = strchr(word, '/');

		*colon = '\0';
		in->hosts[in->n].name = word;
		in->hosts[in->n].sockets = *word == 'a' ? 2 : 1;
		in->hosts[in->n].numas = *word == 'a' ? 4 : 1;
		in->hosts[in->n].slots = (int)strtol(colon + 1, NULL, 10);
		in->hosts[in->n++].max_slots =
			slash ? (int)strtol(slash + 1, NULL, 10) : 0;
	}
	in->r = (struct request){ .app = in->app,
				  .napp = c->napp ? c->napp : 1,
				  .per_host = c->per_host,
				  .per_object = c->per,
				  .map_by = c->by,
				  .oversubscribe = c->oversubscribe };
	for (const char *p = c->file ? c->file : ""; *p; p++) /* one letter a host */
		strv_take(&in->r.rank_hosts, xstrndup(p, 1));
	for (size_t i = 0; i < in->r.napp; i++) {
		in->app[i].np = c->np[i];
		in->app[i].per_host = c->own_ppn[i];
		if (i && c->lists[i]) {
			in->app[i].hosts.n = 1;
			in->app[i].hosts_from = (char *)(uintptr_t) "-H";
		}
		for (size_t h = 0; h < in->n && c->lists[0]; h++) {
			const char *at =
				c->lists[i] ? strchr(c->lists[i], *in->hosts[h].name)
					    : NULL;

			if (at)
				in->lists[h][i] = (struct host_in_list){
					1 + (uint32_t)(at - c->lists[i]) / 4,
					(int)strtol(at + 2, NULL, 10)
				};
			in->hosts[h].list = in->lists[h];
		}
		strv_add(&in->app[i].argv, i ? "second" : "first");
	}
}

static void unmake(struct input *in)
{
	for (size_t i = 0; i < in->r.napp; i++)
		strv_free(&in->app[i].argv);
	strv_free(&in->r.rank_hosts);
	free(in->names);
}

/* "a0 a1 b0": host and local rank of each rank; "a0/1" in program 1. */
static char *show(const struct plan *p, const struct map_host *hosts)
{
	struct str s = { 0 };

	for (uint32_t k = 0; k < p->np; k++) {
		const struct plan_rank *r = &p->rank[k];

		str_addf(&s, "%s%s%u", k ? " " : "", hosts[r->host].name, r->local);
		if (r->app)
			str_addf(&s, "/%u", r->app);
	}
	return str_take(&s);
}

#define SLOT .by = MAP_SLOT
#define NODE .by = MAP_NODE
#define OVER .oversubscribe = true

static const struct map_case cases[] = {
	{ "a:1 b:1",
	  { 0 },
	  .per_host = 2,
	  .per = PER_SOCKET,
	  .want = "a0 a1 a2 a3 b0 b1" },
	{ "a:1 b:1", { 3 }, .per_host = 1, .per = PER_NUMA, .want = "a0 a1 a2" },
	{ "a:2 b:2",
	  { 0 },
	  .file = "baxb",
	  .id = E_RANKFILE_HOST,
	  .want = "the host of rank 2 in the rank file, 'x', takes no rank" },
	{ "a:2 b:2", { 0 }, .file = "baab", .want = "b0 a0 a1 b1" },
	{ "a:1 b:2", { 1, 2 }, .napp = 2, .file = "bab", .want = "b0 a0/1 b1/1" },
	{ "a:2 b:2", { 4 }, SLOT, .want = "a0 a1 b0 b1" },
	{ "a:2 b:2", { 0 }, SLOT, .want = "a0 a1 b0 b1" },
	{ "a:2 b:2", { 2 }, SLOT, .want = "a0 a1" },
	{ "a:2 b:2", { 3 }, SLOT, .want = "a0 a1 b0" },
	{ "a:1", { 1 }, SLOT, .want = "a0" },
	{ "a:0 b:2", { 0 }, SLOT, .want = "b0 b1" },
	{ "a:2 b:2", { 4 }, NODE, .want = "a0 b0 a1 b1" },
	{ "a:1 b:3", { 4 }, NODE, .want = "a0 b0 b1 b2" },
	{ "a:3 b:1 c:2", { 6 }, NODE, .want = "a0 b0 c0 a1 c1 a2" },
	{ "a:2 b:2 c:2", { 2 }, NODE, .want = "a0 b0" },
	/* -ppn sets the slots */
	{ "a:4 b:4", { 0 }, SLOT, .per_host = 2, .want = "a0 a1 b0 b1" },
	{ "a:1 b:1", { 0 }, SLOT, .per_host = 2, .want = "a0 a1 b0 b1" },
	{ "a:4 b:4", { 3 }, SLOT, .per_host = 2, .want = "a0 a1 b0" },
	{ "a:4/1 b:4", { 0 }, SLOT, .per_host = 2, .want = "a0 b0 b1" },
	/* --oversubscribe goes round again */
	{ "a:2 b:1", { 6 }, SLOT, OVER, .want = "a0 a1 a2 a3 b0 b1" },
	{ "a:2 b:1", { 4 }, SLOT, OVER, .want = "a0 a1 a2 b0" },
	{ "a:2 b:1", { 0 }, SLOT, OVER, .want = "a0 a1 b0" },
	{ "a:2/3 b:1", { 7 }, SLOT, OVER, .want = "a0 a1 a2 b0 b1 b2 b3" },
	{ "a:1 b:3", { 6 }, NODE, OVER, .want = "a0 b0 a1 b1 b2 b3" },
	{ "a:1/1 b:1", { 4 }, NODE, OVER, .want = "a0 b0 b1 b2" },
	{ "a:0 b:1", { 3 }, SLOT, OVER, .want = "b0 b1 b2" },
	{ "a:0 b:1", { 3 }, NODE, OVER, .want = "b0 b1 b2" },
	/* programs are numbered one after the other */
	{ "a:2 b:2", { 1, 2 }, 2, SLOT, .want = "a0 a1/1 b0/1" },
	{ "a:2 b:2", { 2, 1, 1 }, 3, NODE, .want = "a0 b0 a1/1 b1/2" },

	/* -H behind a ':': slots of its own */
	{ "a:2 b:2",
	  { 2, 2 },
	  2,
	  SLOT,
	  .lists = { "a:2", "b:2" },
	  .want = "a0 a1 b0/1 b1/1" },
	{ "a:2 b:2",
	  { 2, 2 },
	  2,
	  SLOT,
	  .lists = { "b:2", "a:2" },
	  .want = "b0 b1 a0/1 a1/1" },
	{ "a:4 b:1",
	  { 2, 3 },
	  2,
	  SLOT,
	  .lists = { "a:2", "a:2 b:1" },
	  .want = "a0 a1 a2/1 a3/1 b0/1" },
	{ "a:2 b:2",
	  { 1, 2 },
	  2,
	  SLOT,
	  .lists = { "a:1 b:1", "b:1 a:1" },
	  .want = "a0 b0/1 a1/1" },
	{ "a:2 b:2",
	  { 1, 2, 1 },
	  3,
	  SLOT,
	  .lists = { "a:2", "b:2", NULL },
	  .want = "a0 b0/1 b1/1 a1/2" },
	{ "a:2 b:2 c:2",
	  { 2, 3 },
	  2,
	  NODE,
	  .lists = { "a:2", "b:2 c:2" },
	  .want = "a0 a1 b0/1 c0/1 b1/1" },
	/* in an allocation the slots are shared, and programs with a list come first */
	{ "a:2 b:2",
	  { 2, 2 },
	  2,
	  SLOT,
	  .lists = { "a:2 b:2", "a:2" },
	  .want = "b0 b1 a0/1 a1/1" },
	{ "a:2 b:2",
	  { 1, 1, 2 },
	  3,
	  SLOT,
	  .lists = { "a:2 b:2", "a:2", "b:2" },
	  .want = "a0 a1/1 b0/2 b1/2" },
	{ "a:2 b:2",
	  { 3, 2 },
	  2,
	  SLOT,
	  .lists = { "a:2 b:2", "a:2" },
	  .id = E_SLOTS,
	  .want = "-np 3 asks for 3 ranks, but -H gives 2 slots (a:0 + b:2)" },
	{ "a:2 b:2",
	  { 3, 2 },
	  2,
	  SLOT,
	  OVER,
	  .lists = { "a:2 b:2", "a:2" },
	  .want = "a0 a1 b0 a2/1 a3/1" },
	{ "a:2 b:2",
	  { 2, 3 },
	  2,
	  SLOT,
	  .lists = { "a:2", "b:2" },
	  .id = E_SLOTS,
	  .want = "app 2: -np 3 asks for 3 ranks, but -H gives 2 slots (b:2)",
	  .hint = "use --oversubscribe to start more ranks than slots, or give more "
		  "slots, as in 'b:3'" },
	{ "a:2 b:2",
	  { 2, 3 },
	  2,
	  SLOT,
	  OVER,
	  .lists = { "a:2", "b:2" },
	  .want = "a0 a1 b0/1 b1/1 b2/1" },
	/* -ppn behind a ':' */
	{ "a:4 b:4",
	  { 4, 2 },
	  2,
	  SLOT,
	  .own_ppn = { 0, 1 },
	  .want = "a0 a1 a2 b0 a3/1 b1/1" },
	{ "a:1 b:1",
	  { 4, 2 },
	  2,
	  SLOT,
	  .per_host = 2,
	  .own_ppn = { 0, 1 },
	  .want = "a0 a1 b0 b1 a2/1 b2/1" },
	{ "a:1 b:1",
	  { 2, 2 },
	  2,
	  SLOT,
	  .per_host = 2,
	  .lists = { "a:1", "b:1" },
	  .want = "a0 a1 b0/1 b1/1" },
	{ "a:3",
	  { 2, 4 },
	  2,
	  SLOT,
	  .own_ppn = { 0, 4 },
	  .lists = { "a:2", "a:1" },
	  .want = "a0 a1 a2/1 a3/1 a4/1 a5/1" },
	{ "a:4 b:4",
	  { 1, 3 },
	  2,
	  SLOT,
	  .own_ppn = { 0, 1 },
	  .id = E_SLOTS,
	  .want = "app 2: -np 3 asks for 3 ranks, but -H with -ppn 1 gives 2 slots "
		  "(a:1 + b:1)" },

	{ "a:4 b:4",
	  { 9 },
	  SLOT,
	  .id = E_SLOTS,
	  .want = "-np 9 asks for 9 ranks, but -H gives 8 slots (a:4 + b:4)",
	  .hint = "use --oversubscribe to start more ranks than slots, or give more "
		  "slots, as in 'a:5'" },
	{ "a:1",
	  { 2 },
	  SLOT,
	  .id = E_SLOTS,
	  .want = "-np 2 asks for 2 ranks, but -H gives 1 slot (a:1)" },
	{ "g01:8 g02:8 g03:8 h:2",
	  { 100 },
	  SLOT,
	  .id = E_SLOTS,
	  .want = "-np 100 asks for 100 ranks, but -H gives 26 slots (g[01-03]:8 + "
		  "h:2)" },
	{ "g01:8 h:8 g3:8 g4:8",
	  { 100 },
	  SLOT,
	  .id = E_SLOTS,
	  .want = "-np 100 asks for 100 ranks, but -H gives 32 slots (g01:8 + h:8 + "
		  "g[3-4]:8)" },
	{ "a:4 b:4",
	  { 5 },
	  SLOT,
	  .per_host = 2,
	  .id = E_SLOTS,
	  .want = "-np 5 asks for 5 ranks, but -H with -ppn 2 gives 4 slots (a:2 + "
		  "b:2)",
	  .hint = "use --oversubscribe to start more ranks than slots, or raise -ppn, "
		  "or name more hosts" },
	{ "a:2",
	  { 2, 1 },
	  2,
	  SLOT,
	  .id = E_SLOTS,
	  .want = "-np 2 + -np 1 asks for 3 ranks, but -H gives 2 slots (a:2)" },
	{ "a:2/4 b:1/1",
	  { 6 },
	  SLOT,
	  OVER,
	  .id = E_MAX_SLOTS,
	  .want = "-np 6 asks for 6 ranks, but max_slots allows 5 slots (a:4 + b:1)" },
	{ "a:0 b:0",
	  { 0 },
	  SLOT,
	  .id = E_NO_SLOTS,
	  .want = "-H gives no slots (a:0 + b:0)" },
	{ "a:0",
	  { 2 },
	  SLOT,
	  OVER,
	  .id = E_NO_SLOTS,
	  .want = "-H gives no slots (a:0)" },
	{ "a:4",
	  { 2, 0 },
	  2,
	  SLOT,
	  .id = E_APP_NP,
	  .want = "no -np for 'second', program 2 of 2" },
	{ "a:1",
	  { 2000000000 },
	  SLOT,
	  OVER,
	  .id = E_RANKS_MANY,
	  .want = "-np 2000000000 asks for 2000000000 ranks, but the limit is "
		  "1048576" },
};

START_TEST(map)
{
	struct plan p = { 0 };
	struct err e = { 0 };
	struct input in;
	char *text;
	int rc;

	make(&in, &cases[_i]);
	rc = map_ranks(&p, &in.r, in.hosts, in.n, "-H", &e);
	text = rc ? xstrdup(e.text) : show(&p, in.hosts);
	ck_assert_str_eq(text, cases[_i].want);
	ck_assert_int_eq(e.id, cases[_i].id);
	ck_assert_int_eq(rc, cases[_i].id ? -1 : 0);
	if (rc)
		ck_assert_int_eq(err_status(e.id), EXIT_USAGE);
	if (cases[_i].hint)
		ck_assert_str_eq(e.hint, cases[_i].hint);
	if (rc)
		ck_assert_int_eq(map_ranks(&p, &in.r, in.hosts, in.n, "-H", NULL), -1);
	free(text);
	plan_free(&p);
	unmake(&in);
}
END_TEST

START_TEST(lost_hosts_get_no_rank)
{
	const struct map_host hosts[] = { { "a", 4, 0, true, 1, 1, NULL },
					  { "b", 2, 0, false, 1, 1, NULL },
					  { "c", 2, 0, false, 1, 1, NULL } };
	struct app app = { .np = 3 };
	struct request r = { .app = &app, .napp = 1 };
	struct plan p = { 0 };
	struct err e = { 0 };

	for (r.per_host = 0; r.per_host < 3; r.per_host += 2) { /* nor by -ppn */
		ck_assert_int_eq(map_ranks(&p, &r, hosts, 3, "-H", &e), 0);
		ck_assert_uint_eq(p.node[0], PLAN_UNUSED);
		ck_assert_uint_eq(p.rank[0].host, 1);
		ck_assert_uint_eq(p.nodes, 2);
		plan_free(&p);
	}
	app.np = 5;
	r.per_host = 0;
	ck_assert_int_eq(map_ranks(&p, &r, hosts, 3, "-H", &e), -1);
}
END_TEST

/* A program whose host is lost may only go to a spare of its own list. */
START_TEST(lost_host_of_a_list)
{
	static const struct map_case c = {
		"a:2 b:2 c:2 d:2", { 2, 2 }, 2, SLOT, .lists = { "a:2 d:2", "b:2 c:2" }
	};
	struct plan p = { 0 };
	struct err e = { 0 };
	struct input in;
	char *text;

	make(&in, &c);
	in.hosts[1].lost = true;
	ck_assert(!map_ranks(&p, &in.r, in.hosts, in.n, "-H", NULL));
	text = show(&p, in.hosts);
	ck_assert_str_eq(text, "a0 a1 c0/1 c1/1");
	plan_free(&p);
	in.hosts[2].lost = true; /* d is free, but the first program's */
	ck_assert_int_eq(map_ranks(&p, &in.r, in.hosts, in.n, "-H", &e), -1);
	ck_assert_str_eq(e.text, "app 2: -H gives no slots (b:0 + c:0)");
	free(text);
	unmake(&in);
}
END_TEST

START_TEST(unused_hosts_have_no_node)
{
	static const struct map_case c = { "a:1 b:0 c:2 d:1", { 3 }, SLOT };
	struct plan p = { 0 };
	struct input in;

	make(&in, &c);
	ck_assert(!map_ranks(&p, &in.r, in.hosts, in.n, "-H", NULL));
	ck_assert_uint_eq(p.nhosts, 4);
	ck_assert_uint_eq(p.nodes, 2);
	ck_assert_uint_eq(p.node[0], 0);
	ck_assert_uint_eq(p.node[1], PLAN_UNUSED);
	ck_assert_uint_eq(p.node[2], 1);
	ck_assert_uint_eq(p.node[3], PLAN_UNUSED);
	ck_assert_uint_eq(p.local_size[2], 2);
	ck_assert_uint_eq(p.local_size[3], 0);
	plan_free(&p);
	plan_free(&p);
	unmake(&in);
}
END_TEST

/* A host is lost, its ranks come to another one, and more to a third that is new. */
START_TEST(hosts_leave_and_come)
{
	static const struct map_case c = { "a:2 b:2 c:0", { 4 }, SLOT };
	static const uint32_t lost[] = { 2, 3 }, more[] = { 4 };
	struct plan p = { 0 };
	struct input in;

	make(&in, &c);
	ck_assert(!map_ranks(&p, &in.r, in.hosts, in.n, "-H", NULL));
	plan_leave(&p, 1);
	ck_assert(plan_has(&p, 1));
	ck_assert(!plan_has(&p, 2));
	ck_assert_uint_eq(p.local_size[1], 0);
	ck_assert_uint_eq(p.node[1], PLAN_UNUSED);
	plan_come(&p, 2, lost, 2);
	plan_come(&p, 4, more, 1);
	ck_assert_uint_eq(p.np, 5);
	ck_assert_uint_eq(p.nhosts, 5);
	ck_assert_uint_eq(p.nodes, 3);
	ck_assert_uint_eq(p.node[0], 0);
	ck_assert_uint_eq(p.node[1], PLAN_UNUSED);
	ck_assert_uint_eq(p.node[2], 1);
	ck_assert_uint_eq(p.node[3], PLAN_UNUSED);
	ck_assert_uint_eq(p.node[4], 2);
	ck_assert_uint_eq(p.rank[3].host, 2);
	ck_assert_uint_eq(p.rank[3].local, 1);
	ck_assert_uint_eq(p.rank[3].cross_rank, 1);
	ck_assert_uint_eq(p.rank[4].cross_rank, 2);
	ck_assert_uint_eq(p.rank[0].cross_size, 3);
	ck_assert_uint_eq(p.ranks[2][1], 3);
	plan_free(&p);
	unmake(&in);
}
END_TEST

/* a:2 b:4 as horovodrun has it: ranks 4 and 5 are alone with their local rank. */
static const struct {
	const char *hosts;
	enum map_by by;
	const char *want;
} crossings[] = {
	{ "a:2 b:4", MAP_SLOT, "0/2 0/2 1/2 1/2 0/1 0/1" },
	{ "a:4 b:2", MAP_SLOT, "0/2 0/2 0/1 0/1 1/2 1/2" },
	{ "a:1 b:3 c:2", MAP_SLOT, "0/3 1/3 0/2 0/1 2/3 1/2" },
	{ "a:1 b:3 c:2", MAP_NODE, "0/3 1/3 2/3 0/2 1/2 0/1" },
};

START_TEST(cross)
{
	struct map_case c = { .hosts = crossings[_i].hosts, .by = crossings[_i].by };
	struct plan p = { 0 };
	struct str s = { 0 };
	struct input in;

	make(&in, &c);
	ck_assert(!map_ranks(&p, &in.r, in.hosts, in.n, "-H", NULL));
	for (uint32_t k = 0; k < p.np; k++)
		str_addf(&s, "%s%u/%u", k ? " " : "", p.rank[k].cross_rank,
			 p.rank[k].cross_size);
	ck_assert_str_eq(str_text(&s), crossings[_i].want);
	str_free(&s);
	plan_free(&p);
	unmake(&in);
}
END_TEST

/* Whatever the request: every rank once, locals without gaps, limits kept. */
START_TEST(properties)
{
	static const char *const hosts[] = { "a:1", "a:3 b:1 c:2", "a:2/5 b:4/4 c:1/2",
					     "a:0 b:3/3 c:1" };
	struct map_case c = { .hosts = hosts[_i] };

	for (int np = 1; np <= 11; np++) {
		for (int variant = 0; variant < 8; variant++) {
			struct plan p = { 0 };
			struct input in;
			uint32_t seen[16] = { 0 }, sum = 0;

			c.np[0] = np;
			c.by = variant & 1 ? MAP_NODE : MAP_SLOT;
			c.oversubscribe = variant & 2;
			c.per_host = variant & 4 ? 2 : 0;
			make(&in, &c);
			if (!map_ranks(&p, &in.r, in.hosts, in.n, "-H", NULL)) {
				ck_assert_uint_eq(p.np, (uint32_t)np);
				for (uint32_t k = 0; k < p.np; k++)
					ck_assert_uint_eq(p.rank[k].local,
							  seen[p.rank[k].host]++);
				for (uint32_t h = 0; h < p.nhosts; h++) {
					ck_assert_uint_eq(seen[h], p.local_size[h]);
					ck_assert(!in.hosts[h].max_slots ||
						  seen[h] <= (uint32_t)in.hosts[h]
								     .max_slots);
					sum += seen[h];
				}
				ck_assert_uint_eq(sum, (uint32_t)np);
			}
			plan_free(&p);
			unmake(&in);
		}
	}
}
END_TEST

START_TEST(long_arithmetic_is_cut)
{
	struct map_host hosts[200];
	struct app app = { .np = 100000 };
	struct request r = { .app = &app, .napp = 1 };
	char *names[200];
	struct plan p = { 0 };
	struct err e = { 0 };

	for (int i = 0; i < 200; i++) {
		names[i] = xasprintf("host%c%d", 'a' + i % 2, i);
		hosts[i] = (struct map_host){ .name = names[i], .slots = 1 + i % 3 };
	}
	ck_assert_int_eq(map_ranks(&p, &r, hosts, 200, "hosts.txt", &e), -1);
	ck_assert_uint_lt(strlen(e.text), 400);
	ck_assert_ptr_nonnull(strstr(e.text, "...)"));
	for (int i = 0; i < 200; i++)
		free(names[i]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("map");
	TCase *c = tcase_create("map");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, map, 0, COUNT(cases));
	tcase_add_test(c, unused_hosts_have_no_node);
	tcase_add_test(c, hosts_leave_and_come);
	tcase_add_test(c, lost_hosts_get_no_rank);
	tcase_add_test(c, lost_host_of_a_list);
	tcase_add_loop_test(c, cross, 0, COUNT(crossings));
	tcase_add_loop_test(c, properties, 0, 4);
	tcase_add_test(c, long_arithmetic_is_cut);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
