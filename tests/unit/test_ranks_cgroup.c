/* cgroup.h: where an agent may make one. */
#include <check.h>

#include "agent/ranks/cgroup.h"

#define V1_MOUNTS                                                                      \
	"25 30 0:23 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"                   \
	"26 25 0:24 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n"         \
	"27 25 0:25 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"  \
	"28 25 0:26 / /sys/fs/cgroup/freezer rw shared:9 - cgroup cgroup rw,freezer\n"

static const struct {
	const char *own, *mounts, *v1, *v2; /* NULL: none */
} places[] = {
	{ "0::/user.slice/user-7.slice/session-1.scope\n",
	  "30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n", NULL,
	  "/sys/fs/cgroup/user.slice/user-7.slice/session-1.scope" },
	{ "5:freezer:/slurm/uid_7\n4:cpu,cpuacct:/x\n0::/a\n", V1_MOUNTS,
	  "/sys/fs/cgroup/freezer/slurm/uid_7", "/sys/fs/cgroup/unified/a" },
	/* several controllers in one hierarchy */
	{ "5:cpu,freezer:/b\n", "1 2 0:3 / /cg rw - cgroup x rw,cpu,freezer\n", "/cg/b",
	  NULL },
	{ "5:freezers:/b\n", "1 2 0:3 / /cg rw - cgroup x rw,freezers\n", NULL, NULL },
	/* all of a container is in its cgroup, which is the root of the mount */
	{ "0::/\n", "1 2 0:3 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n", NULL,
	  "/sys/fs/cgroup" },
	{ "0::/docker/1f\n", "1 2 0:3 /docker/1f /sys/fs/cgroup ro - cgroup2 c rw\n",
	  NULL, "/sys/fs/cgroup" },
	{ "0::/docker/1f/in\n", "1 2 0:3 /docker/1f /c ro - cgroup2 c rw\n", NULL,
	  "/c/in" },
	/* the mount is of another part of the tree: a child there would escape
	 * limits */
	{ "0::/docker/1f\n", "1 2 0:3 /docker/1 /c ro - cgroup2 c rw\n", NULL, NULL },
	{ "0::/\n", "1 2 0:3 /.. /c ro - cgroup2 c rw\n", NULL, NULL },
	{ "0::/../b\n", "1 2 0:3 /.. /c ro - cgroup2 c rw\n", NULL, "/c/b" },
	/* the later mount covers the earlier one */
	{ "0::/b\n", "1 2 0:3 / /c rw - cgroup2 c rw\n1 2 0:3 / /d rw - cgroup2 c rw\n",
	  NULL, "/d/b" },
	{ "0::/b\n", "1 2 0:3 / /a\\040b rw - cgroup2 c rw\n", NULL, NULL },
	{ "0::/b", "1 2 0:3 / /c rw - cgroup2 c rw", NULL, "/c/b" },
	{ "", V1_MOUNTS, NULL, NULL },
	{ "0::/b\n", "", NULL, NULL },
	{ "0:\n0\n:\n", "1 2\n - \n - cgroup2\n", NULL, NULL },
};

static void check(int i, bool v2, const char *wanted)
{
	char out[64];
	bool found = cgroup_find(out, sizeof out, v2, places[i].own, places[i].mounts);

	ck_assert_msg(found == (wanted != NULL), "%s", found ? out : "nothing");
	if (found)
		ck_assert_str_eq(out, wanted);
}

START_TEST(own_folder)
{
	check(_i, false, places[_i].v1);
	check(_i, true, places[_i].v2);
}
END_TEST

START_TEST(too_long)
{
	const char *mounts = "1 2 0:3 / /c rw - cgroup2 c rw\n";
	char out[8];

	ck_assert(cgroup_find(out, sizeof out, true, "0::/12345\n", "1 2 0:3 / / x") ==
		  false);
	ck_assert(cgroup_find(out, sizeof out, true, "0::/1234\n", mounts));
	ck_assert_str_eq(out, "/c/1234");
	ck_assert(!cgroup_find(out, sizeof out, true, "0::/12345\n", mounts));
}
END_TEST

/* A job id of a hostile launcher names no folder. */
START_TEST(odd_job_ids)
{
	static const char *const odd[] = { "", "..", "a/b", "../x", "a\nb", "*" };
	struct cgroup c = { .parent = "/tmp" };

	for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
		if (strcmp(odd[i], "..") != 0) {
			cgroup_make(&c, odd[i], 1);
			ck_assert(!c.made);
		}
		ck_assert_int_eq(cgroup_sweep(odd[i], NULL, NULL), -1);
	}
}
END_TEST

/* All calls do nothing without one. */
START_TEST(none)
{
	struct cgroup c = { 0 };
	const struct cgroup_use use = cgroup_used(&c);

	cgroup_locate(NULL);
	cgroup_make(NULL, "x", 1);
	cgroup_make(&c, "x", 1);
	ck_assert(!c.made);
	ck_assert_int_eq(cgroup_open(&c).fd, -1);
	ck_assert_int_eq(cgroup_watch(&c), -1);
	ck_assert(!cgroup_populated(&c) && !cgroup_populated(NULL));
	ck_assert_uint_eq(use.cpu_us | use.peak_bytes, 0);
	cgroup_kill(&c);
	cgroup_kill(NULL);
	cgroup_drop(&c);
	cgroup_remove(&c, 0);
	cgroup_remove(NULL, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ranks_cgroup");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, own_folder, 0, sizeof places / sizeof *places);
	tcase_add_test(t, too_long);
	tcase_add_test(t, odd_job_ids);
	tcase_add_test(t, none);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
