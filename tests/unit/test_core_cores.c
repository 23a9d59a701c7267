/* lib/core/cores: quotas of CPU time, of one cgroup and of those above it. */
#include <check.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/core/cores.h"

#define NONE CORES_NO_QUOTA

static const struct {
	const char *text;
	uint64_t quota;
} v2_texts[] = {
	{ "max 100000\n", NONE },
	{ "100000 100000\n", 1000 },
	{ "150000 100000\n", 1500 },
	{ "150000 100000", 1500 },
	{ "1000 1000000\n", 1 },
	{ "100001 100000\n", 1001 },
	{ "6400000 100000\n", 64000 },
	/* none that the kernel writes */
	{ "", NONE },
	{ "\n", NONE },
	{ "100000", NONE },
	{ "100000 ", NONE },
	{ "100000 0\n", NONE },
	{ "0 100000\n", NONE },
	{ "-1 100000\n", NONE },
	{ " 100000 100000\n", NONE },
	{ "100000  100000\n", NONE },
	{ "100000 100000 x\n", NONE },
	{ "100000x 100000\n", NONE },
	{ "100000.5 100000\n", NONE },
	{ "999999999999999 1\n", 999999999999999000 },
	{ "1000000000000000 1\n", NONE },
	{ "99999999999999999999999999999999999999999999999999 100000\n", NONE },
};

START_TEST(cpu_max)
{
	ck_assert_msg(cores_quota(v2_texts[_i].text) == v2_texts[_i].quota,
		      "'%s': %llu", v2_texts[_i].text,
		      (unsigned long long)cores_quota(v2_texts[_i].text));
}
END_TEST

START_TEST(cfs_quota)
{
	ck_assert(cores_quota_v1("-1\n", "100000\n") == NONE);
	ck_assert(cores_quota_v1("50000\n", "100000\n") == 500);
	ck_assert(cores_quota_v1("250000", "100000") == 2500);
	ck_assert(cores_quota_v1("50000\n", "") == NONE);
	ck_assert(cores_quota_v1("", "100000\n") == NONE);
	ck_assert(cores_quota_v1("50000 100000\n", "100000\n") == NONE);
	ck_assert(cores_quota_v1("50000\n", "0\n") == NONE);
}
END_TEST

#define V1_MOUNTS                                                                      \
	"25 30 0:23 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"                   \
	"27 25 0:25 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"  \
	"28 25 0:26 / /sys/fs/cgroup/cpuset rw shared:9 - cgroup cgroup rw,cpuset\n"

static const struct {
	const char *own, *mounts, *v2, *v1; /* "MOUNT|rest"; NULL: none */
} places[] = {
	{ "0::/a/b\n", "30 1 0:26 / /cg rw shared:4 - cgroup2 cgroup2 rw\n", "/cg|/a/b",
	  NULL },
	{ "5:cpuset:/x\n4:cpu,cpuacct:/y\n", V1_MOUNTS, NULL,
	  "/sys/fs/cgroup/cpu,cpuacct|/y" },
	{ "5:cpuset:/x\n", V1_MOUNTS, NULL, NULL },
	/* in a container, which is the root of its mount */
	{ "0::/\n", "1 2 0:3 / /cg ro - cgroup2 c rw\n", "/cg|", NULL },
	{ "0::/docker/1f/in\n", "1 2 0:3 /docker/1f /cg ro - cgroup2 c rw\n", "/cg|/in",
	  NULL },
	/* a part of the tree that is not mounted */
	{ "0::/docker/1f\n", "1 2 0:3 /docker/1 /cg ro - cgroup2 c rw\n", NULL, NULL },
	{ "0::/b\n", "1 2 0:3 / /c rw - cgroup2 c rw\n1 2 0:3 / /d rw - cgroup2 c rw\n",
	  "/d|/b", NULL },
	{ "0::/b\n", "1 2 0:3 / /a\\040b rw - cgroup2 c rw\n", NULL, NULL },
	{ "0::\n", "1 2 0:3 / /c rw - cgroup2 c rw\n", NULL, NULL },
	{ "0:\n0\n:\n", "1 2\n - \n - cgroup2\n", NULL, NULL },
	{ "", V1_MOUNTS, NULL, NULL },
	{ "0::/b\n", "", NULL, NULL },
};

static void check_place(int i, bool v2, const char *wanted)
{
	struct cores_cgroup c;
	bool found = cores_find(&c, v2, places[i].own, places[i].mounts);
	char got[520];

	ck_assert_msg(found == (wanted != NULL), "%s", found ? c.path : "nothing");
	if (!found)
		return;
	snprintf(got, sizeof got, "%.*s|%s", (int)c.mount, c.path, c.path + c.mount);
	ck_assert_str_eq(got, wanted);
}

START_TEST(places_of)
{
	check_place(_i, true, places[_i].v2);
	check_place(_i, false, places[_i].v1);
}
END_TEST

START_TEST(long_texts)
{
	static char own[70000], mounts[70000];
	struct cores_cgroup c;
	size_t n = (size_t)snprintf(own, sizeof own, "0::/");

	memset(own + n, 'a', sizeof own - n - 1);
	ck_assert(!cores_find(&c, true, own, "1 2 0:3 / /c rw - cgroup2 c rw\n"));
	own[n + 506] = '\0';
	ck_assert(cores_find(&c, true, own, "1 2 0:3 / /c rw - cgroup2 c rw\n"));
	ck_assert(!cores_find(&c, true, own, "1 2 0:3 / /long rw - cgroup2 c rw\n"));
	n = (size_t)snprintf(mounts, sizeof mounts, "1 2 0:3 / /");
	memset(mounts + n, 'b', sizeof mounts - n - 1);
	ck_assert(!cores_find(&c, true, "0::/a", mounts));
	/* the line behind it counts */
	snprintf(mounts + 60000, 200, " - cgroup2 c rw\n1 2 0:3 / /c rw - cgroup2 c\n");
	ck_assert(cores_find(&c, true, "0::/a", mounts));
	ck_assert_str_eq(c.path, "/c/a");
}
END_TEST

/* ---- trees ---- */

static char root[64], mounts[256];

static void put(const char *cgroup, const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof path, "%s%s", root, cgroup);
	mkdir(path, 0755);
	snprintf(path, sizeof path, "%s%s/%s", root, cgroup, name);
	f = fopen(path, "w");
	ck_assert(f && fputs(text, f) >= 0 && !fclose(f));
}

static void plant(void)
{
	snprintf(root, sizeof root, "/tmp/test_core_cores.XXXXXX");
	ck_assert(mkdtemp(root) != NULL);
	snprintf(mounts, sizeof mounts,
		 "1 2 0:3 / %s rw - cgroup2 c rw\n1 2 0:4 / %s rw - cgroup c rw,cpu\n",
		 root, root);
	put("/pod", "cpu.max", "400000 100000\n");
	put("/pod/all", "cpu.max", "max 100000\n");
	put("/pod/all/one", "cpu.max", "150000 100000\n");
	put("/pod/all/two", "cpu.max", "50000 100000\n");
	put("/pod/all/big", "cpu.max", "900000 100000\n");
	put("/pod/allone", "cpu.max", "100000 100000\n");
	put("/free", "cpu.max", "max 100000\n");
	put("/old", "cpu.cfs_quota_us", "250000\n");
	put("/old", "cpu.cfs_period_us", "100000\n");
	put("/old/in", "cpu.cfs_quota_us", "-1\n");
	put("/old/in", "cpu.cfs_period_us", "100000\n");
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

static void uproot(void)
{
	ck_assert(!nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS));
}

/* Of ranks in these cgroups, the first of which is this process's; "-": not known. */
static uint64_t quota(const char *a, const char *b, const char *c)
{
	const char *const at[] = { a, b, c };
	char text[3][128], *own[3];
	size_t n = 0;

	for (; n < 3 && at[n]; n++) {
		snprintf(text[n], sizeof text[n], "0::%s\n", at[n]);
		own[n] = strcmp(at[n], "-") ? text[n] : NULL;
	}
	return cores_quota_of(true, own, n, mounts);
}

START_TEST(levels)
{
	ck_assert_uint_eq(quota("/pod", NULL, NULL), 4000);
	ck_assert_uint_eq(quota("/pod/all", NULL, NULL), 4000);
	ck_assert_uint_eq(quota("/pod/all/one", NULL, NULL), 1500);
	ck_assert_uint_eq(quota("/pod/all/big", NULL, NULL), 4000);
	ck_assert_uint_eq(quota("/pod/all/big/deep/down", NULL, NULL), 4000);
	ck_assert(quota("/free", NULL, NULL) == NONE);
	ck_assert(quota("/not/there", NULL, NULL) == NONE);
	ck_assert(quota("/", NULL, NULL) == NONE);
	/* that of all */
	put("", "cpu.max", "300000 100000\n");
	ck_assert_uint_eq(quota("/pod/all/big", NULL, NULL), 3000);
	ck_assert_uint_eq(quota("/free", NULL, NULL), 3000);
	ck_assert_uint_eq(quota("/", NULL, NULL), 3000);
}
END_TEST

START_TEST(ranks_together)
{
	/* one cgroup, one quota */
	ck_assert_uint_eq(quota("/pod/all/one", "/pod/all/one", "/pod/all/one"), 1500);
	ck_assert_uint_eq(quota("/pod/all/one", "-", "-"), 1500);
	/* each its own, and what is above them */
	ck_assert_uint_eq(quota("/pod/all/one", "/pod/all/two", NULL), 2000);
	ck_assert_uint_eq(quota("/pod/all/one", "/pod/all/two", "/pod/all/two"), 2000);
	ck_assert_uint_eq(quota("/pod/all/one", "/pod/all/big", NULL), 4000);
	/* a name that begins like another */
	ck_assert_uint_eq(quota("/pod/all/one", "/pod/allone", NULL), 2500);
	/* a rank above the other */
	ck_assert_uint_eq(quota("/pod/all/one", "/pod/all", NULL), 4000);
	ck_assert_uint_eq(quota("/pod/all", "/pod/all/one", NULL), 4000);
	/* one is free */
	ck_assert(quota("/pod/all/one", "/free", NULL) == NONE);
}
END_TEST

START_TEST(version_1)
{
	char text[] = "4:cpu,cpuacct:/old/in\n0::/pod\n", *own = text;

	ck_assert_uint_eq(cores_quota_of(false, &own, 1, mounts), 2500);
	ck_assert_uint_eq(cores_quota_of(true, &own, 1, mounts), 4000);
}
END_TEST

START_TEST(this_process)
{
	const uint32_t pid[2] = { (uint32_t)getpid(), 0 };
	bool quota;
	const unsigned cores = cores_of_ranks(pid, 2, &quota);

	ck_assert_uint_ge(cores, 1);
	ck_assert_uint_le(cores, (unsigned)sysconf(_SC_NPROCESSORS_ONLN));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cores");
	TCase *t = tcase_create("texts"), *trees = tcase_create("trees");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_loop_test(t, cpu_max, 0, sizeof v2_texts / sizeof *v2_texts);
	tcase_add_test(t, cfs_quota);
	tcase_add_loop_test(t, places_of, 0, sizeof places / sizeof *places);
	tcase_add_test(t, long_texts);
	tcase_add_test(t, this_process);
	suite_add_tcase(s, trees);
	tcase_add_checked_fixture(trees, plant, uproot);
	tcase_add_test(trees, levels);
	tcase_add_test(trees, ranks_together);
	tcase_add_test(trees, version_1);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
