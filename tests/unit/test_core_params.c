/* lib/core/params: every variable that the library reads; lib/base/log: what it has to
 * tell. */
#include <check.h>
#include <locale.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/core/params.h"
#include "lib/base/log.h"

/* ---- parameters ---- */

static void clear(void)
{
#define PARAM(name, member, kind, otherwise, what) unsetenv(#name);
#define IGNORED(name, why) unsetenv(#name);
#include "lib/core/params.def"
#undef PARAM
#undef IGNORED
}

static struct params params;
static char why[256];

static bool with(const char *name, const char *value)
{
	setenv(name, value, 1);
	return params_read(&params, why, sizeof why);
}

START_TEST(defaults)
{
	static const char *const names[] = {
#define PARAM(name, member, kind, otherwise, what) #name,
#define IGNORED(name, why)
#include "lib/core/params.def"
#undef PARAM
#undef IGNORED
	};

	for (int i = 0; i < 2; i++) {
		clear();
		for (size_t k = 0; i && k < sizeof names / sizeof *names; k++)
			setenv(names[k], "", 1); /* as if it were not set */
		ck_assert(params_read(&params, why, sizeof why));
		ck_assert_ptr_null(params.net);
		ck_assert_ptr_null(params.interfaces);
		ck_assert_int_eq(params.timeout_ms, 0);
		ck_assert_uint_eq(params.fusion_bytes, 16 << 20);
		ck_assert_int_eq(params.stall_ms, 60000);
		ck_assert_int_eq(params.stall_end_ms, 0);
		ck_assert(!params.stall_off);
		ck_assert_ptr_null(params.timeline);
	}
}
END_TEST

START_TEST(seconds)
{
	static const struct {
		const char *text;
		int64_t ms;
	} good[] = {
		{ "0", 0 },           { "1", 1000 },
		{ "0.5", 500 },       { "0.0019", 1 },
		{ "12.3456", 12345 }, { "600", 600000 },
		{ "007.", 7000 },     { "99999999999", 1000000000000 },
	};
	static const char *const bad[] = {
		"-1",  "x",  "1s", "1e3", ".5",
		"inf", " 1", "1 ", "1,5", "9999999999999999999999"
	};

	clear();
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		ck_assert_msg(with("BERTH_OP_TIMEOUT", good[i].text), "%s", why);
		ck_assert_int_eq(params.timeout_ms, good[i].ms);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ck_assert_msg(!with("BERTH_OP_TIMEOUT", bad[i]), "%s", bad[i]);
	with("BERTH_OP_TIMEOUT", "1 min");
	ck_assert_str_eq(why, "BERTH_OP_TIMEOUT=\"1 min\" is no number of seconds, such"
			      " as 60 or 0.5");
	/* a comma is the decimal point of this one, where it is installed */
	setlocale(LC_ALL, "de_DE.UTF-8");
	ck_assert(with("BERTH_OP_TIMEOUT", "1.5"));
	ck_assert_int_eq(params.timeout_ms, 1500);
}
END_TEST

START_TEST(bytes)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = { { "0", 0 },
		     { "134217728", 134217728 },
		     { "64k", 65536 },
		     { "16M", 16 << 20 },
		     { "2G", (uint64_t)2 << 30 },
		     { "1T", (uint64_t)1 << 40 } };
	static const char *const bad[] = { "-1",   "M",    "1.5M",           "16MB",
					   "16 M", "0x10", "9999999999999T", "1P" };

	clear();
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		ck_assert_msg(with("HOROVOD_FUSION_THRESHOLD", good[i].text), "%s",
			      why);
		ck_assert_uint_eq(params.fusion_bytes, good[i].bytes);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ck_assert_msg(!with("HOROVOD_FUSION_THRESHOLD", bad[i]), "%s", bad[i]);
	ck_assert_str_eq(why, "HOROVOD_FUSION_THRESHOLD=\"1P\" is no size, such as "
			      "16777216 or 16M");
}
END_TEST

START_TEST(flags_and_texts)
{
	clear();
	ck_assert(with("BERTH_NET", "10.0.0.0/8,fd00::/8"));
	ck_assert_str_eq(params.net, "10.0.0.0/8,fd00::/8");
	ck_assert(!with("BERTH_NET", "eth0"));
	ck_assert_str_eq(why, "BERTH_NET=\"eth0\" is no range of addresses, such as "
			      "10.0.0.0/8");
	clear();
	ck_assert(with("HOROVOD_STALL_CHECK_DISABLE", "1") && params.stall_off);
	ck_assert(with("HOROVOD_STALL_CHECK_DISABLE", "Yes") && params.stall_off);
	ck_assert(with("HOROVOD_STALL_CHECK_DISABLE", "off") && !params.stall_off);
	ck_assert(!with("HOROVOD_STALL_CHECK_DISABLE", "2"));
	ck_assert_str_eq(why, "HOROVOD_STALL_CHECK_DISABLE=\"2\" is neither 0 nor 1");
	clear();
	ck_assert(with("BERTH_NET_SECURE", "mac") && params.guard == NET_GUARD_MAC);
	ck_assert(with("BERTH_NET_SECURE", "aead") && params.guard == NET_GUARD_AEAD);
	ck_assert(with("BERTH_NET_SECURE", "heads") && params.guard == NET_GUARD_HEADS);
	ck_assert(!with("BERTH_NET_SECURE", "AEAD") &&
		  !with("BERTH_NET_SECURE", "none"));
	ck_assert_str_eq(why,
			 "BERTH_NET_SECURE=\"none\" is not one of mac, aead and heads");
	clear();
	ck_assert(with("HOROVOD_TIMELINE", "/tmp/t"));
	ck_assert_str_eq(params.timeline, "/tmp/t");
	ck_assert(with("HOROVOD_TIMELINE", "DYNAMIC"));
	ck_assert_ptr_null(params.timeline);
}
END_TEST

static char heard[4096];

static void hear(void *ctx, const char *name, const char *because)
{
	size_t n = strlen(heard);

	ck_assert_ptr_eq(ctx, heard);
	ck_assert_uint_gt(strlen(because), 10);
	snprintf(heard + n, sizeof heard - n, "%s ", name);
}

START_TEST(ignored)
{
	clear();
	*heard = '\0';
	params_ignored(hear, heard);
	ck_assert_str_eq(heard, "");
	setenv("HOROVOD_AUTOTUNE", "0", 1);
	setenv("HOROVOD_CYCLE_TIME", "5", 1);
	setenv("HOROVOD_LOG_LEVEL", "", 1);
	setenv("HOROVOD_FUSION_THRESHOLD", "5", 1);
	params_ignored(hear, heard);
	ck_assert_str_eq(heard, "HOROVOD_CYCLE_TIME HOROVOD_AUTOTUNE ");
}
END_TEST

/* ---- what is told ---- */

static struct {
	int lines, level;
	char text[LOG_TEXT_BYTES + 16];
} told;

static void tell(void *ctx, enum berth_log_level level, const char *text)
{
	ck_assert_ptr_eq(ctx, &told);
	told.lines++;
	told.level = (int)level;
	snprintf(told.text, sizeof told.text, "%s", text);
	log_to(NULL, NULL); /* no lock is held */
}

START_TEST(lines)
{
	char wide[2 * LOG_TEXT_BYTES];

	log_say(BERTH_LOG_ERROR, "nobody hears %d", 1);
	log_to(tell, &told);
	log_say(BERTH_LOG_WARNING, "rank %d is late", 3);
	ck_assert_int_eq(told.lines, 1);
	ck_assert_int_eq(told.level, BERTH_LOG_WARNING);
	ck_assert_str_eq(told.text, "rank 3 is late");
	log_say(BERTH_LOG_WARNING, "nobody again");
	ck_assert_int_eq(told.lines, 1);
	memset(wide, 'x', sizeof wide - 1);
	wide[sizeof wide - 1] = '\0';
	log_to(tell, &told);
	log_say(BERTH_LOG_DEBUG, "%s", wide);
	ck_assert_uint_eq(strlen(told.text), LOG_TEXT_BYTES - 1);
}
END_TEST

static void *of_this_thread(void *arg)
{
	intptr_t n = (intptr_t)arg;
	char text[32];

	if (log_last()->result != BERTH_OK)
		return "an error of another thread";
	snprintf(text, sizeof text, "error %d", (int)n);
	for (int i = 0; i < 1000; i++) {
		log_error(BERTH_INVALID, NULL, NULL, 0, "error %d", (int)n);
		if (strcmp(log_last()->text, text) != 0)
			return "the text of another thread";
	}
	return NULL;
}

START_TEST(errors)
{
	unsigned missing[100];
	const struct berth_error *e = log_last();
	pthread_t t[4];
	void *wrong;

	for (unsigned i = 0; i < 100; i++)
		missing[i] = 1000 + i;
	ck_assert_int_eq(e->result, BERTH_OK);
	ck_assert_uint_eq(e->size, sizeof *e);
	ck_assert_str_eq(e->text, "");
	ck_assert_str_eq(e->tensor, "");
	ck_assert_int_eq(log_error(BERTH_PEER_LOST, "grad", missing, 2, "ranks %u, %u",
				   missing[0], missing[1]),
			 BERTH_PEER_LOST);
	e = log_last();
	ck_assert_int_eq(e->result, BERTH_PEER_LOST);
	ck_assert_str_eq(e->tensor, "grad");
	ck_assert_str_eq(e->text, "ranks 1000, 1001");
	ck_assert_uint_eq(e->nmissing, 2);
	ck_assert_int_eq(e->missing[1], 1001);
	/* what is noted may be of what was */
	log_error(BERTH_TIMEOUT, e->tensor, missing, 100, "again: %s", e->text);
	e = log_last();
	ck_assert_str_eq(e->tensor, "grad");
	ck_assert_str_eq(e->text, "again: ranks 1000, 1001");
	ck_assert_uint_eq(e->nmissing, LOG_MISSING);
	for (intptr_t i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, of_this_thread, (void *)i);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &wrong);
		ck_assert_msg(!wrong, "%s", (char *)wrong);
	}
	ck_assert_str_eq(log_last()->text, "again: ranks 1000, 1001");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("parameters");
	TCase *t = tcase_create("parameters");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_test(t, defaults);
	tcase_add_test(t, seconds);
	tcase_add_test(t, bytes);
	tcase_add_test(t, flags_and_texts);
	tcase_add_test(t, ignored);
	tcase_add_test(t, lines);
	tcase_add_test(t, errors);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed > 0;
}
