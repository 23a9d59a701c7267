/* launcher/job/plan_print: the lines of --plan, of jobs that are made by hand. */
#include <check.h>

#include "launcher/job/plan_print.h"

#define GPU_WHY(n, core)                                                               \
	"GPU " #n " (0000:1" #n ":00.0 NVIDIA H100 80GB HBM3) by PCI order; its home " \
	"is L3Cache#1; " core "; Package#0 also serves local ranks 1-3"

/* A berth of one local rank. */
struct made {
	const char *gpu, *cpus, *numa, *why;
};

static const struct made near[] = {
	{ "0000:10:00.0", "0-5", "0", GPU_WHY(0, "6 of 6 cores there") },
	{ "0000:11:00.0", "6-11", "0",
	  GPU_WHY(1, "6 of 6 cores, 2 there and 4 in the rest of Package#0") },
};
static const struct made other[] = {
	{ "0000:10:00.0", "0,8,16,24,32,40,48,56,64,72,80,88", "0",
	  "GPU 0 (0000:10:00.0) by PCI order, shared with local rank 1; its home is "
	  "Package#0; 6 of 6 cores there" },
	{ "", "6-11", "0-1", "no GPU; 6 of 12 cores, an even share, in Package#1" },
};
static const struct made words[] = {
	{ "", "0", "", "no GPU; not bound, as --bind-to none says" },
	{ "", "1", "", "a reason of a form that this runner does not know at all" },
};

/* A job with two ranks on each of N hosts, "n1" on; MADE says of each host its berths,
 * and ranks[2 * host + local] its ranks. */
static struct job make_job(size_t n, const struct made *const *made,
			   const uint32_t *ranks)
{
	struct job j = { .phase = JOB_PLACE };

	j.agents.n = n;
	j.agents.host = xcalloc(n, sizeof *j.agents.host);
	j.run = xcalloc(n, sizeof *j.run);
	j.rank = xcalloc(2 * n, sizeof *j.rank);
	j.plan = (struct plan){ .np = (uint32_t)(2 * n),
				.nhosts = (uint32_t)n,
				.nodes = (uint32_t)n };
	j.plan.rank = xcalloc(2 * n, sizeof *j.plan.rank);
	j.plan.node = xcalloc(n, sizeof *j.plan.node);
	j.plan.local_size = xcalloc(n, sizeof *j.plan.local_size);
	j.plan.ranks = xcalloc(n, sizeof *j.plan.ranks);
	for (uint32_t i = 0; i < n; i++) {
		j.agents.host[i].name = xasprintf("n%u", i + 1);
		j.plan.node[i] = i;
		j.plan.local_size[i] = 2;
		j.plan.ranks[i] = xcalloc(2, sizeof **j.plan.ranks);
		j.run[i].idle = xstrdup(made[i] == near ? "12-95" : "");
		j.run[i].certificate = xstrdup(
			made[i] == near
				? "0 cores outside their GPU's socket, 4 outside its "
				  "home: the least possible for these shares"
				: "");
		for (uint32_t k = 0; k < 2; k++) {
			struct rank *r = &j.rank[ranks[2 * i + k]];

			j.plan.ranks[i][k] = ranks[2 * i + k];
			j.plan.rank[ranks[2 * i + k]].host = i;
			r->gpu = xstrdup(made[i][k].gpu);
			r->gpu_index = k;
			r->cpus = xstrdup(made[i][k].cpus);
			r->numa = xstrdup(made[i][k].numa);
			r->why = xstrdup(made[i][k].why);
		}
	}
	return j;
}

static void free_job(struct job *j)
{
	for (uint32_t i = 0; i < j->plan.np; i++) {
		free(j->rank[i].gpu);
		free(j->rank[i].cpus);
		free(j->rank[i].numa);
		free(j->rank[i].why);
	}
	for (size_t i = 0; i < j->agents.n; i++) {
		free(j->agents.host[i].name);
		free(j->plan.ranks[i]);
		free(j->run[i].idle);
		free(j->run[i].certificate);
	}
	free(j->agents.host);
	free(j->run);
	free(j->rank);
	free(j->plan.rank);
	free(j->plan.node);
	free(j->plan.local_size);
	free(j->plan.ranks);
}

static const struct {
	size_t columns, n;
	const struct made *made[4];
	uint32_t ranks[8];
	const char *text;
} plans[] = {
	/* one host: long reasons are cut, long lines are broken */
	{ 80,
	  1,
	  { near },
	  { 0, 1 },
	  "plan: 2 ranks on 1 host\n"
	  "n1: 2 ranks\n"
	  "rank  local  GPU             cpus  numa  why\n"
	  "   0      0  0 0000:10:00.0  0-5   0     6 of 6 cores in L3Cache#1\n"
	  "   1      1  1 0000:11:00.0  6-11  0     6 of 6 cores, 2 in L3Cache#1 and 4 "
	  "i...\n"
	  "0 cores outside their GPU's socket, 4 outside its home: the least possible "
	  "for\n"
	  "    these shares\n"
	  "cpus that no rank got: 12-95\n"
	  "gpu-visible: auto\n" },
	/* equal hosts, filled one after the other, and dealt out to */
	{ 80,
	  3,
	  { words, words, words },
	  { 0, 1, 2, 3, 4, 5 },
	  "plan: 6 ranks on 3 hosts\n"
	  "n[1-3]: 2 ranks each, shown for n1; 2 higher on each host after it\n"
	  "rank  local  GPU  cpus  numa  why\n"
	  "   0      0  -    0     -     not bound\n"
	  "   1      1  -    1     -     a reason of a form that this runner does not "
	  "kn...\n" },
	{ 60,
	  3,
	  { words, words, words },
	  { 0, 3, 1, 4, 2, 5 },
	  "plan: 6 ranks on 3 hosts\n"
	  "n[1-3]: 2 ranks each, shown for n1; 1 higher on each host\n"
	  "    after it\n"
	  "rank  local  GPU  cpus  numa  why\n"
	  "   0      0  -    0     -     not bound\n"
	  "   3      1  -    1     -     a reason of a form that thi...\n" },
	/* other berths, and ranks that do not rise alike, have a table of their own */
	{ 80,
	  4,
	  { words, other, words, words },
	  { 0, 1, 2, 3, 4, 5, 7, 6 },
	  "plan: 8 ranks on 4 hosts\n"
	  "n[1,3]: 2 ranks each, shown for n1; 4 higher on each host after it\n"
	  "rank  local  GPU  cpus  numa  why\n"
	  "   0      0  -    0     -     not bound\n"
	  "   1      1  -    1     -     a reason of a form that this runner does not "
	  "kn...\n"
	  "n2: 2 ranks\n"
	  "rank  local  GPU             cpus                            numa  why\n"
	  "   2      0  0 0000:10:00.0  0,8,16,24,32,40,48,56,64,72...  0     6 of 6 "
	  "cor...\n"
	  "   3      1  -               6-11                            0-1   6 of 12 "
	  "co...\n"
	  "n4: 2 ranks\n"
	  "rank  local  GPU  cpus  numa  why\n"
	  "   7      0  -    0     -     not bound\n"
	  "   6      1  -    1     -     a reason of a form that this runner does not "
	  "kn...\n"
	  "gpu-visible: auto\n" },
	/* -v: all */
	{ 0,
	  1,
	  { other },
	  { 0, 1 },
	  "plan: 2 ranks on 1 host\n"
	  "n1: 2 ranks\n"
	  "rank  local  GPU             cpus                               numa  why\n"
	  "   0      0  0 0000:10:00.0  0,8,16,24,32,40,48,56,64,72,80,88  0     GPU 0 "
	  "(0000:10:00.0) by PCI order, shared with local rank 1; its home is "
	  "Package#0; 6 of 6 cores there\n"
	  "   1      1  -               6-11                               0-1   no "
	  "GPU; 6 of 12 cores, an even share, in Package#1\n"
	  "gpu-visible: auto\n" },
	{ 100,
	  1,
	  { other },
	  { 0, 1 },
	  "plan: 2 ranks on 1 host\n"
	  "n1: 2 ranks\n"
	  "rank  local  GPU             cpus                            numa  why\n"
	  "   0      0  0 0000:10:00.0  0,8,16,24,32,40,48,56,64,72...  0     6 of 6 "
	  "cores in Package#0\n"
	  "   1      1  -               6-11                            0-1   6 of 12 "
	  "cores in Package#1\n"
	  "gpu-visible: auto\n" },
	{ 140,
	  1,
	  { other },
	  { 0, 1 },
	  "plan: 2 ranks on 1 host\n"
	  "n1: 2 ranks\n"
	  "rank  local  GPU             cpus                            numa  why\n"
	  "   0      0  0 0000:10:00.0  0,8,16,24,32,40,48,56,64,72...  0     6 of 6 "
	  "cores in Package#0; GPU shared with local rank 1\n"
	  "   1      1  -               6-11                            0-1   6 of 12 "
	  "cores in Package#1\n"
	  "gpu-visible: auto\n" },
};

START_TEST(lines)
{
	struct job j = make_job(plans[_i].n, plans[_i].made, plans[_i].ranks);
	struct str out = { 0 };

	plan_print_text(&out, &j, plans[_i].columns);
	ck_assert_str_eq(str_text(&out), plans[_i].text);
	for (const char *p = str_text(&out); plans[_i].columns && *p;) {
		size_t n = strcspn(p, "\n");

		ck_assert_uint_le(n, plans[_i].columns);
		p += n + 1;
	}
	str_free(&out);
	free_job(&j);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("plan_print");
	TCase *c = tcase_create("plan_print");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, lines, 0, (int)(sizeof plans / sizeof *plans));
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
