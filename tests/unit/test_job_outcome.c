/* outcome.h: endings in, one cause and one status out. */
#include <check.h>
#include <signal.h>
#include <sys/wait.h>

#include "launcher/job/outcome.h"

#define MS 1000000ll

/* ---- what wait(2) says ---- */

static const struct {
	uint32_t status;
	bool oom, exec_failed;
	enum fate fate;
	int code, runner; /* runner: its exit status when this is the cause */
} ways[] = {
	{ W_EXITCODE(0, 0), false, false, FATE_OK, 0, 0 },
	{ W_EXITCODE(1, 0), false, false, FATE_EXIT, 1, 1 },
	{ W_EXITCODE(2, 0), false, false, FATE_EXIT, 2, 2 },
	{ W_EXITCODE(124, 0), false, false, FATE_EXIT, 124, 124 },
	{ W_EXITCODE(137, 0), false, false, FATE_EXIT, 137, 137 },
	{ W_EXITCODE(255, 0), false, false, FATE_EXIT, 255, 255 },
	{ W_EXITCODE(0, SIGKILL), false, false, FATE_SIGNAL, SIGKILL, 137 },
	{ W_EXITCODE(0, SIGSEGV) | WCOREFLAG, false, false, FATE_SIGNAL, SIGSEGV, 139 },
	{ W_EXITCODE(0, SIGABRT), false, false, FATE_SIGNAL, SIGABRT, 134 },
	{ W_EXITCODE(0, SIGTERM), false, false, FATE_SIGNAL, SIGTERM, 143 },
	{ W_EXITCODE(0, SIGPIPE), false, false, FATE_SIGNAL, SIGPIPE, 141 },
	{ W_EXITCODE(0, 40), false, false, FATE_SIGNAL, 40, 168 },
	{ W_EXITCODE(0, 64), false, false, FATE_SIGNAL, 64, 192 },
	{ W_EXITCODE(0, SIGKILL), true, false, FATE_OOM, SIGKILL, 137 },
	{ W_EXITCODE(127, 0), false, true, FATE_EXEC, 127, 127 },
	{ W_EXITCODE(126, 0), false, true, FATE_EXEC, 126, 126 },
	{ W_EXITCODE(125, 0), false, true, FATE_EXEC, 125, 125 },
};

START_TEST(classify)
{
	struct ending e = { FATE_LOST, 7, 8, 9, 0 };

	outcome_classify(&e, ways[_i].status, ways[_i].oom, ways[_i].exec_failed);
	ck_assert_int_eq(e.fate, ways[_i].fate);
	ck_assert_int_eq(e.code, ways[_i].code);
	ck_assert(e.began_ns == 7 &&
		  e.clock_error_ns == 8); /* times are the caller's */
	ck_assert_int_eq(outcome_status(&e), ways[_i].runner);
}
END_TEST

START_TEST(status_of_no_process)
{
	ck_assert_int_eq(outcome_status(&(struct ending){ .fate = FATE_LOST }), 241);
	ck_assert_int_eq(outcome_status(&(struct ending){ .fate = FATE_NONE }), 0);
}
END_TEST

/* ---- the cause ---- */

#define OK(at)                                                                         \
	{                                                                              \
		FATE_OK, (at)*MS, 0, 0, 0                                              \
	}
#define RUNS                                                                           \
	{                                                                              \
		FATE_NONE, 0, 0, 0, 0                                                  \
	}
#define EXIT(code, at, error)                                                          \
	{                                                                              \
		FATE_EXIT, (at)*MS, (error)*MS, code, 0                                \
	}
#define SAID(code, at, error, said)                                                    \
	{                                                                              \
		FATE_EXIT, (at)*MS, (error)*MS, code, (said)*MS                        \
	}
#define EXEC(code, at, error)                                                          \
	{                                                                              \
		FATE_EXEC, (at)*MS, (error)*MS, code, 0                                \
	}
#define SIGNAL(signo, at, error)                                                       \
	{                                                                              \
		FATE_SIGNAL, (at)*MS, (error)*MS, signo, 0                             \
	}
#define ABORTS(at, error, said)                                                        \
	{                                                                              \
		FATE_SIGNAL, (at)*MS, (error)*MS, SIGABRT, (said)*MS                   \
	}
#define OOM(at, error)                                                                 \
	{                                                                              \
		FATE_OOM, (at)*MS, (error)*MS, SIGKILL, 0                              \
	}
#define LOST(at, error)                                                                \
	{                                                                              \
		FATE_LOST, (at)*MS, (error)*MS, 0, 0                                   \
	}

static const struct {
	const char *what;
	struct ending v[4];
	size_t n;
	long cause;
} cases[] = {
	{ "no ranks", { RUNS }, 0, -1 },
	{ "nothing ended", { RUNS, RUNS }, 2, -1 },
	{ "all well", { OK(1), OK(2), RUNS }, 3, -1 },
	{ "exit", { OK(1), EXIT(3, 5, 1), RUNS }, 3, 1 },
	{ "signal", { OK(1), RUNS, SIGNAL(SIGSEGV, 5, 1) }, 3, 2 },
	{ "oom", { OOM(5, 1), RUNS }, 2, 0 },
	{ "exec", { RUNS, EXEC(127, 5, 1) }, 2, 1 },
	{ "lost", { OK(1), LOST(9, 0) }, 2, 1 },
	{ "TERM alone", { OK(1), SIGNAL(SIGTERM, 5, 1) }, 2, 1 },
	{ "PIPE alone", { SIGNAL(SIGPIPE, 5, 1), OK(1) }, 2, 0 },
	{ "well before the failure", { OK(-100), EXIT(1, 5, 1) }, 2, 1 },

	/* far apart: the clock decides, however grave what follows */
	{ "exit, then lost", { LOST(500, 1), EXIT(1, 5, 1) }, 2, 1 },
	{ "exit, then oom", { OOM(500, 1), EXIT(1, 5, 1) }, 2, 1 },
	{ "exit, then signal", { EXIT(1, 5, 1), SIGNAL(SIGSEGV, 500, 1) }, 2, 0 },
	{ "exit, then abort", { EXIT(1, 5, 1), SIGNAL(SIGABRT, 50, 1) }, 2, 0 },

	/* who was dying when another exited: no exit kills */
	{ "killed, seen late", { EXIT(1, 5, 1), SIGNAL(SIGKILL, 300, 1) }, 2, 1 },
	{ "crashed, seen late", { SIGNAL(SIGSEGV, 50, 0), EXIT(1, 5, 0) }, 2, 0 },
	{ "out of memory, seen late", { EXIT(1, 5, 1), OOM(50, 1) }, 2, 1 },
	{ "lost, seen late", { LOST(300, 0), EXIT(1, 5, 1) }, 2, 0 },
	{ "lost, an abort before", { SIGNAL(SIGABRT, 5, 1), LOST(50, 0) }, 2, 1 },
	{ "lost, a crash before", { SIGNAL(SIGSEGV, 5, 1), LOST(50, 0) }, 2, 1 },
	{ "crash, then lost", { SIGNAL(SIGSEGV, 5, 1), LOST(500, 0) }, 2, 0 },
	{ "crash, then killed",
	  { SIGNAL(SIGSEGV, 5, 1), SIGNAL(SIGKILL, 50, 1) },
	  2,
	  0 },
	{ "killed, then lost",
	  { EXIT(1, 5, 1), LOST(60, 0), SIGNAL(SIGKILL, 50, 1) },
	  3,
	  2 },
	{ "killed, TERM before",
	  { SIGNAL(SIGTERM, 5, 1), SIGNAL(SIGKILL, 50, 1) },
	  2,
	  1 },
	{ "killed, an abort before",
	  { SIGNAL(SIGABRT, 5, 1), SIGNAL(SIGKILL, 50, 1) },
	  2,
	  1 },
	{ "killed, one said that it fails",
	  { SAID(1, 5, 1, 4), SIGNAL(SIGKILL, 50, 1) },
	  2,
	  1 },
	{ "two killed, seen late",
	  { SIGNAL(SIGKILL, 60, 1), EXIT(1, 5, 1), SIGNAL(SIGKILL, 50, 1) },
	  3,
	  2 },
	{ "TERM, then exit", { EXIT(1, 50, 1), SIGNAL(SIGTERM, 5, 1) }, 2, 1 },
	{ "exec, then signal", { SIGNAL(SIGKILL, 50, 0), EXEC(127, 5, 0) }, 2, 1 },
	{ "earlier is later in the list",
	  { EXIT(1, 9, 0), EXIT(2, 8, 0), EXIT(3, 7, 0) },
	  3,
	  2 },
	{ "before our clock began", { EXIT(1, 5, 1), EXIT(2, -5, 1) }, 2, 1 },

	/* within the clocks' error: the graver kind */
	{ "bystander before SIGKILL", { EXIT(1, 5, 1), SIGNAL(SIGKILL, 6, 1) }, 2, 1 },
	{ "lost over oom", { OOM(5, 1), LOST(6, 1) }, 2, 1 },
	{ "oom over signal", { SIGNAL(SIGSEGV, 5, 1), OOM(6, 1) }, 2, 1 },
	{ "signal over exec", { EXEC(127, 5, 1), SIGNAL(SIGSEGV, 6, 1) }, 2, 1 },
	{ "exec over exit", { EXIT(1, 5, 1), EXEC(127, 6, 1) }, 2, 1 },
	{ "exec over TERM", { SIGNAL(SIGTERM, 5, 1), EXEC(127, 6, 1) }, 2, 1 },
	{ "exec over PIPE", { EXEC(127, 6, 1), SIGNAL(SIGPIPE, 5, 1) }, 2, 0 },
	{ "signal over TERM", { SIGNAL(SIGTERM, 5, 1), SIGNAL(SIGSEGV, 6, 1) }, 2, 1 },
	{ "TERM no graver than exit", { EXIT(1, 5, 1), SIGNAL(SIGTERM, 6, 1) }, 2, 0 },
	{ "exit no graver than TERM", { EXIT(1, 6, 1), SIGNAL(SIGTERM, 5, 1) }, 2, 1 },
	{ "PIPE no graver than exit", { SIGNAL(SIGPIPE, 6, 1), EXIT(1, 5, 1) }, 2, 1 },
	{ "INT is grave", { EXIT(1, 5, 1), SIGNAL(SIGINT, 6, 1) }, 2, 1 },
	{ "OOM is no TERM", { EXIT(1, 5, 1), OOM(6, 1) }, 2, 1 },

	/* of one kind the earlier, then the lower rank */
	{ "two exits", { EXIT(1, 6, 1), EXIT(2, 5, 1) }, 2, 1 },
	{ "same moment", { OK(1), EXIT(1, 5, 1), EXIT(2, 5, 1) }, 3, 1 },
	{ "two signals", { SIGNAL(SIGABRT, 6, 1), SIGNAL(SIGSEGV, 5, 1) }, 2, 1 },

	/* who said so first, though it needed longer to end */
	{ "slow to end", { EXIT(1, 20, 1), SAID(1, 60, 1, 10) }, 2, 1 },
	{ "all said so", { SAID(1, 20, 1, 15), SAID(1, 60, 1, 10) }, 2, 1 },
	{ "an exit is soon noticed", { EXIT(3, 20, 0), SAID(1, 60, 0, 19) }, 2, 0 },
	{ "said after another's end", { EXIT(3, 20, 1), SAID(1, 60, 1, 30) }, 2, 0 },
	{ "said shortly before", { EXIT(1, 5000, 1), SAID(1, 5040, 1, 3100) }, 2, 1 },
	{ "said long before", { EXIT(1, 5000, 1), SAID(1, 5040, 1, 3000) }, 2, 0 },
	{ "no exit is outdone", { SIGNAL(SIGKILL, 20, 1), SAID(1, 60, 1, 10) }, 2, 0 },

	/* who said so and then aborts exits */
	{ "aborts after it said so", { ABORTS(20, 1, 15), SAID(1, 60, 1, 10) }, 2, 1 },
	{ "said so first, then aborts",
	  { ABORTS(20, 1, 10), SAID(1, 60, 1, 15) },
	  2,
	  0 },
	{ "an abort alone is grave",
	  { SAID(1, 20, 1, 19), SIGNAL(SIGABRT, 21, 1) },
	  2,
	  1 },
	{ "aborts long after it said so",
	  { EXIT(3, 5000, 1), ABORTS(5001, 1, 3000) },
	  2,
	  1 },
	{ "an exit before an abort", { EXIT(3, 20, 1), ABORTS(21, 1, 20) }, 2, 0 },

	/* the edges of the error */
	{ "touching", { EXIT(1, 5, 1), SIGNAL(SIGSEGV, 7, 1) }, 2, 1 },
	{ "not touching", { EXIT(1, 5, 1), SIGNAL(SIGABRT, 8, 1) }, 2, 0 },
	{ "one clock is bad", { EXIT(1, 5, 0), SIGNAL(SIGSEGV, 100, 95) }, 2, 1 },
	{ "the other is bad", { EXIT(1, 5, 95), SIGNAL(SIGSEGV, 100, 0) }, 2, 1 },
	{ "no error, same time", { EXIT(1, 5, 0), SIGNAL(SIGSEGV, 5, 0) }, 2, 1 },
	/* the bad clock of the first may not pull in what came surely after the second
	 */
	{ "three", { EXIT(1, 5, 50), EXIT(2, 10, 1), SIGNAL(SIGABRT, 20, 1) }, 3, 0 },
	{ "graver but surely later",
	  { EXIT(1, 5, 500), SIGNAL(SIGSEGV, 6, 1), LOST(490, 1) },
	  3,
	  1 },
	{ "not a failure, not a bound",
	  { OK(1), RUNS, EXIT(1, 5, 1), OOM(6, 1) },
	  4,
	  3 },
};

START_TEST(cause)
{
	long got = outcome_cause(cases[_i].v, cases[_i].n);

	ck_assert_msg(got == cases[_i].cause, "%s: %ld, not %ld", cases[_i].what, got,
		      cases[_i].cause);
}
END_TEST

/* Arrival must not matter: any order of the same endings has the same cause. */
START_TEST(cause_in_any_order)
{
	static const struct ending v[] = { EXIT(1, 5, 2), SIGNAL(SIGTERM, 4, 1),
					   SIGNAL(SIGKILL, 6, 1), LOST(40, 1), OK(1) };
	struct ending w[5];
	size_t order[5];

	for (int perm = 0; perm < 120; perm++) {
		bool used[5] = { false };
		int rest = perm;

		for (int i = 0; i < 5; i++) {
			int skip = rest % (5 - i);
			size_t k = 0;

			rest /= 5 - i;
			while (used[k] || skip--)
				k++;
			used[k] = true;
			order[i] = k;
			w[i] = v[k];
		}
		ck_assert_uint_eq(order[outcome_cause(w, 5)], 2);
	}
}
END_TEST

/* ---- signals to runner ---- */

START_TEST(after_a_signal)
{
	ck_assert_int_eq(outcome_signalled(SIGTERM, true), 0);
	ck_assert_int_eq(outcome_signalled(SIGTERM, false), 143);
	ck_assert_int_eq(outcome_signalled(SIGINT, true), 130);
	ck_assert_int_eq(outcome_signalled(SIGINT, false), 130);
	ck_assert_int_eq(outcome_signalled(SIGHUP, true), 129);
	ck_assert_int_eq(outcome_signalled(SIGPIPE, true), 141);
}
END_TEST

START_TEST(signal_names)
{
	ck_assert_str_eq(outcome_signal_name(SIGKILL), "SIGKILL");
	ck_assert_str_eq(outcome_signal_name(SIGSEGV), "SIGSEGV");
	ck_assert_str_eq(outcome_signal_name(SIGUSR1), "SIGUSR1");
	ck_assert_str_eq(outcome_signal_name(40), "signal 40");
	ck_assert_str_eq(outcome_signal_name(0), "signal 0");
	ck_assert_str_eq(outcome_signal_name(1000), "signal 1000");
}
END_TEST

#define COUNT(v) ((int)(sizeof(v) / sizeof *(v)))

int main(void)
{
	Suite *s = suite_create("outcome");
	TCase *c = tcase_create("outcome");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, classify, 0, COUNT(ways));
	tcase_add_test(c, status_of_no_process);
	tcase_add_loop_test(c, cause, 0, COUNT(cases));
	tcase_add_test(c, cause_in_any_order);
	tcase_add_test(c, after_a_signal);
	tcase_add_test(c, signal_names);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
