/* step_request.h, place_fixed() of place.h, topo_restrict() of topo.h. */
#include <check.h>

#include "agent/placement/place.h"
#include "agent/step_request.h"

/* ---- the request ---- */

#define HEAD "berth-step 1\n"
#define NUMBERS "uid 7\njob 1\nstep 0\nnode 1\nnodes 2\nsize 4\nranks 2,3\n"

START_TEST(whole_request)
{
	char text[] = HEAD NUMBERS "hosts n[1-2]\noptions a b\ncuda 0,1\n";
	struct step_request q;
	struct err e = { 0 };

	ck_assert_msg(!step_request_read(&q, text, &e), "%s", e.text);
	ck_assert_uint_eq(q.uid, 7);
	ck_assert_uint_eq(q.node, 1);
	ck_assert_uint_eq(q.tasks, 2);
	ck_assert_uint_eq(q.ranks[1], 3);
	ck_assert_str_eq(q.options, "a b");
	ck_assert_str_eq(q.cuda, "0,1");
	ck_assert_ptr_null(q.step_gpus);
	step_request_free(&q);
}
END_TEST

START_TEST(only_options)
{
	char text[] = HEAD "uid 7\nonly options\noptions report,off\n";
	struct step_request q;
	struct err e = { 0 };

	ck_assert_msg(!step_request_read(&q, text, &e), "%s", e.text);
	ck_assert(q.only_options);
	ck_assert_str_eq(q.options, "report,off");
	step_request_free(&q);
}
END_TEST

static const char *const not_requests[] = {
	"",
	"berth-step 2\n" NUMBERS,
	HEAD,
	HEAD NUMBERS "colour red\n",
	HEAD NUMBERS "hosts\n",
	HEAD NUMBERS "ranks 2,3\n",
	HEAD "nodes 1\nsize 2\nranks 0,2\n",
	HEAD "nodes 1\nnode 1\nsize 1\nranks 0\n",
	HEAD "nodes 1\nsize 1\nranks 0,\n",
	HEAD "nodes 1\nsize 1x\nranks 0\n",
	HEAD "nodes 1\nsize 99999999999\nranks 0\n",
	HEAD "only ranks\n" NUMBERS,
	HEAD "nodes 65537\nsize 1\nranks 0\n",
};

START_TEST(no_request)
{
	char *text = xstrdup(not_requests[_i]);
	struct step_request q;
	struct err e = { 0 };

	ck_assert(step_request_read(&q, text, &e));
	ck_assert_int_eq(e.id, E_STEP);
	step_request_free(&q);
	free(text);
}
END_TEST

/* ---- --berth ---- */

START_TEST(all_words)
{
	struct step_options o;
	struct err e = { 0 };

	ck_assert(!step_options_read(&o,
				     "report,strict,all-gpus,no-gpu-sharing,bind-to="
				     "core:2,share=home,gpu-visible=node,gpu-id=uuid",
				     &e));
	ck_assert(o.report && o.all_gpus && o.place.no_gpu_sharing && !o.off);
	ck_assert_int_eq(o.place.bind_to, BIND_CORE);
	ck_assert_uint_eq(o.place.bind_count, 2);
	ck_assert_int_eq(o.place.share, SHARE_HOME);
	ck_assert_int_eq(o.gpu_visible, VISIBLE_NODE);
	ck_assert_int_eq(o.gpu_id, GPU_ID_UUID);
	ck_assert(!step_options_read(&o, "off", &e) && o.off);
	ck_assert(!step_options_read(&o, "", &e) && !o.off);
}
END_TEST

static const struct {
	const char *text;
	enum err_id id;
} not_words[] = {
	{ "nonsense", E_STEP_OPTION },  { "report,,off", E_STEP_OPTION },
	{ "report=1", E_STEP_OPTION },  { "bind-to", E_STEP_OPTION },
	{ "bind-to=moon", E_CHOICE },   { "share=all", E_CHOICE },
	{ "bind-to=core:0", E_NUMBER }, { "gpu-visible=2", E_CHOICE },
	{ "gpu-id=serial", E_CHOICE },
};

START_TEST(no_word)
{
	struct step_options o;
	struct err e = { 0 };

	ck_assert(step_options_read(&o, not_words[_i].text, &e));
	ck_assert_int_eq(e.id, not_words[_i].id);
}
END_TEST

/* ---- Slurm's lists ---- */

static const struct {
	const char *list, *first;
} hosts[] = {
	{ "n1", "n1" },
	{ "n1,n2", "n1" },
	{ "n[1-3]", "n1" },
	{ "gpu[08-11,20]", "gpu08" },
	{ "a,b[1-2]", "a" },
	{ "n[1-2]-ib", "n1-ib" },
	{ "r[1-2]n[3-4]", "r1n3" },
	{ "n[]", NULL },
	{ "", NULL },
	{ "n[1-2", NULL },
	{ "n[x]", NULL },
};

START_TEST(first_host)
{
	char out[16];
	const bool ok = step_first_host(out, sizeof out, hosts[_i].list);

	ck_assert_int_eq(ok, hosts[_i].first != NULL);
	if (ok)
		ck_assert_str_eq(out, hosts[_i].first);
}
END_TEST

static const struct {
	const char *list;
	uint32_t n;
} counts[] = {
	{ "n1", 1 },           { "n[1-3,7],m2", 5 },
	{ "r[1-2]n[3-4]", 4 }, { "", 0 },
	{ "n[1-", 0 },         { "n[3-1]", 0 },
	{ "n[]", 0 },          { "a,,b", 0 },
	{ "n[1-99999]", 0 },   { "n[008-011]-ib", 4 },
};

START_TEST(hosts_are_counted)
{
	ck_assert_uint_eq(step_count_hosts(counts[_i].list), counts[_i].n);
}
END_TEST

START_TEST(het_job)
{
	char text[] =
		HEAD "nodes 3\nsize 7\nranks 0,1,2\nlayout 2(x2),3\nbefore n[1-2]\n";
	struct step_request q;
	struct err e = { 0 };

	ck_assert_msg(!step_request_read(&q, text, &e), "%s", e.text);
	ck_assert_uint_eq(q.node, 2);
	ck_assert_uint_eq(q.ranks[0], 4);
	ck_assert_uint_eq(q.ranks[2], 6);
	step_request_free(&q);
}
END_TEST

static const struct {
	const char *layout;
	uint32_t local, node;
	bool ok;
	uint32_t rank, size;
} crosses[] = {
	{ "4(x2)", 0, 1, true, 1, 2 },         { "4(x2)", 3, 0, true, 0, 2 },
	{ "2(x3),1", 1, 2, true, 2, 3 },       { "2(x3),1", 0, 3, true, 3, 4 },
	{ "1,2(x2)", 1, 2, true, 1, 2 },       { "2", 0, 1, false, 0, 0 },
	{ "2(x", 0, 0, false, 0, 0 },          { "", 0, 0, false, 0, 0 },
	{ "2(x99999999)", 0, 0, false, 0, 0 },
};

START_TEST(cross)
{
	uint32_t rank, size;
	const bool ok = step_cross(&rank, &size, crosses[_i].layout, crosses[_i].local,
				   crosses[_i].node);

	ck_assert_int_eq(ok, crosses[_i].ok);
	if (ok)
		ck_assert_uint_eq(rank, crosses[_i].rank);
	if (ok)
		ck_assert_uint_eq(size, crosses[_i].size);
}
END_TEST

static const struct {
	const char *type, *list, *want; /* NULL: no masks */
} binds[] = {
	{ "map_cpu:", "3,5", "3 5 3" },
	{ "mask_cpu:", "0x3,0xC0,0x000000010000000000000001", "0-1 6-7 0,64" },
	{ "mask_cpu:", "0x3,0x1g", NULL },
	{ "map_cpu:", "1,x", NULL },
	{ "map_cpu:", "", NULL },
	{ "cores", "cores", NULL },
	{ "", "", NULL },
};

START_TEST(masks_of_cpu_bind)
{
	const struct cpuset like = cpuset_new(2);
	struct cpuset v[3] = { 0 }, l = like;
	struct str s = { 0 };
	const bool ok = step_masks(v, 3, binds[_i].type, binds[_i].list, &like);

	ck_assert_int_eq(ok, binds[_i].want != NULL);
	for (size_t i = 0; ok && i < 3; i++) {
		str_addf(&s, i ? " " : "");
		str_add_bits(&s, v[i].w, v[i].nwords);
		cpuset_free(&v[i]);
	}
	if (ok)
		ck_assert_str_eq(str_text(&s), binds[_i].want);
	str_free(&s);
	cpuset_free(&l);
}
END_TEST

START_TEST(ports)
{
	uint32_t same = 0;

	for (uint32_t job = 1; job < 200; job++) {
		const uint32_t port = step_port(job, 0);

		ck_assert_uint_ge(port, 20000);
		ck_assert_uint_lt(port, 29500);
		ck_assert_uint_eq(port, step_port(job, 0));
		same += port == step_port(job + 1, 0) || port == step_port(job, 1);
	}
	ck_assert_uint_eq(same, 0);
}
END_TEST

/* ---- fixed masks ---- */

static void load(struct topo *t, const char *synthetic)
{
	struct err e = { 0 };

	setenv("HWLOC_SYNTHETIC", synthetic, 1);
	ck_assert_msg(!topo_load(t, NULL, &e), "%s", e.text);
	unsetenv("HWLOC_SYNTHETIC");
}

static int package(const struct topo *t, char number)
{
	for (size_t i = 0; i < t->nnode; i++)
		if (t->node[i].type == NODE_PACKAGE &&
		    t->node[i].name[strlen(t->node[i].name) - 1] == number)
			return (int)i;
	return 0;
}

/* On 2 packages of 4 CPUs: the packages of the GPUs, and the masks. */
static const struct {
	const char *homes;
	const char *masks[6];
} fits[] = {
	{ "01", { "4-7", "0-3" } },
	{ "01", { "0-3", "4-7" } },
	{ "01", { "0-7", "0-3" } },
	/* a greedy one would send the second rank away */
	{ "0011", { "0-7", "0-3", "0", "4" } },
	/* shared evenly, even where all are near one GPU */
	{ "01", { "0", "1", "2", "3" } },
	{ "01", { "4", "5", "0" } },
	{ "011", { "4" } },
	{ "", { "0", "1" } },
};

/* The least sum of steps over all assignments with even shares, tried one by one. */
static unsigned least(const char *homes, const char *const *masks, size_t n)
{
	const size_t m = strlen(homes);
	unsigned best = UINT32_MAX;
	size_t all = 1;

	for (size_t i = 0; i < n; i++)
		all *= m;
	for (size_t k = 0; k < all; k++) {
		unsigned count[8] = { 0 }, sum = 0;
		bool even = true;

		for (size_t i = 0, rest = k; i < n; i++, rest /= m) {
			const bool first = *masks[i] < '4',
				   wide = masks[i][1] == '-' &&
					  masks[i][2] - masks[i][0] == 7;

			count[rest % m]++;
			sum += wide || first != (homes[rest % m] == '0');
		}
		for (size_t g = 0; g < m; g++)
			even &= count[g] >= n / m && count[g] <= (n + m - 1) / m;
		if (even && sum < best)
			best = sum;
	}
	return best;
}

START_TEST(gpus_fit_masks)
{
	const char *homes = fits[_i].homes;
	struct gpu v[8] = { 0 };
	struct gpus g = { .v = v, .n = strlen(homes) };
	struct cpuset masks[6] = { 0 };
	struct placement p;
	struct topo t;
	unsigned sum = 0;
	size_t n = 0;

	load(&t, "pack:2 core:4 pu:1");
	for (size_t i = 0; i < g.n; i++)
		v[i].home = package(&t, homes[i]);
	for (; n < 6 && fits[_i].masks[n]; n++) {
		masks[n] = cpuset_new(t.allowed.nwords);
		ck_assert(cpuset_parse(&masks[n], fits[_i].masks[n]));
	}
	place_fixed(&p, &t, &g, n, masks, NULL);
	for (size_t i = 0; i < n; i++) {
		ck_assert(!p.v[i].bound);
		ck_assert_uint_ge(p.v[i].ncores, 1);
		ck_assert(cpuset_within(&masks[i], &p.v[i].cpus));
		if (p.v[i].gpu < 0) {
			ck_assert_str_eq(homes, "");
			continue;
		}
		sum += !cpuset_within(&masks[i], &t.node[v[p.v[i].gpu].home].cpus);
	}
	if (g.n)
		ck_assert_uint_eq(sum, least(homes, fits[_i].masks, n));
	placement_free(&p);
	for (size_t i = 0; i < n; i++)
		cpuset_free(&masks[i]);
	topo_free(&t);
}
END_TEST

/* Of 2 packages, on GPUs 0 and 1 near the first, 2 and 3 near the second. */
static const struct {
	const char *lists;
	const char *masks[4]; /* none: not fixed */
	int want[4];
} owns[] = {
	{ "0,1;2,3", { 0 }, { 0, 2 } },
	{ "2,3;0,1", { 0 }, { 2, 0 } },
	/* the nearest of its own */
	{ "0,2;1,3", { "4-7", "0-3" }, { 2, 1 } },
	{ "0,1;0,1", { "4-7", "4-7" }, { 0, 1 } },
	/* the first must leave GPU 0 to the second */
	{ "0,1;0", { 0 }, { 1, 0 } },
	{ "0,1;0", { "0", "0" }, { 1, 0 } },
	/* there is no other one */
	{ "3;3;3", { 0 }, { 3, 3, 3 } },
	{ "0,1;0,1;0,1;0,1", { "0", "0", "0", "0" }, { 0, 1, 0, 1 } },
	{ "7;1", { 0 }, { -1, 1 } },
};

START_TEST(own_gpus)
{
	static const int numbers[] = { 0, 1, 2, 3 };
	struct gpu v[4] = { 0 };
	struct gpus g = { .v = v, .n = 4 };
	struct cpuset masks[4] = { 0 };
	const bool fixed = owns[_i].masks[0];
	unsigned used[4] = { 0 };
	bool may[16];
	size_t n = 1;
	int gpu[4];
	struct topo t;

	load(&t, "pack:2 core:4 pu:1");
	for (size_t i = 0; i < 4; i++)
		v[i].home = package(&t, i < 2 ? '0' : '1');
	for (const char *c = owns[_i].lists; *c; c++)
		n += *c == ';';
	for (size_t r = 0; fixed && r < n; r++) {
		masks[r] = cpuset_new(t.allowed.nwords);
		ck_assert(cpuset_parse(&masks[r], owns[_i].masks[r]));
	}
	ck_assert(step_gpu_lists(may, n, owns[_i].lists, numbers, 4));
	place_fit(gpu, &t, &g, n, fixed ? masks : NULL, may);
	for (size_t r = 0; r < n; r++) {
		ck_assert(gpu[r] < 0 || may[r * 4 + (size_t)gpu[r]]);
		if (n < 4)
			ck_assert_int_eq(gpu[r], owns[_i].want[r]);
		else
			used[gpu[r]]++;
	}
	if (n == 4) /* evenly */
		ck_assert(used[0] == 2 && used[1] == 2);
	for (size_t r = 0; r < n; r++)
		cpuset_free(&masks[r]);
	topo_free(&t);
}
END_TEST

static const char *const not_lists[] = { "",     "0",    "0;1;2", "0;",   ";0",
					 "0,;1", "0;1,", "0;x",   "0 ;1", "0;-1" };

START_TEST(no_gpu_lists)
{
	static const int numbers[] = { 0, 1 };
	bool may[4];

	ck_assert(!step_gpu_lists(may, 2, not_lists[_i], numbers, 2));
}
END_TEST

/* Ranks with the same mask share its cores. */
START_TEST(parts_of_masks)
{
	static const char *const lists[] = { "0-3", "0-3", "4-7", "7", "0-7" };
	static const uint32_t want[] = { 1, 1, 1, 1, 3 };
	struct cpuset masks[5];
	struct gpus g = { 0 };
	struct placement p;
	struct topo t;

	load(&t, "pack:2 core:4 pu:1");
	for (size_t i = 0; i < 5; i++) {
		masks[i] = cpuset_new(t.allowed.nwords);
		ck_assert(cpuset_parse(&masks[i], lists[i]));
	}
	place_fixed(&p, &t, &g, 5, masks, NULL);
	for (size_t i = 0; i < 5; i++)
		ck_assert_uint_eq(p.v[i].ncores, want[i]);
	placement_free(&p);
	place_fixed(&p, &t, &g, 2, masks, NULL);
	ck_assert_uint_eq(p.v[0].ncores, 2);
	ck_assert_uint_eq(p.v[1].ncores, 2);
	placement_free(&p);
	place_fixed(&p, &t, &g, 1, masks, NULL);
	ck_assert_uint_eq(p.v[0].ncores, 4);
	placement_free(&p);
	for (size_t i = 0; i < 5; i++)
		cpuset_free(&masks[i]);
	topo_free(&t);
}
END_TEST

/* ---- the cores of a step ---- */

START_TEST(restricted)
{
	struct cpuset two = cpuset_new(1);
	struct topo t;

	load(&t, "pack:2 core:4 pu:2");
	ck_assert(cpuset_parse(&two, "2-3,9"));
	topo_restrict(&t, &two);
	ck_assert_uint_eq(t.ncore, 2);
	ck_assert_uint_eq(t.npu, 3);
	ck_assert_uint_eq(t.core[0].npu, 2);
	ck_assert_uint_eq(t.core[1].npu, 1);
	ck_assert_uint_eq(t.core[1].pu[0], 9);
	ck_assert_uint_eq(t.node[0].ncores, 2);
	ck_assert_uint_eq(t.node[package(&t, '0')].ncores, 1);
	ck_assert_uint_eq(t.node[package(&t, '1')].first_core, 1);
	topo_free(&t);
	cpuset_free(&two);
}
END_TEST

#define LEN(a) ((int)(sizeof(a) / sizeof *(a)))

int main(void)
{
	Suite *s = suite_create("step");
	TCase *c = tcase_create("step");
	SRunner *r;
	int failed;

	unsetenv("HWLOC_XMLFILE");
	tcase_add_test(c, whole_request);
	tcase_add_test(c, only_options);
	tcase_add_loop_test(c, no_request, 0, LEN(not_requests));
	tcase_add_test(c, all_words);
	tcase_add_loop_test(c, no_word, 0, LEN(not_words));
	tcase_add_loop_test(c, first_host, 0, LEN(hosts));
	tcase_add_loop_test(c, hosts_are_counted, 0, LEN(counts));
	tcase_add_test(c, het_job);
	tcase_add_loop_test(c, cross, 0, LEN(crosses));
	tcase_add_loop_test(c, masks_of_cpu_bind, 0, LEN(binds));
	tcase_add_test(c, ports);
	tcase_add_loop_test(c, gpus_fit_masks, 0, LEN(fits));
	tcase_add_loop_test(c, own_gpus, 0, LEN(owns));
	tcase_add_loop_test(c, no_gpu_lists, 0, LEN(not_lists));
	tcase_add_test(c, parts_of_masks);
	tcase_add_test(c, restricted);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
