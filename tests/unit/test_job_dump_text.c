/* Dumps as text: what is alike, what is said of it.
 * takes_s: 0 */
#include <check.h>
#include <stdlib.h>

#include "launcher/job/dump_text.h"

#define IN "allreduce \"grad\" of 1024 f32, sum, begun 312 s ago"

static struct dump_rank v[16];
static struct str out;

static void setup(void)
{
	for (uint32_t i = 0; i < 16; i++)
		v[i] = (struct dump_rank){
			.host = i < 8 ? "n1" : "n2",
			.lives = true,
			.known = true,
			.state = i % 2 ? 'R' : 'S',
			.wchan = "",
			.stack = "/usr/lib/python3.11/threading.py:1 wait\n"
				 "/home/u/train.py:212 backward\n",
			.why = "",
			.op = IN,
			.set = 0,
			.seq = 120049,
			.runs = true,
			.ordered = true,
			.last = "",
		};
}

static void teardown(void)
{
	str_free(&out);
}

static const char *text(uint32_t np, uint64_t before_ms)
{
	const struct dump_facts f = {
		.job = "7f3a", .v = v, .np = np, .before_ms = before_ms
	};

	out.len = 0;
	dump_text(&out, &f);
	return str_text(&out);
}

static void says(const char *what)
{
	ck_assert_msg(strstr(str_text(&out), what), "%s\nlacks: %s", str_text(&out),
		      what);
}

/* One in NFS, one that took another branch. */
START_TEST(the_fewest_first)
{
	v[5] = (struct dump_rank){ .host = "n1",
				   .lives = true,
				   .known = true,
				   .state = 'D',
				   .wchan = "nfs_wait",
				   .stack = "/home/u/data.py:88 next\n",
				   .why = "",
				   .op = "broadcast of 4 f32, done 300 s ago",
				   .seq = 120048,
				   .ordered = true,
				   .behind = 14,
				   .last = "nfs: server",
				   .quiet_ms = 31200 };
	v[9].op = "broadcast of 4 f32, begun 300 s ago";
	v[9].stack = "/home/u/eval.py:40 evaluate\n";
	text(16, 0);
	says("runner: dump of job 7f3a: 16 ranks, 16 running\n"
	     "  1 rank  [5]  last broadcast of 4 f32, done 300 s ago (#120048)  "
	     "data.py:88 next  state D in nfs_wait  on 'n1'\n"
	     "  1 rank  [9]  in broadcast of 4 f32, begun 300 s ago (#120049)  "
	     "eval.py:40 evaluate  state R  on 'n2'\n"
	     "  14 ranks  [0-4,6-8,10-15]  in " IN " (#120049)  train.py:212 backward\n"
	     "read this as\n"
	     "  rank 5 is blocked in the kernel (state D), in nfs_wait: 14 ranks wait "
	     "for it; look at /home/u/data.py:88\n"
	     "  rank 9 is in broadcast of 4 f32, where others are in allreduce "
	     "\"grad\" "
	     "of 1024 f32, sum (#120049); look at /home/u/eval.py:40\n"
	     "stacks, innermost first\n"
	     "  rank 5, last output 31.2 s ago; stderr: nfs: server\n"
	     "    /home/u/data.py:88 next\n");
}
END_TEST

/* Nothing is said where nothing follows: all alike, none known, half and half. */
START_TEST(nothing_is_guessed)
{
	ck_assert(!strstr(text(16, 0), "read this as"));
	v[3].known = false;
	v[4].lives = false;
	ck_assert(!strstr(text(16, 0), "read this as"));
	says("1 rank  [3]  no answer  on 'n1'");
	says("1 rank  [4]  not running  on 'n1'");
	setup();
	for (uint32_t i = 0; i < 16; i++)
		v[i].ordered = false; /* the numbers do not say */
	v[9].op = "broadcast of 4 f32, begun 300 s ago";
	ck_assert(!strstr(text(16, 0), "where others"));
	setup();
	v[9].op = "broadcast of 4 f32, begun 300 s ago";
	v[9].set = 3; /* another set has its own numbers */
	ck_assert(!strstr(text(16, 0), "where others"));
	setup();
	v[1].op = "broadcast of 4 f32, begun 300 s ago"; /* one against one */
	ck_assert(!strstr(text(2, 0), "where others"));
}
END_TEST

START_TEST(slow_or_stuck)
{
	for (uint32_t i = 0; i < 16; i++)
		v[i].was = true;
	text(16, 30100);
	says("since the last dump, 30.1 s ago, no rank has begun or ended an "
	     "operation");
	v[2].moved = v[3].moved = true;
	text(16, 30100);
	says("2 of 16 ranks have begun or ended operations: slow, not stuck [2-3]");
	ck_assert(!strstr(text(16, 0), "since the last dump"));
}
END_TEST

START_TEST(why_there_is_no_stack)
{
	v[0].stack = "";
	v[0].why = "it is stopped";
	v[0].state = 'T';
	text(16, 0);
	says("rank 0 is stopped (state T)\n");
	says("no stack: it is stopped");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("dump_text");
	TCase *t = tcase_create("dump_text");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, the_fewest_first);
	tcase_add_test(t, nothing_is_guessed);
	tcase_add_test(t, slow_or_stuck);
	tcase_add_test(t, why_there_is_no_stack);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
