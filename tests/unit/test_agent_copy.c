/* copy.h: which programs are copies; their time stays fresh, and srun's are removed. */
#include <check.h>
#include <event2/event.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/copy.h"
#include "common/str.h"

#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static char dir[] = "/tmp/berth-copy.XXXXXX";
static struct event_base *base;

static void age(const char *path)
{
	const struct timespec old[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };

	ck_assert_int_eq(utimensat(AT_FDCWD, path, old, 0), 0);
}

static bool is_fresh(const char *path)
{
	struct stat st;

	ck_assert_int_eq(stat(path, &st), 0);
	return st.st_mtime > 1;
}

/* A program NAME, long not run, and a link "exe" to it as in /proc. */
static char *make(const char *name)
{
	char *path = xasprintf("%s/%s", dir, name);

	close(open(path, O_CREAT | O_WRONLY, 0700));
	age(path);
	unlink("exe");
	ck_assert_int_eq(symlink(path, "exe"), 0);
	return path;
}

static const struct name_case {
	const char *name;
	bool copy;
} names[] = {
	{ "agent-" SHA, true },         { "berth-agent", false },
	{ "agent-" SHA "0", false },    { "agent-0123", false },
	{ "agent-" SHA "-old", false }, { "new-agent-" SHA, false },
	{ "agent-x" SHA, false },
};

START_TEST(only_a_copy_is_touched)
{
	char *path = make(names[_i].name);
	struct event *e = copy_keep(base, "exe", 1000);

	ck_assert_int_eq(e != NULL, names[_i].copy);
	ck_assert_int_eq(is_fresh(path), names[_i].copy);
	if (e)
		event_free(e);
	unlink(path);
	free(path);
}
END_TEST

START_TEST(its_time_stays_fresh)
{
	char *path = make("agent-" SHA);
	struct event *e = copy_keep(base, "exe", 1);

	for (int i = 0; i < 2; i++) {
		age(path);
		while (!is_fresh(path)) /* check's time limit ends it */
			event_base_loop(base, EVLOOP_ONCE);
	}
	event_free(e);
	unlink(path);
	free(path);
}
END_TEST

/* ---- a copy of srun's ---- */

/* 64 digits, of which only the first are of this process: others run this test, too. */
static const char *digits(void)
{
	static char text[sizeof SHA];

	snprintf(text, sizeof text, "%08x%s", (unsigned)getpid(), SHA + 8);
	return text;
}

static const struct path_case {
	bool tmp; /* in /tmp, not in the folder of this test */
	const char *begin, *end;
	bool removed;
} paths[] = {
	{ true, "berth-agent-", "", true },   { false, "berth-agent-", "", false },
	{ true, "berth-agent-", "0", false }, { true, "berth-agent-", "~", false },
	{ true, "xberth-agent-", "", false }, { true, "agent-", "", false },
	{ true, "berth-agent-x", "", false }, { true, "berth-agent", "", false },
};

START_TEST(only_a_copy_of_srun_is_removed)
{
	const struct path_case *k = &paths[_i];
	char *path = xasprintf("%s/%s%s%s", k->tmp ? "/tmp" : dir, k->begin, digits(),
			       k->end);

	close(open(path, O_CREAT | O_EXCL | O_WRONLY, 0700));
	unlink("exe");
	ck_assert_int_eq(symlink(path, "exe"), 0);
	copy_remove("exe");
	ck_assert_int_eq(access(path, F_OK) != 0, k->removed);
	unlink(path);
	free(path);
}
END_TEST

/* As /proc/self/exe of a program whose file has been replaced, or is gone. */
START_TEST(another_file_of_its_name_stays)
{
	char *name = xasprintf("berth-agent-%s", digits());
	char *path = xasprintf("/tmp/%s", name), *own = make(name);

	close(open(path, O_CREAT | O_EXCL | O_WRONLY, 0700));
	copy_remove("exe");
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert_int_eq(access(own, F_OK), 0);
	unlink(own);
	copy_remove("exe");
	ck_assert_int_eq(access(path, F_OK), 0);
	unlink(path);
	free(path);
	free(own);
	free(name);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("copy");
	TCase *t = tcase_create("copy");
	SRunner *r = srunner_create(s);
	int failed;

	if (!mkdtemp(dir) || chdir(dir))
		abort();
	base = event_base_new();
	tcase_add_loop_test(t, only_a_copy_is_touched, 0, sizeof names / sizeof *names);
	tcase_add_test(t, its_time_stays_fresh);
	tcase_add_loop_test(t, only_a_copy_of_srun_is_removed, 0,
			    sizeof paths / sizeof *paths);
	tcase_add_test(t, another_file_of_its_name_stays);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	event_base_free(base);
	unlink("exe");
	rmdir(dir);
	return failed != 0;
}
