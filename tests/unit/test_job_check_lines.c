/* launcher/job/check_lines.h: what hosts answered, to lines. */
#include <check.h>

#include "launcher/job/check_lines.h"

static const char *const names[] = { "n1", "n2", "n3", "n4" };
static struct check_items l;
static struct str out;

#define ONE_VERSION                                                                    \
	"install one version on all hosts: NCCL joins no others, and libberth then "   \
	"takes "                                                                       \
	"arrays in GPU memory through the host's memory"

static void setup(void)
{
	l = (struct check_items){ 0 };
	out = (struct str){ 0 };
}

static void teardown(void)
{
	check_lines_free(&l);
	str_free(&out);
}

static void add(size_t host, enum check_row row, enum check_verdict verdict,
		const char *text)
{
	check_lines_add(&l, host, row, verdict, text, "do this");
}

static void prints(size_t failed, const char *text)
{
	str_free(&out);
	ck_assert_uint_eq(check_lines_print(&out, &l, names, false), failed);
	ck_assert_str_eq(str_text(&out), text);
}

START_TEST(equal_hosts_share_a_line)
{
	for (size_t i = 4; i-- > 0;)
		add(i, CHECK_PROGRAM, CHECK_OK, "/bin/x");
	add(3, CHECK_SSH, CHECK_OK, "");
	add(1, CHECK_SSH, CHECK_OK, "");
	prints(0, "ok    ssh      n[2,4]\n"
		  "ok    program  n[1-4]: /bin/x\n");
}
END_TEST

START_TEST(what_differs_has_its_own)
{
	add(0, CHECK_PROGRAM, CHECK_OK, "/bin/x");
	add(1, CHECK_PROGRAM, CHECK_FAILED, "there is no program 'x'");
	add(2, CHECK_PROGRAM, CHECK_FAILED, "there is no program 'x'");
	add(3, CHECK_PROGRAM, CHECK_OK, "/usr/bin/x");
	add(0, CHECK_IMPORTS, CHECK_SKIPPED, "why");
	prints(1, "ok    program  n1: /bin/x\n"
		  "ok    program  n4: /usr/bin/x\n"
		  "FAIL  program  n[2-3]: there is no program 'x'\n"
		  "      hint: do this\n"
		  "skip  imports  n1: why\n");
	str_free(&out);
	ck_assert_uint_eq(check_lines_print(&out, &l, names, true), 1);
	ck_assert_str_eq(str_text(&out),
			 "FAIL  program  n[2-3]: there is no program 'x'\n"
			 "      hint: do this\n");
}
END_TEST

/* Two programs of one host with one answer. */
START_TEST(a_host_is_named_once)
{
	add(0, CHECK_WDIR, CHECK_OK, "/");
	add(1, CHECK_WDIR, CHECK_OK, "/");
	add(0, CHECK_WDIR, CHECK_OK, "/");
	prints(0, "ok    wdir     n[1-2]: /\n");
}
END_TEST

START_TEST(gpus_that_differ_fail)
{
	for (size_t i = 0; i < 3; i++)
		add(i, CHECK_GPUS, CHECK_OK, "8 GPUs, driver 1");
	check_lines_compare(&l);
	prints(0, "ok    gpus     n[1-3]: 8 GPUs, driver 1\n");
	add(3, CHECK_GPUS, CHECK_OK, "8 GPUs, driver 2");
	check_lines_compare(&l);
	prints(2, "FAIL  gpus     n[1-3]: 8 GPUs, driver 1\n"
		  "      hint: name hosts with equal GPUs and drivers\n"
		  "FAIL  gpus     n4: 8 GPUs, driver 2\n"
		  "      hint: name hosts with equal GPUs and drivers\n");
}
END_TEST

/* Hosts without a version are a note, and another version is a warning. */
START_TEST(nccl_that_differs_is_a_warning)
{
	add(0, CHECK_NCCL, CHECK_NOTED, "none");
	add(1, CHECK_NCCL, CHECK_NOTED, "none");
	check_lines_compare(&l);
	prints(0, "note  nccl     n[1-2]: none\n      hint: do this\n");
	add(2, CHECK_NCCL, CHECK_OK, "2.21.5");
	add(3, CHECK_NCCL, CHECK_WARNED, "it ended");
	check_lines_compare(&l);
	prints(0, "warn  nccl     n3: 2.21.5\n"
		  "      hint: " ONE_VERSION "\n"
		  "warn  nccl     n4: it ended\n"
		  "      hint: do this\n"
		  "warn  nccl     n[1-2]: none\n"
		  "      hint: " ONE_VERSION "\n");
}
END_TEST

/* One host sends nothing to another. */
START_TEST(what_nccl_does_not_protect)
{
	add(1, CHECK_GPUS, CHECK_OK, "8 GPUs");
	add(2, CHECK_GPUS, CHECK_OK, "8 GPUs");
	add(1, CHECK_NCCL, CHECK_OK, "2.21.5");
	add(1, CHECK_NCCL, CHECK_OK, "2.21.5");
	check_lines_compare(&l);
	prints(0, "ok    gpus     n[2-3]: 8 GPUs\nok    nccl     n2: 2.21.5\n");
	add(2, CHECK_NCCL, CHECK_OK, "2.21.5");
	check_lines_compare(&l);
	prints(0, "ok    gpus     n[2-3]: 8 GPUs\n"
		  "ok    nccl     n[2-3]: 2.21.5\n"
		  "note  nccl     n[2-3]: what NCCL sends between hosts is neither "
		  "authenticated nor encrypted\n"
		  "      hint: with BERTH_NET_SECURE=aead libberth takes arrays in GPU "
		  "memory through the host's memory instead\n");
}
END_TEST

START_TEST(other_rows_may_differ)
{
	add(0, CHECK_NOFILE, CHECK_OK, "1024");
	add(1, CHECK_NOFILE, CHECK_OK, "4096");
	check_lines_compare(&l);
	prints(0, "ok    nofile   n1: 1024\nok    nofile   n2: 4096\n");
}
END_TEST

/* A warning has its hint, and is no failure. */
START_TEST(warnings)
{
	struct str said = { 0 };

	add(0, CHECK_NAMES, CHECK_OK, "3 names of other hosts");
	add(1, CHECK_NAMES, CHECK_WARNED, "no address for n3: why");
	ck_assert_uint_eq(check_lines_print(&said, &l, names, true), 0);
	ck_assert_str_eq(str_text(&said), "");
	prints(0, "ok    names    n1: 3 names of other hosts\n"
		  "warn  names    n2: no address for n3: why\n"
		  "      hint: do this\n");
}
END_TEST

START_TEST(texts_do_not_act_on_a_terminal)
{
	add(0, CHECK_AGENT, CHECK_FAILED, "\033[2Jx\ny");
	prints(1, "FAIL  agent    n1: ?[2Jx?y\n      hint: do this\n");
}
END_TEST

START_TEST(nothing)
{
	prints(0, "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("job check lines");
	TCase *t = tcase_create("lines");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, equal_hosts_share_a_line);
	tcase_add_test(t, what_differs_has_its_own);
	tcase_add_test(t, a_host_is_named_once);
	tcase_add_test(t, gpus_that_differ_fail);
	tcase_add_test(t, nccl_that_differs_is_a_warning);
	tcase_add_test(t, what_nccl_does_not_protect);
	tcase_add_test(t, other_rows_may_differ);
	tcase_add_test(t, warnings);
	tcase_add_test(t, texts_do_not_act_on_a_terminal);
	tcase_add_test(t, nothing);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
