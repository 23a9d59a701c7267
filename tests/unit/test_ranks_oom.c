/* oom.h on trees of /proc and /sys as kernels write them. */
#include <check.h>
#include <ftw.h>
#include <sys/stat.h>

#include "agent/ranks/oom.h"
#include "common/str.h"

static char root[] = "/tmp/test_oom.XXXXXX";

static void write_file(const char *path, const char *text)
{
	char *full = xasprintf("%s/%s", root, path);
	FILE *f;

	for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		mkdir(full, 0700);
	}
	f = fopen(full, "w");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
	free(full);
}

static const struct {
	const char *cgroup, *file, *before, *after;
} trees[] = {
	{ "0::/user.slice/a\n", "sys/fs/cgroup/user.slice/a/memory.events",
	  "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n",
	  "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n" },
	/* a container: its cgroup is the root of the mount */
	{ "0::/../../b\n", "sys/fs/cgroup/memory.events", "oom 0\noom_kill 0\n",
	  "oom 0\noom_kill 1\n" },
	{ "5:cpu:/x\n4:memory:/job/7\n0::/\n",
	  "sys/fs/cgroup/memory/job/7/memory.oom_control",
	  "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
	  "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n" },
	{ "0::/hybrid\n", "sys/fs/cgroup/unified/hybrid/memory.events", "oom_kill 0\n",
	  "oom_kill 1\n" },
	/* the root cgroup counts nothing, the machine does */
	{ "0::/\n", "proc/vmstat", "pgfault 5\noom_kill 7\nnr 1\n",
	  "pgfault 5\noom_kill 8\nnr 1\n" },
	{ "", "proc/vmstat", "oom_kill 7\n", "oom_kill 8\n" },
};

START_TEST(counters)
{
	struct oom o;
	char *rm;

	ck_assert_ptr_nonnull(mkdtemp(root));
	write_file("proc/self/cgroup", trees[_i].cgroup);
	write_file(trees[_i].file, trees[_i].before);
	oom_begin(&o, root);
	ck_assert(!oom_risen(&o));
	write_file(trees[_i].file, trees[_i].after);
	ck_assert(oom_risen(&o));
	ck_assert(!oom_risen(&o)); /* told once */
	rm = xasprintf("%s/%s", root, trees[_i].file);
	ck_assert_int_eq(remove(rm), 0);
	ck_assert(!oom_risen(&o)); /* a counter that went away */
	free(rm);
}
END_TEST

static const struct {
	const char *cgroup, *file, *limits[3][2], *why;
} limits[] = {
	{ "0::/a/b\n",
	  "sys/fs/cgroup/a/b/memory.events",
	  { { "sys/fs/cgroup/a/b/memory.max", "max\n" },
	    { "sys/fs/cgroup/a/memory.max", "67108864\n" } },
	  "over the memory limit of 64 MiB of cgroup '/a'" },
	{ "0::/a/b\n",
	  "sys/fs/cgroup/a/b/memory.events",
	  { { "sys/fs/cgroup/a/b/memory.max", "33554432\n" },
	    { "sys/fs/cgroup/a/memory.max", "67108864\n" } },
	  "over the memory limit of 32 MiB of cgroup '/a/b'" },
	{ "4:memory:/job/7\n",
	  "sys/fs/cgroup/memory/job/7/memory.oom_control",
	  { { "sys/fs/cgroup/memory/job/7/memory.limit_in_bytes", "1048576000\n" },
	    { "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n" } },
	  "over the memory limit of 1000 MiB of cgroup '/job/7'" },
	/* a container: its own cgroup is the root of the mount */
	{ "4:memory:/../x\n",
	  "sys/fs/cgroup/memory/memory.oom_control",
	  { { "sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n" } },
	  "over the memory limit of 1 MiB of cgroup '/'" },
	{ "0::/a\n",
	  "sys/fs/cgroup/a/memory.events",
	  { { "sys/fs/cgroup/a/memory.max", "max\n" } },
	  "out of memory" },
	{ "0::/\n", "proc/vmstat", { { 0 } }, "out of memory" },
};

START_TEST(the_limit_is_named)
{
	struct str why = { 0 };
	struct oom o;

	ck_assert_ptr_nonnull(mkdtemp(root));
	write_file("proc/self/cgroup", limits[_i].cgroup);
	write_file(limits[_i].file, "oom_kill 0\n");
	for (int k = 0; k < 3 && limits[_i].limits[k][0]; k++)
		write_file(limits[_i].limits[k][0], limits[_i].limits[k][1]);
	oom_begin(&o, root);
	oom_why(&o, &why);
	ck_assert_str_eq(str_text(&why), limits[_i].why);
	str_free(&why);
}
END_TEST

START_TEST(two_kills_for_two_ranks)
{
	struct oom o;

	ck_assert_ptr_nonnull(mkdtemp(root));
	write_file("proc/self/cgroup", "0::/a\n");
	write_file("sys/fs/cgroup/a/memory.events", "oom_kill 0\n");
	oom_begin(&o, root);
	write_file("sys/fs/cgroup/a/memory.events", "oom_kill 2\n");
	ck_assert(oom_risen(&o));
	ck_assert(oom_risen(&o));
	ck_assert(!oom_risen(&o));
}
END_TEST

START_TEST(no_counter_at_all)
{
	struct oom o;

	oom_begin(&o, "/no/such/root");
	ck_assert(!oom_risen(&o));
	oom_begin(&o, ""); /* this machine's own: whatever it has is readable */
	ck_assert(!oom_risen(&o));
}
END_TEST

/* A fresh folder for each test; what it wrote goes with it. */
static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static void clear(void)
{
	nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	memcpy(root + strlen(root) - 6, "XXXXXX", 6);
}

int main(void)
{
	Suite *s = suite_create("oom");
	TCase *t = tcase_create("oom");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, NULL, clear);
	tcase_add_loop_test(t, counters, 0, sizeof trees / sizeof *trees);
	tcase_add_loop_test(t, the_limit_is_named, 0, sizeof limits / sizeof *limits);
	tcase_add_test(t, two_kills_for_two_ranks);
	tcase_add_test(t, no_counter_at_all);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
