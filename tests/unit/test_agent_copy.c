/* copy.h: which programs are copies, and that their time stays fresh. */
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
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	event_base_free(base);
	unlink("exe");
	rmdir(dir);
	return failed != 0;
}
