/* contrib/slurm/ask.h, with scripts in the place of the agent.
 * takes_s: 0 */
#include <check.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contrib/slurm/ask.h"

enum { SOON_MS = 100, LONG_MS = 20000 };

static char folder[] = "/tmp/berth-ask.XXXXXX", program[64];
static cpu_set_t mask;

static void folder_make(void)
{
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(program, sizeof program, "%s/agent", folder);
}

static void folder_remove(void)
{
	unlink(program);
	rmdir(folder);
}

static void put_program(const char *lines)
{
	FILE *f = fopen(program, "w");

	ck_assert_ptr_nonnull(f);
	fprintf(f, "#!/bin/sh\n%s\n", lines);
	ck_assert_int_eq(fclose(f), 0);
	ck_assert_int_eq(chmod(program, 0700), 0);
}

/* All that LINES say of REQUEST; NULL with WHY. */
static char *asked(const char *lines, const char *request, int ms, const char **why)
{
	const gid_t group = getgid();
	const struct ask_user user = { .uid = getuid(),
				       .gid = group,
				       .groups = &group,
				       .ngroups = 1,
				       .cpus = &mask,
				       .cpus_bytes = sizeof mask };

	ck_assert_int_eq(sched_getaffinity(0, sizeof mask, &mask), 0);
	put_program(lines);
	*why = NULL;
	return ask(program, &user, request, strlen(request), ms, why);
}

static void fails(const char *lines, const char *request, int ms, const char *reason)
{
	const char *why;

	ck_assert_ptr_null(asked(lines, request, ms, &why));
	ck_assert_str_eq(why, reason);
}

START_TEST(it_is_told_and_heard)
{
	const char *why;
	char *text =
		asked("echo \"$1 in $PWD\"; exec cat", "one\ntwo\n", LONG_MS, &why);

	ck_assert_msg(text != NULL, "%s", why);
	ck_assert_str_eq(text, "--step in /\none\ntwo\n");
	free(text);
}
END_TEST

/* More than a socket takes at once, both ways. */
START_TEST(much_is_told_and_heard)
{
	enum { BYTES = 1 << 20 };
	char *request = malloc(BYTES + 1), *text;
	const char *why;

	ck_assert_ptr_nonnull(request);
	memset(request, 'x', BYTES);
	request[BYTES] = '\0';
	text = asked("exec cat", request, LONG_MS, &why);
	ck_assert_msg(text != NULL, "%s", why);
	ck_assert_str_eq(text, request);
	free(text);
	free(request);
}
END_TEST

START_TEST(it_has_nothing_of_ours)
{
	const char *why;
	char *text;

	ck_assert_int_eq(setenv("OURS", "1", 1), 0);
	ck_assert_int_eq(dup2(0, 40), 40);
	signal(SIGUSR1, SIG_IGN);
	text = asked("echo \"${OURS-none}\"; [ -e /proc/self/fd/40 ] || echo closed\n"
		     "grep NoNewPrivs /proc/self/status; kill -USR1 $$; echo lives",
		     "", LONG_MS, &why);
	ck_assert_msg(text != NULL, "%s", why);
	ck_assert_str_eq(text, "none\nclosed\nNoNewPrivs:\t1\n");
	free(text);
}
END_TEST

START_TEST(no_answer)
{
	fails("exec sleep 60", "", SOON_MS, "it did not answer in time");
	fails("echo a; exec sleep 60", "", SOON_MS, "it did not answer in time");
	fails("exit 0", "", LONG_MS, "it ended without an answer");
	fails("printf 'a\\0b'", "", LONG_MS, "it ended without an answer");
	fails("exec cat /dev/zero", "", LONG_MS, "its answer is too long");
}
END_TEST

START_TEST(no_program)
{
	const struct ask_user user = { .uid = getuid(), .gid = getgid() };
	const char *why = NULL;

	ck_assert_ptr_null(ask("/nowhere/agent", &user, "", 0, LONG_MS, &why));
	ck_assert_str_eq(why, "it ended without an answer");
}
END_TEST

START_TEST(whom_to_trust)
{
	ck_assert_ptr_null(ask_distrust("/usr/bin/env"));
	ck_assert_str_eq(ask_distrust("usr/bin/env"), "its path is not absolute");
	ck_assert_str_eq(ask_distrust("/usr/../usr/bin/env"),
			 "its path is not absolute");
	ck_assert_str_eq(ask_distrust("/usr/none"), "No such file or directory");
	ck_assert_str_eq(ask_distrust("/usr/bin"), "it is no program that all may run");
	put_program("");
	ck_assert_str_eq(ask_distrust(program),
			 "not only root can write to a part of its path");
	ck_assert_str_eq(ask_distrust("/proc/self/exe"),
			 "a part of its path is a symbolic link");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("spank_ask");
	TCase *c = tcase_create("ask");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_checked_fixture(c, folder_make, folder_remove);
	tcase_add_test(c, it_is_told_and_heard);
	tcase_add_test(c, much_is_told_and_heard);
	tcase_add_test(c, it_has_nothing_of_ours);
	tcase_add_test(c, no_answer);
	tcase_add_test(c, no_program);
	tcase_add_test(c, whom_to_trust);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
