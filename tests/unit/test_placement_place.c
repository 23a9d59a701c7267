/* place.h, topo.h, cpuset.h: on topologies that hwloc makes up from a line of text;
 * larger machines are in tests/golden. */
#include <check.h>
#include <unistd.h>

#include "agent/placement/place.h"
#include "agent/placement/place_internal.h"

static void load(struct topo *t, const char *synthetic)
{
	struct err e = { 0 };

	setenv("HWLOC_SYNTHETIC", synthetic, 1);
	ck_assert_msg(!topo_load(t, NULL, &e), "%s", e.text);
	unsetenv("HWLOC_SYNTHETIC");
}

static int node_named(const struct topo *t, const char *name, size_t len)
{
	for (size_t i = 0; i < t->nnode; i++)
		if (strlen(t->node[i].name) == len &&
		    !strncmp(t->node[i].name, name, len))
			return (int)i;
	ck_abort_msg("no node '%.*s'", (int)len, name);
}

/* GPUs from a list of the nodes they hang from; "*" behind a name: another job holds
 * it. */
static void add_gpus(struct gpus *g, const struct topo *t, const char *homes)
{
	*g = (struct gpus){ 0 };
	for (const char *h = homes; *h; h += *h == ' ') {
		size_t len = strcspn(h, " ");
		bool held = h[len - 1] == '*';
		struct gpu *v;

		g->v = xreallocarray(g->v, g->n + 1, sizeof *g->v);
		v = &g->v[g->n];
		*v = (struct gpu){ .index = (int)g->n };
		v->home = node_named(t, h, len - held);
		if (held)
			snprintf(v->holder, sizeof v->holder, "pid 9 of uid 8");
		snprintf(v->pci, sizeof v->pci, "0000:%02zx:00.0", g->n++);
		h += len;
	}
}

/* "0:0-3 1:4-7": GPU and CPUs of each rank. */
static char *table_of(const struct placement *p)
{
	struct str s = { 0 };

	for (size_t r = 0; r < p->n; r++) {
		str_addf(&s, r ? " " : "");
		if (p->v[r].gpu >= 0)
			str_addf(&s, "%d:", p->v[r].gpu);
		str_add_bits(&s, p->v[r].cpus.w, p->v[r].cpus.nwords);
	}
	return str_take(&s);
}

/* ---- placements ---- */

#define TWO "pack:2 core:4 pu:2"
#define NPS "pack:2 numa:2 core:4 pu:1"
#define L3S "pack:2 l3:2 core:2 pu:1"

static const struct {
	const char *machine, *gpus;
	size_t n;
	struct place_options o;
	const char *want;
} placements[] = {
	/* one rank per GPU, equal shares of its socket */
	{ TWO, "Package#0 Package#1", 2, { 0 }, "0:0-7 1:8-15" },
	{ TWO, "Package#0 Package#0", 2, { 0 }, "0:0-3 1:4-7" },
	{ TWO, "Package#1 Package#0", 2, { 0 }, "0:8-15 1:0-7" },
	/* fewer ranks: the first GPUs; more: shared, in blocks */
	{ TWO, "Package#0 Package#1", 1, { 0 }, "0:0-7" },
	{ TWO, "Package#0 Package#1", 3, { 0 }, "0:0-3 0:4-7 1:8-15" },
	{ TWO, "Package#0 Package#1", 4, { 0 }, "0:0-3 0:4-7 1:8-11 1:12-15" },
	/* the whole socket, or the home only, or the machine */
	{ NPS, "NUMANode#1", 1, { 0 }, "0:0-7" },
	{ NPS, "NUMANode#1", 1, { .share = SHARE_HOME }, "0:4-7" },
	{ NPS, "NUMANode#1", 1, { .share = SHARE_MACHINE }, "0:0-15" },
	{ NPS, "NUMANode#1 NUMANode#2", 2, { 0 }, "0:0-7 1:8-15" },
	/* no locality: whole sockets */
	{ TWO, "Machine Machine", 2, { 0 }, "0:0-7 1:8-15" },
	{ TWO, "Machine Machine Machine", 3, { 0 }, "0:0-3 1:4-7 2:8-11" },
	/* a home with more demand than cores takes the rest from its socket */
	{ NPS, "NUMANode#0 NUMANode#0 NUMANode#1", 3, { 0 }, "0:0-1 1:2-3 2:4-5" },
	{ NPS,
	  "NUMANode#0 NUMANode#0 NUMANode#0 NUMANode#0 NUMANode#0",
	  5,
	  { 0 },
	  "0:0 1:1 2:2 3:3 4:4" },
	/* one rank too many goes where its core is near */
	{ "pack:2 core:2 pu:1",
	  "Package#0 Package#0 Package#1",
	  4,
	  { 0 },
	  "0:0 1:1 2:2 2:3" },
	/* held GPUs come last */
	{ TWO, "Package#1 Package#0*", 1, { 0 }, "0:8-15" },
	/* more ranks than cores, than CPUs */
	{ "pack:2 core:1 pu:2", "Package#0 Package#1", 3, { 0 }, "0:0 0:1 1:2" },
	{ "pack:2 core:1 pu:1",
	  "Package#0 Package#1",
	  5,
	  { 0 },
	  "0:0 0:0 0:0 1:1 1:1" },
	{ "core:1 pu:1", "Machine", 3, { 0 }, "0:0 0:0 0:0" },
	/* no GPU: all cores, evenly, whole parts where it divides */
	{ TWO, "", 1, { 0 }, "0-15" },
	{ TWO, "", 2, { 0 }, "0-7 8-15" },
	{ TWO, "", 3, { 0 }, "0-3 4-9 10-15" },
	{ TWO, "", 12, { 0 }, "0 1 2-3 4 5 6-7 8 9 10-11 12 13 14-15" },
	{ "pack:2 core:5 pu:1", "", 4, { 0 }, "0-1 2-4 5-6 7-9" },
	{ "core:1 pu:1", "", 3, { 0 }, "0 0 0" },
	/* --bind-to */
	{ TWO, "Package#1 Package#1", 2, { .bind_to = BIND_SOCKET }, "0:8-15 1:8-15" },
	{ TWO, "Machine", 1, { .bind_to = BIND_SOCKET, .bind_count = 2 }, "0:0-15" },
	{ TWO, "", 4, { .bind_to = BIND_SOCKET }, "0-7 0-7 8-15 8-15" },
	{ NPS, "NUMANode#1 NUMANode#3", 2, { .bind_to = BIND_NUMA }, "0:4-7 1:12-15" },
	{ NPS, "NUMANode#3", 1, { .bind_to = BIND_NUMA, .bind_count = 2 }, "0:8-15" },
	{ L3S, "Package#1", 2, { .bind_to = BIND_L3 }, "0:4-5 0:6-7" },
	{ L3S, "Package#1", 3, { .bind_to = BIND_L3 }, "0:4-5 0:4-5 0:6-7" },
	{ L3S, "L3Cache#2 L3Cache#2", 2, { .bind_to = BIND_L3 }, "0:4-5 1:4-5" },
	{ TWO, "Package#1", 1, { .bind_to = BIND_CORE }, "0:8-9" },
	{ TWO,
	  "Package#1",
	  2,
	  { .bind_to = BIND_CORE, .bind_count = 3 },
	  "0:0-1,8-11 0:2-3,12-15" },
	{ "core:2 pu:2", "Machine", 3, { .bind_to = BIND_CORE }, "0:0-1 0:2-3 0:0-1" },
	{ "core:3 pu:1",
	  "Machine",
	  2,
	  { .bind_to = BIND_CORE, .bind_count = 2 },
	  "0:0-1 0:0,2" },
	{ TWO,
	  "Package#1",
	  2,
	  { .bind_to = BIND_HWTHREAD, .bind_count = 2 },
	  "0:8-9 0:10-11" },
	{ TWO, "Package#1", 1, { .bind_to = BIND_NONE }, "0:0-15" },
};

START_TEST(placements_are)
{
	struct topo t;
	struct gpus g;
	struct placement p;
	struct err e = { 0 };
	char *got;

	load(&t, placements[_i].machine);
	add_gpus(&g, &t, placements[_i].gpus);
	ck_assert_msg(!place_ranks(&p, &t, &g, placements[_i].n, &placements[_i].o, &e),
		      "%s", e.text);
	got = table_of(&p);
	ck_assert_msg(!strcmp(got, placements[_i].want), "%s, %s, %zu: %s, not %s",
		      placements[_i].machine, placements[_i].gpus, placements[_i].n,
		      got, placements[_i].want);
	for (size_t r = 0; r < p.n; r++) {
		ck_assert_uint_ge(p.v[r].ncores, 1);
		ck_assert_ptr_null(strchr(p.v[r].why, '\n'));
		ck_assert_int_eq(p.v[r].bound, placements[_i].o.bind_to != BIND_NONE);
	}
	free(got);
	placement_free(&p);
	gpu_free(&g);
	topo_free(&t);
}
END_TEST

static void place_on(struct placement *p, const char *machine, const char *gpus,
		     size_t n)
{
	const struct place_options o = { 0 };
	struct topo t;
	struct gpus g;
	struct err e = { 0 };

	load(&t, machine);
	add_gpus(&g, &t, gpus);
	ck_assert_int_eq(place_ranks(p, &t, &g, n, &o, &e), 0);
	gpu_free(&g);
	topo_free(&t);
}

START_TEST(placement_says_why)
{
	struct placement p;

	place_on(&p, NPS, "NUMANode#0 NUMANode#0 NUMANode#3", 3);
	ck_assert_str_eq(
		p.v[0].why,
		"GPU 0 (0000:00:00.0) by PCI order; its home is NUMANode#0; 4 of 4 "
		"cores, 2 there and 2 in the rest of Package#0; Package#0 also "
		"serves local rank 1");
	ck_assert_str_eq(
		p.v[2].why,
		"GPU 2 (0000:02:00.0) by PCI order; its home is NUMANode#3; 8 of 8 "
		"cores, 4 there and 4 in the rest of Package#1");
	ck_assert_str_eq(p.v[0].numa, "0-1");
	ck_assert_str_eq(p.v[2].numa, "2-3");
	ck_assert_str_eq(p.idle, "");
	ck_assert_str_eq(
		p.certificate,
		"0 cores outside their GPU's socket, 8 outside its home: the least "
		"possible for these shares");
	ck_assert(!p.gpus_shared);
	placement_free(&p);
	place_on(&p, "pack:2 core:2 pu:1", "Package#0*", 5);
	ck_assert(p.gpus_shared);
	ck_assert_str_eq(p.certificate, "5 ranks on 4 CPUs: none serves more than 2");
	ck_assert_ptr_nonnull(strstr(p.v[3].why,
				     "though pid 9 of uid 8 has it, shared with "
				     "local ranks 0-2,4"));
	placement_free(&p);
	place_on(&p, TWO, "Package#0", 1);
	ck_assert_str_eq(p.idle, "8-15");
	ck_assert_uint_eq(p.v[0].ncores, 4);
	placement_free(&p);
	place_on(&p, TWO, "", 0);
	ck_assert_uint_eq(p.n, 0);
	placement_free(&p);
}
END_TEST

/* ---- what is refused ---- */

static const struct {
	size_t n;
	struct place_options o;
	enum err_id id;
	const char *text;
} refusals[] = {
	{ 3,
	  { .no_gpu_sharing = true },
	  E_GPU_SHARING,
	  "cannot give each of 3 ranks its own GPU: this host has 2, and "
	  "--no-gpu-sharing is given" },
	{ 1,
	  { .bind_to = BIND_L3 },
	  E_BIND_OBJECTS,
	  "--bind-to l3:1: the CPUs allowed on this host have 0 of these" },
	{ 1,
	  { .bind_to = BIND_CORE, .bind_count = 9 },
	  E_BIND_OBJECTS,
	  "--bind-to core:9: the CPUs allowed on this host have 8 of these" },
};

START_TEST(refusals_say_why)
{
	struct topo t;
	struct gpus g;
	struct placement p;
	struct err e = { 0 };

	load(&t, TWO);
	add_gpus(&g, &t, "Package#0 Package#1");
	ck_assert_int_eq(place_ranks(&p, &t, &g, refusals[_i].n, &refusals[_i].o, &e),
			 -1);
	ck_assert_int_eq(e.id, refusals[_i].id);
	ck_assert_str_eq(e.text, refusals[_i].text);
	ck_assert(!p.v && !p.n);
	gpu_free(&g);
	topo_free(&t);
}
END_TEST

/* Two ranks with GPUs on both sockets of TWO (cores 0-3: CPUs 0-7), and what they were
 * given: place_check() must find what is wrong. */
static const struct {
	const char *cpus[2];
	int gpu[2];
	const char *text; /* NULL: right */
} wrongs[] = {
	{ { "0-7", "8-15" }, { 0, 1 }, NULL },
	{ { "0-7", "" }, { 0, 1 }, "a rank has no CPU" },
	{ { "0-7", "16-23" }, { 0, 1 }, "a rank has a CPU that is not allowed" },
	{ { "0-7", "8-15" }, { 1, 0 }, "ranks do not follow the GPUs' order" },
	{ { "0-7", "8-15" }, { 0, 0 }, "the GPUs are not shared evenly" },
	{ { "0-7", "7-15" }, { 0, 1 }, "two ranks have the same core" },
	{ { "0-7", "8-13" }, { 0, 1 }, "a rank does not have its share" },
	{ { "8-15", "0-7" },
	  { 0, 1 },
	  "more cores than necessary lie outside a rank's part" },
	{ { "0-5,8-9", "6-7,10-15" },
	  { 0, 1 },
	  "more cores than necessary lie outside a rank's part" },
};

START_TEST(certificate_finds)
{
	const struct place_options o = { 0 };
	struct berth b[2] = { 0 };
	struct seat seat[2];
	struct placement p = { .v = b, .n = 2 };
	struct topo t;
	struct gpus g;
	struct err e = { 0 };
	struct place_work w = {
		.t = &t, .g = &g, .o = &o, .p = &p, .seat = seat, .mode = PLACE_FILL
	};

	load(&t, TWO);
	add_gpus(&g, &t, "Package#0 Package#1");
	place_units(&w, BIND_CORE);
	for (size_t r = 0; r < 2; r++) {
		seat[r] = (struct seat){ (int)r, g.v[r].home, 4 };
		b[r].gpu = wrongs[_i].gpu[r];
		b[r].cpus = cpuset_new(t.allowed.nwords);
		ck_assert(cpuset_parse(&b[r].cpus, wrongs[_i].cpus[r]));
	}
	if (wrongs[_i].text) {
		ck_assert_int_eq(place_check(&w, &e), -1);
		ck_assert_int_eq(e.id, E_PLACE);
		ck_assert_msg(strstr(e.text, wrongs[_i].text), "%s, not %s", e.text,
			      wrongs[_i].text);
	} else {
		ck_assert_int_eq(place_check(&w, &e), 0);
	}
	place_units_free(&w);
	cpuset_free(&b[0].cpus);
	cpuset_free(&b[1].cpus);
	gpu_free(&g);
	topo_free(&t);
}
END_TEST

/* ---- topology ---- */

START_TEST(tree_is_as_documented)
{
	struct topo t;

	load(&t, "pack:2 numa:2 l3:2 core:2 pu:2");
	ck_assert_uint_eq(t.ncore, 16);
	ck_assert_uint_eq(t.npu, 32);
	ck_assert_uint_eq(t.nnuma, 4);
	ck_assert_uint_eq(topo_numa_count(&t), 4);
	ck_assert(!t.live && !t.from_xml);
	for (int i = 1; i < (int)t.nnode; i++) {
		const struct topo_node *n = &t.node[i];

		ck_assert_int_lt(n->parent, i);
		ck_assert(topo_above(&t, n->parent, i) && topo_above(&t, 0, i));
		ck_assert(!topo_above(&t, i, n->parent));
		ck_assert_int_eq(n->depth, t.node[n->parent].depth + 1);
		ck_assert_uint_eq(cpuset_count(&n->cpus), 2 * n->ncores);
		ck_assert(cpuset_within(&n->cpus, &t.node[n->parent].cpus));
	}
	for (size_t c = 0; c < t.ncore; c++) {
		ck_assert_uint_eq(t.core[c].npu, 2);
		ck_assert_int_eq(t.core[c].numa, (int)c / 4);
	}
	topo_free(&t);
	topo_free(&t);
}
END_TEST

static const struct {
	const char *cpus, *node;
} coverings[] = {
	{ "", "Machine" },      { "0-31", "Machine" },  { "0-15", "Package#0" },
	{ "3", "L2Cache#1" },   { "0-3", "L3Cache#0" }, { "2-5", "NUMANode#0" },
	{ "4-9", "Package#0" }, { "15-16", "Machine" }, { "16-31", "Package#1" },
};

START_TEST(covering_object)
{
	struct topo t;
	struct cpuset s;

	load(&t, "pack:2 numa:2 l3:2 l2:2 core:1 pu:2");
	s = cpuset_new(t.allowed.nwords);
	ck_assert(cpuset_parse(&s, coverings[_i].cpus));
	ck_assert_str_eq(t.node[topo_covering(&t, &s)].name, coverings[_i].node);
	cpuset_free(&s);
	topo_free(&t);
}
END_TEST

START_TEST(home_is_never_a_core)
{
	struct topo t;

	load(&t, "pack:2 l3:2 l2:2 core:1 pu:2");
	for (int i = 0; i < (int)t.nnode; i++) {
		int home = topo_home(&t, i);

		ck_assert(topo_above(&t, home, i));
		ck_assert_uint_gt(t.node[home].ncores, 1);
	}
	topo_free(&t);
}
END_TEST

START_TEST(this_machine)
{
	struct topo t;
	struct err e = { 0 };

	ck_assert_int_eq(topo_load(&t, NULL, &e), 0);
	ck_assert(t.live && !t.from_xml && t.ncore && t.npu);
	ck_assert_uint_eq(cpuset_count(&t.allowed), t.npu);
	ck_assert_uint_eq(t.npci, 0);
	topo_free(&t);
}
END_TEST

static const struct {
	const char *content, *want;
} files[] = {
	{ NULL, "No such file or directory" },
	{ "", "not a topology that hwloc can read" },
	{ "cpus: 8\n", "not a topology that hwloc can read" },
	{ "<?xml version=\"1.0\"?>\n<!-- no end\n<topology>\n",
	  "not a topology that hwloc can read" },
};

START_TEST(unreadable_files)
{
	char path[] = "/tmp/test_place.XXXXXX";
	int fd = mkstemp(path);
	struct err e = { 0 };
	struct topo t;

	ck_assert_int_ge(fd, 0);
	if (files[_i].content)
		ck_assert(write(fd, files[_i].content, strlen(files[_i].content)) >= 0);
	else
		unlink(path);
	close(fd);
	ck_assert_int_eq(topo_load(&t, path, &e), -1);
	ck_assert_int_eq(e.id, E_TOPOLOGY);
	ck_assert_msg(strstr(e.text, path) && strstr(e.text, files[_i].want), "%s",
		      e.text);
	unlink(path);
}
END_TEST

/* ---- sets ---- */

static const struct {
	const char *list, *want; /* NULL: not a list */
} lists[] = {
	{ "", "" },         { "0", "0" },     { "0-3,8\n", "0-3,8" },
	{ " 1,3 ", "1,3" }, { "127", "127" }, { "126-999", "126-127" },
	{ "200", "" },      { "3-1", "" },    { "x", NULL },
	{ "1-", NULL },     { "-1", NULL },   { "1,,2", NULL },
	{ "1;2", NULL },
};

START_TEST(list_strings)
{
	struct cpuset s = cpuset_new(2);
	struct str text = { 0 };

	ck_assert_int_eq(cpuset_parse(&s, lists[_i].list), lists[_i].want != NULL);
	if (lists[_i].want) {
		str_add_bits(&text, s.w, s.nwords);
		ck_assert_str_eq(str_text(&text), lists[_i].want);
	}
	str_free(&text);
	cpuset_free(&s);
}
END_TEST

START_TEST(sets_of_unequal_room)
{
	struct cpuset a = cpuset_new(1), b = cpuset_new(2), c;

	cpuset_add(&a, 5);
	cpuset_add(&a, 70);
	cpuset_add(&b, 5);
	cpuset_add(&b, 70);
	ck_assert_uint_eq(cpuset_count(&a), 1);
	ck_assert(cpuset_within(&a, &b) && !cpuset_within(&b, &a));
	ck_assert(cpuset_meets(&a, &b) && cpuset_meets(&b, &a));
	c = cpuset_copy(&b);
	cpuset_and(&c, &a);
	ck_assert(cpuset_has(&c, 5) && !cpuset_has(&c, 70) && !cpuset_has(&c, 1000));
	cpuset_or(&c, &b);
	ck_assert_uint_eq(cpuset_count(&c), 2);
	cpuset_free(&a);
	cpuset_free(&b);
	cpuset_free(&c);
	cpuset_free(&c);
}
END_TEST

#define LEN(a) ((int)(sizeof(a) / sizeof *(a)))

int main(void)
{
	Suite *s = suite_create("place");
	TCase *c = tcase_create("place");
	SRunner *r;
	int failed;

	unsetenv("HWLOC_XMLFILE");
	tcase_add_loop_test(c, placements_are, 0, LEN(placements));
	tcase_add_test(c, placement_says_why);
	tcase_add_loop_test(c, refusals_say_why, 0, LEN(refusals));
	tcase_add_loop_test(c, certificate_finds, 0, LEN(wrongs));
	tcase_add_test(c, tree_is_as_documented);
	tcase_add_loop_test(c, covering_object, 0, LEN(coverings));
	tcase_add_test(c, home_is_never_a_core);
	tcase_add_test(c, this_machine);
	tcase_add_loop_test(c, unreadable_files, 0, LEN(files));
	tcase_add_loop_test(c, list_strings, 0, LEN(lists));
	tcase_add_test(c, sets_of_unequal_room);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
