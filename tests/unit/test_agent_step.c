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
	struct gpus g = { v, strlen(homes), { 0 } };
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
	place_fixed(&p, &t, &g, n, masks);
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
	tcase_add_test(c, restricted);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
