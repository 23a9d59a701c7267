/* hang_judge.h: what ranks do in, which one hangs and what is done about it out. */
#include <check.h>

#include "launcher/job/hang_judge.h"

enum { RANKS = 4, LIMIT = 1000, ALL = -1, NOBODY = -2 };

/* A rank as a letter:
 *   w   waits in an operation for the limit, W for 5 limits, q not so long
 *   r   works and does not come, i does nothing for the limit, s not so long
 *   T   is stopped for the limit, t held by a debugger, D blocked in the kernel
 *   y   is stopped, but not so long, z blocked in the kernel; both are idle for it
 *   p   works and does not come, but had a CPU only for the limit
 *   l   leaves with its host, and works; L does nothing for the limit
 *   n   does nothing and is not in libberth, x has ended, ? is not known
 */
static struct hang_rank rank_of(char c)
{
	struct hang_rank r = { .lives = !strchr("xlL", c),
			       .leaves = c == 'l' || c == 'L',
			       .known = c != '?',
			       .joined = c != 'n' && c != 'x',
			       .awaited_ms = 5 * LIMIT,
			       .state = 'S' };

	if (strchr("wWq", c)) {
		r.waits = true;
		r.still_ms = c == 'w' ? LIMIT : c == 'W' ? 5 * LIMIT : LIMIT - 1;
	}
	if (c == 'p')
		r.awaited_ms = LIMIT;
	if (strchr("irpTDntLyz", c))
		r.still_ms = LIMIT;
	if (strchr("iTDntLyz", c))
		r.idle_ms = LIMIT;
	if (strchr("TDt", c)) {
		r.state = c;
		r.state_ms = LIMIT;
	}
	if (strchr("yz", c)) {
		r.state = c == 'y' ? 'T' : 'D';
		r.state_ms = LIMIT - 1;
	}
	return r;
}

/* BEHIND: which ranks the waiting ones miss; "" if they cannot tell. */
static const struct {
	const char *ranks, *behind;
	enum hang_why why;
	int rank;
} cases[] = {
	/* nobody hangs */
	{ "ssss", "", HANG_NOT, NOBODY },
	{ "qqqi", "", HANG_NOT, NOBODY },
	{ "wwws", "3", HANG_NOT, NOBODY },
	{ "wwwr", "3", HANG_NOT, NOBODY },
	{ "WWwr", "3", HANG_NOT, NOBODY },
	{ "WWWt", "3", HANG_NOT, NOBODY }, /* all wait for a debugger */
	{ "sstT", "", HANG_NOT, NOBODY },
	{ "wwwy", "3", HANG_NOT, NOBODY },
	{ "wwwz", "3", HANG_NOT, NOBODY },
	{ "iiiy", "", HANG_NOT, NOBODY },
	{ "wwwt", "3", HANG_NOT, NOBODY },
	{ "WWWp", "3", HANG_NOT, NOBODY },
	{ "WWWp", "", HANG_NOT, NOBODY },
	{ "WWip", "23", HANG_NOT, NOBODY },
	{ "WWrp", "23", HANG_NOT, NOBODY },
	{ "wwww", "", HANG_NOT, NOBODY },
	{ "iiis", "", HANG_NOT, NOBODY },
	{ "TTTT", "", HANG_NOT, NOBODY },
	{ "TTTx", "", HANG_NOT, NOBODY },
	{ "xxxx", "", HANG_NOT, NOBODY },
	/* one */
	{ "wwwi", "3", HANG_IDLE, 3 },
	{ "wiww", "1", HANG_IDLE, 1 },
	{ "wwxi", "3", HANG_IDLE, 3 },
	{ "wwsi", "3", HANG_IDLE, 3 }, /* rank 2 is in no operation of theirs */
	{ "wwni", "3", HANG_IDLE, 3 },
	{ "wwwn", "3", HANG_IDLE, 3 }, /* it does not come to berth_init() */
	{ "WWWr", "3", HANG_BUSY, 3 },
	{ "wwwT", "3", HANG_STOPPED, 3 },
	{ "wwTw", "", HANG_STOPPED, 2 }, /* in the operation */
	{ "sTss", "", HANG_STOPPED, 1 },
	{ "Txxx", "", HANG_STOPPED, 0 },
	{ "TTww", "", HANG_STOPPED, 0 },
	{ "wwwD", "3", HANG_BLOCKED, 3 },
	{ "wDww", "", HANG_BLOCKED, 1 },
	{ "wDwi", "13", HANG_BLOCKED, 1 },
	{ "nDnn", "", HANG_BLOCKED, 1 },
	{ "sDss", "", HANG_NOT, NOBODY }, /* it reads from a slow disk */
	/* they know only that not all have submitted their operation */
	{ "wwwi", "", HANG_IDLE, 3 },
	{ "wwwr", "", HANG_NOT, NOBODY },
	{ "wwqi", "", HANG_NOT, NOBODY },
	{ "WWWr", "", HANG_BUSY, 3 },
	{ "wwwn", "", HANG_NOT, NOBODY }, /* a newcomer, which is in no world */
	/* several may be it */
	{ "wwii", "23", HANG_MANY, ALL },
	{ "wwri", "23", HANG_NOT, NOBODY },
	{ "WWri", "23", HANG_MANY, ALL },
	{ "WWWW", "", HANG_CIRCLE, ALL },
	{ "WWWw", "", HANG_NOT, NOBODY },
	{ "iiii", "", HANG_SILENT, ALL },
	{ "nnnn", "", HANG_SILENT, ALL },
	{ "nxxx", "", HANG_SILENT, ALL },
	{ "nnnt", "", HANG_NOT, NOBODY },
	/* a host is left */
	{ "wwwl", "3", HANG_NOT, NOBODY },
	{ "WWWl", "3", HANG_NOT, NOBODY },
	{ "WWWL", "3", HANG_NOT, NOBODY },
	{ "iiil", "", HANG_NOT, NOBODY },
	{ "iiiL", "", HANG_SILENT, ALL },
	{ "wwil", "2", HANG_IDLE, 2 },
	{ "wwTl", "", HANG_STOPPED, 2 },
	/* a host has not answered */
	{ "www?", "3", HANG_NOT, NOBODY },
	{ "ww?i", "3", HANG_NOT, NOBODY },
	{ "wwT?", "3", HANG_STOPPED, 2 },
};

START_TEST(judges)
{
	struct hang_rank v[RANKS];
	struct hang_verdict is;

	for (int i = 0; i < RANKS; i++) {
		v[i] = rank_of(cases[_i].ranks[i]);
		if (strchr(cases[_i].behind, '0' + i))
			v[i].behind = 2;
	}
	is = hang_judge(v, RANKS, LIMIT);
	ck_assert_msg(is.why == cases[_i].why, "%s, %s: %d", cases[_i].ranks,
		      cases[_i].behind, is.why);
	if (cases[_i].rank >= 0)
		ck_assert_int_eq((int)is.rank, cases[_i].rank);
	ck_assert(is.why <= HANG_BUSY || cases[_i].rank == ALL);
	ck_assert(!is.why || is.ms >= LIMIT);
}
END_TEST

/* A verdict about NOW's rank, or about all, which was so before. */
static const struct {
	const char *now, *behind;
	enum hang_why was;
	int rank;
	bool holds;
} later[] = {
	{ "wwwi", "3", HANG_IDLE, 3, true },
	{ "wwwi", "3", HANG_IDLE, 2, false },
	{ "wwwD", "3", HANG_IDLE, 3, true }, /* it sleeps elsewhere */
	{ "wwws", "3", HANG_IDLE, 3, false },
	{ "wwwq", "", HANG_IDLE, 3, false },
	{ "wwwx", "", HANG_IDLE, 3, false },
	{ "?wwi", "3", HANG_IDLE, 3, true }, /* as far as it is known */
	{ "wwwt", "3", HANG_STOPPED, 3, false },
	{ "iiii", "", HANG_SILENT, ALL, true },
	{ "iiis", "", HANG_SILENT, ALL, false },
	{ "WWWW", "", HANG_SILENT, ALL, true },
	{ "wwwi", "3", HANG_MANY, ALL, false },
	{ "wwii", "23", HANG_IDLE, 3, false },
};

START_TEST(holds)
{
	const struct hang_verdict was = { .why = later[_i].was,
					  .rank = (uint32_t)later[_i].rank };
	struct hang_rank v[RANKS];

	for (int i = 0; i < RANKS; i++) {
		v[i] = rank_of(later[_i].now[i]);
		if (v[i].known)
			v[i].behind = strchr(later[_i].behind, '0' + i) ? 2 : 0;
		else /* as it was */
			v[i] = rank_of('w'), v[i].known = false;
	}
	ck_assert_msg(hang_holds(v, RANKS, LIMIT, was) == later[_i].holds, "%s, %s",
		      later[_i].now, later[_i].behind);
}
END_TEST

static const struct {
	bool given;
	enum on_hang on;
	enum hang_why why;
	struct hang_can can; /* replace, restart */
	enum hang_act act;
} deeds[] = {
	{ true, ON_HANG_KILL, HANG_NOT, { true, true }, HANG_LEAVE },
	{ false, ON_HANG_NOT_GIVEN, HANG_IDLE, { true, true }, HANG_REPORT },
	{ false, ON_HANG_NOT_GIVEN, HANG_SILENT, { false, true }, HANG_REPORT },
	{ false, ON_HANG_KILL, HANG_IDLE, { true, true }, HANG_KILL },
	{ true, ON_HANG_NOT_GIVEN, HANG_IDLE, { true, true }, HANG_REPLACE },
	{ true, ON_HANG_NOT_GIVEN, HANG_IDLE, { false, true }, HANG_RESTART },
	{ true, ON_HANG_NOT_GIVEN, HANG_IDLE, { true, false }, HANG_KILL },
	{ true, ON_HANG_NOT_GIVEN, HANG_SILENT, { true, true }, HANG_RESTART },
	{ true, ON_HANG_NOT_GIVEN, HANG_CIRCLE, { false, false }, HANG_KILL },
	{ true, ON_HANG_REPORT, HANG_STOPPED, { true, true }, HANG_REPORT },
	{ true, ON_HANG_KILL, HANG_STOPPED, { true, true }, HANG_KILL },
	{ true, ON_HANG_RESTART, HANG_STOPPED, { true, true }, HANG_RESTART },
	{ true, ON_HANG_RESTART, HANG_STOPPED, { true, false }, HANG_KILL },
	{ true, ON_HANG_REPLACE, HANG_BUSY, { true, true }, HANG_REPLACE },
	{ true, ON_HANG_REPLACE, HANG_MANY, { true, true }, HANG_RESTART },
};

START_TEST(acts)
{
	const struct hang_limit limit = { .ms = LIMIT,
					  .given = deeds[_i].given,
					  .on = deeds[_i].on };

	ck_assert_int_eq(hang_act(&limit, deeds[_i].why, deeds[_i].can), deeds[_i].act);
}
END_TEST

START_TEST(limits)
{
	const struct hang_limit given = { .ms = 5000, .given = true },
				learnt = { .ms = 60000, .learns = true },
				least = { .ms = 100 }, most = { .ms = 3600000 };

	ck_assert_uint_eq(hang_limit_ms(&given, 4000), 5000);
	ck_assert_uint_eq(hang_limit_ms(&learnt, 0), 60000);
	ck_assert_uint_eq(hang_limit_ms(&learnt, 3000), 60000);
	ck_assert_uint_eq(hang_limit_ms(&learnt, 7000), 140000);
	ck_assert_uint_eq(hang_interval_ms(&given, 4), 500);
	ck_assert_uint_eq(hang_interval_ms(&learnt, 4), 1000);
	ck_assert_uint_eq(hang_interval_ms(&least, 4), 20);
	ck_assert_uint_eq(hang_interval_ms(&most, 4), 30000);
	ck_assert_uint_eq(hang_interval_ms(&given, 100000), 10000);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("job_hang_judge");
	TCase *t = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(t, judges, 0, sizeof cases / sizeof *cases);
	tcase_add_loop_test(t, holds, 0, sizeof later / sizeof *later);
	tcase_add_loop_test(t, acts, 0, sizeof deeds / sizeof *deeds);
	tcase_add_test(t, limits);
	suite_add_tcase(s, t);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
