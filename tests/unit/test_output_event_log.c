/* launcher/output/event_log.h: events to rows.
 * takes_s: 0 */
#include <check.h>

#include "common/str.h"
#include "launcher/output/event_log.h"

static struct event_log log_;

static void teardown(void)
{
	event_log_free(&log_);
}

static void add(const char *name, double t, long rank, const char *host, long status)
{
	event_log_begin(&log_, name, t);
	if (rank >= 0)
		event_log_number(&log_, "rank", rank);
	event_log_text(&log_, "host", host);
	event_log_number(&log_, "pid", 100 + rank);
	event_log_text(&log_, "gpu", NULL);
	if (status >= 0)
		event_log_number(&log_, "status", status);
	event_log_end(&log_);
}

START_TEST(events_of_many_ranks_are_one_row)
{
	const struct event_row *row;
	struct str ranks = { 0 };

	for (long i = 0; i < 256; i++)
		add("rank started", 10 + (double)i / 100, i, i < 128 ? "n1" : "n2", -1);
	ck_assert_uint_eq(log_.n, 1);
	row = event_log_row(&log_, 0);
	ck_assert_uint_eq(row->count, 256);
	ck_assert(row->begin == 10 && row->end == 12.55);
	rank_set_print(&ranks, &row->ranks);
	ck_assert_str_eq(str_text(&ranks), "0-255");
	ck_assert_uint_eq(row->hosts.n, 2);
	ck_assert_str_eq(row->text, "");
	str_free(&ranks);
}
END_TEST

START_TEST(another_status_another_name_or_the_same_rank_again_is_another_row)
{
	add("rank ended", 1, 0, "n1", 0);
	add("rank ended", 1, 1, "n1", 7);
	add("rank ended", 2, 2, "n1", 0); /* as the first one */
	ck_assert_uint_eq(log_.n, 2);
	ck_assert_str_eq(event_log_row(&log_, 1)->text, "status 7");
	add("rank ended", 3, 0, "n1", 0);
	ck_assert_uint_eq(log_.n, 3);
	add("restart", 4, -1, NULL, -1);
	add("rank ended", 5, 3, "n1", 0);
	ck_assert_uint_eq(log_.n, 5);
	ck_assert_str_eq(event_log_row(&log_, 3)->text, ""); /* nor that before it */
	ck_assert_uint_eq(event_log_row(&log_, 0)->count, 2);
}
END_TEST

START_TEST(of_too_many_rows_the_first_and_the_last_stay)
{
	const int most = EVENT_ROWS_FIRST + EVENT_ROWS_LAST, all = 3 * most + 7;
	char name[32];

	for (int i = 0; i < all; i++) {
		snprintf(name, sizeof name, "event %d", i);
		add(name, i, -1, NULL, -1);
	}
	ck_assert_int_eq((int)log_.n, most);
	ck_assert_int_eq((int)log_.left_out, all - most);
	for (int i = 0; i < most; i++) {
		const int at = i < EVENT_ROWS_FIRST ? i : all - most + i;

		ck_assert(event_log_row(&log_, (size_t)i)->begin == at);
	}
}
END_TEST

START_TEST(a_long_text_is_cut)
{
	char *text = xcalloc(1, 65537);

	memset(text, 'x', 65536);
	event_log_begin(&log_, "cause", 1);
	event_log_text(&log_, "text", text);
	event_log_end(&log_);
	ck_assert_uint_lt(strlen(event_log_row(&log_, 0)->text), 4096);
	free(text);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("output_event_log");
	TCase *t = tcase_create("all");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, events_of_many_ranks_are_one_row);
	tcase_add_test(
		t, another_status_another_name_or_the_same_rank_again_is_another_row);
	tcase_add_test(t, of_too_many_rows_the_first_and_the_last_stay);
	tcase_add_test(t, a_long_text_is_cut);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
