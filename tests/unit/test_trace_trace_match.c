/* trace_match.h: collectives of several ranks, their critical ranks, and the bounds.
 * takes_s: 0 */
#include <check.h>

#include "common/str.h"
#include "launcher/trace/trace_match.h"

static struct str said;

static void on_joined(void *ctx, const struct trace_collective *c)
{
	(void)ctx;
	str_addf(&said, "joined %u/%u last %u waited %lld\n", c->n, c->of,
		 c->came[c->last].source, (long long)(c->last_ns - c->first_ns));
}

static void on_step(void *ctx, const struct trace_step *s)
{
	(void)ctx;
	str_addf(&said, "step %u.%llu: %u, %llu of %llu, %lld, %lld-%lld\n", s->epoch,
		 (unsigned long long)s->step, s->source, (unsigned long long)s->last,
		 (unsigned long long)s->collectives, (long long)s->waited_ns,
		 (long long)s->begin_ns, (long long)s->end_ns);
}

static const struct trace_match_events events = { on_joined, on_step };

static uint64_t add(struct trace_match *m, uint32_t source, uint64_t seq, uint64_t step,
		    uint64_t of, int64_t at_ns, int64_t waited_ns)
{
	const struct trace_op op = { .is = true, .seq = seq, .step = step, .of = of };
	const struct trace_came came = { at_ns, waited_ns, source, 0 };

	return trace_match_add(m, &op, 1, &came, at_ns + 10);
}

static void says(const char *text)
{
	ck_assert_str_eq(str_text(&said), text);
	said.len = 0;
	str_add(&said, "");
}

static void open_match(struct trace_match **m, size_t sources)
{
	said.len = 0;
	str_add(&said, "");
	trace_match_open(m, sources, &events, NULL);
}

START_TEST(collectives_are_joined_in_any_order)
{
	struct trace_match *m;

	open_match(&m, 3);
	ck_assert_uint_eq(add(m, 0, 1, 1, 2, 100, 0), add(m, 1, 1, 1, 2, 130, 0));
	says("joined 2/2 last 1 waited 30\n");
	ck_assert_uint_ne(add(m, 2, 2, 1, 3, 200, 0), add(m, 1, 3, 1, 3, 300, 0));
	add(m, 0, 2, 1, 3, 201, 50); /* it came at 151 */
	add(m, 0, 3, 1, 3, 299, 0);
	says("");
	add(m, 1, 2, 1, 3, 199, 0);
	says("joined 3/3 last 2 waited 49\n");
	add(m, 2, 3, 1, 3, 290, 0);
	says("joined 3/3 last 1 waited 10\n");
	trace_match_end(m);
	says("step 1.1: 2, 1 of 3, 49, 100-310\n");
	trace_match_free(m);
}
END_TEST

START_TEST(the_critical_rank_is_for_whom_others_wait_longest)
{
	struct trace_match *m;

	open_match(&m, 2);
	for (uint64_t i = 1; i <= 3; i++) { /* rank 0 is last twice, by little */
		add(m, 0, i, 7, 2, (int64_t)i * 1000 + (i < 3 ? 5 : 0), 0);
		add(m, 1, i, 7, 2, (int64_t)i * 1000 + (i < 3 ? 0 : 99), 0);
	}
	said.len = 0;
	trace_match_end(m);
	says("step 1.7: 1, 1 of 3, 99, 1000-3109\n");
	trace_match_free(m);
}
END_TEST

START_TEST(what_is_open_is_bounded)
{
	struct trace_match *m;

	open_match(&m, 2);
	for (uint64_t i = 1; i <= 10000; i++)
		add(m, 0, i, i, 2, (int64_t)i, 0);
	says("");
	add(m, 0, 10001, 10001, 2, 10001, 0);
	says("joined 1/2 last 0 waited 0\n");
	add(m, 1, 1, 1, 2, 1,
	    0); /* too late: it is another one, and takes the place of a second */
	says("joined 1/2 last 0 waited 0\n");
	add(m, 1, 3, 3, 2, 3, 0);
	says("joined 2/2 last 0 waited 0\n");
	trace_match_free(m);

	open_match(&m, 1 << 15); /* a file that says the same again and again */
	for (int i = 0; i < 3 << 20; i++)
		add(m, 0, 1, 1, UINT64_MAX, i, 0);
	ck_assert_int_lt((int)said.len, 500);
	trace_match_free(m);
}
END_TEST

START_TEST(few_steps_are_open)
{
	struct trace_match *m;

	open_match(&m, 2);
	for (uint64_t i = 9; i-- > 0;) {
		add(m, 0, i, i, 2, (int64_t)i * 10, 0);
		add(m, 1, i, i, 2, (int64_t)i * 10, 0);
	}
	ck_assert_ptr_nonnull(strstr(str_text(&said), "step 1.1: "));
	ck_assert_ptr_null(strstr(str_text(&said), "step 1.2: "));
	said.len = 0;
	trace_match_end(m);
	ck_assert_ptr_nonnull(strstr(str_text(&said), "step 1.0: 0, 1 of 1, 0, 0-10\n"
						      "step 1.2: "));
	trace_match_free(m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("trace_match");
	TCase *t = tcase_create("trace_match");
	SRunner *run = srunner_create(s);
	int failed;

	tcase_add_test(t, collectives_are_joined_in_any_order);
	tcase_add_test(t, the_critical_rank_is_for_whom_others_wait_longest);
	tcase_add_test(t, what_is_open_is_bounded);
	tcase_add_test(t, few_steps_are_open);
	suite_add_tcase(s, t);
	srunner_run_all(run, CK_ENV);
	failed = srunner_ntests_failed(run);
	srunner_free(run);
	str_free(&said);
	return failed != 0;
}
