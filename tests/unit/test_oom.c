/* oom.h on trees of /proc and /sys as kernels write them. */
#include <check.h>
#include <sys/stat.h>

#include "agent/oom.h"
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
static void clear(void)
{
	static const char *const files[] = {
		"proc/self/cgroup",
		"proc/vmstat",
		"proc/self",
		"proc",
		"sys/fs/cgroup/memory.events",
		"sys/fs/cgroup/user.slice/a/memory.events",
		"sys/fs/cgroup/user.slice/a",
		"sys/fs/cgroup/user.slice",
		"sys/fs/cgroup/memory/job/7/memory.oom_control",
		"sys/fs/cgroup/memory/job/7",
		"sys/fs/cgroup/memory/job",
		"sys/fs/cgroup/memory",
		"sys/fs/cgroup/unified/hybrid/memory.events",
		"sys/fs/cgroup/unified/hybrid",
		"sys/fs/cgroup/unified",
		"sys/fs/cgroup/a/memory.events",
		"sys/fs/cgroup/a",
		"sys/fs/cgroup",
		"sys/fs",
		"sys"
	};

	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		char *path = xasprintf("%s/%s", root, files[i]);

		remove(path);
		free(path);
	}
	remove(root);
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
	tcase_add_test(t, two_kills_for_two_ranks);
	tcase_add_test(t, no_counter_at_all);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
