/* progress.h: the line, at any width and for any number of hosts. */
#include <check.h>

#include "launcher/output/progress.h"

enum { HOSTS = 1000 };

struct conn {
	const char *why;
	bool failed;
};

static const char *waits_for(const struct conn *c, bool *failed)
{
	*failed = c->failed;
	return c->why;
}

static const struct transport told = { .name = "told", .waits_for = waits_for };
static struct conn conn[HOSTS];
static struct host host[HOSTS];
static char name[HOSTS][8];

/* Hosts n1..nN, of which those with a bit in LATE have not come up. */
static struct agents agents(size_t n, uint64_t late)
{
	for (size_t i = 0; i < n; i++) {
		snprintf(name[i], sizeof name[i], "n%zu", i + 1);
		host[i] = (struct host){ .name = name[i] };
		host[i].state = i < 64 && !(late >> i & 1) ? HOST_UP : HOST_STARTING;
	}
	return (struct agents){ .host = host, .n = n };
}

static void line_is(const struct agents *f, unsigned seconds, size_t width,
		    const char *want)
{
	char *text = progress_text(f, seconds, width);

	ck_assert_str_eq(text, want);
	ck_assert(strlen(text) < width || !width);
	free(text);
}

START_TEST(names_who_is_late)
{
	struct agents f = agents(64, 1ull << 4 | 1ull << 16 | 1ull << 32);

	line_is(&f, 3, 80,
		"runner: 61 of 64 hosts up after 3 s, waiting for n[5,17,33]");
	host[4].state = HOST_LOST; /* said at the end */
	line_is(&f, 3, 80, "runner: 61 of 64 hosts up after 3 s, waiting for n[17,33]");
	host[5].state = HOST_IDLE; /* no rank for it: never asked */
	line_is(&f, 3, 80, "runner: 60 of 63 hosts up after 3 s, waiting for n[17,33]");
}
END_TEST

START_TEST(is_cut_to_the_width)
{
	struct agents f = agents(64, 1ull << 4 | 1ull << 16 | 1ull << 32);
	char *text;

	line_is(&f, 3, 40, "runner: 61 of 64 hosts up after 3 s,...");
	line_is(&f, 3, 5, "r...");
	for (size_t width = 0; width < 5; width++)
		line_is(&f, 3, width, "");
	f = agents(HOSTS, ~0ull);
	text = progress_text(&f, 9, 200);
	ck_assert_str_eq(text, "runner: 0 of 1000 hosts up after 9 s, "
			       "waiting for n[1-256], ...");
	free(text);
}
END_TEST

/* Host I waits for WHY; FAILED: it is tried again. */
static void waits(size_t i, const char *why, bool failed)
{
	conn[i] = (struct conn){ why, failed };
	host[i].conn = &conn[i];
	host[i].transport = &told;
}

START_TEST(reasons)
{
	struct agents f = agents(8, 0xfe);
	struct err e;

	waits(1, "no answer from sshd", false);
	waits(2, "log-in", false);
	waits(3, "Connection refused", true);
	waits(4, "TLS handshake", false);
	waits(5, NULL, false);
	waits(6, "Connection refused", true);
	waits(7, "no answer from sshd", false);
	line_is(&f, 1, 200,
		"runner: 1 of 8 hosts up after 1 s, waiting for n[4,7] (connection "
		"refused), n[2,8] (no answer from sshd), n3 (log-in), n5 (TLS "
		"handshake), n6");
	f.setup.deadline_ms = clock_ms() + 29900;
	ck_assert(progress_warning(&f, 1, &e));
	ck_assert_int_eq(e.id, E_START_WAITS);
	ck_assert_str_eq(e.text, "waiting for n[4,7] (connection refused), n[2,8] (no "
				 "answer from sshd), n3 (log-in), n5 (TLS handshake), "
				 "n6, at most 30 s more");
}
END_TEST

START_TEST(a_warning_needs_a_failure_or_ten_seconds)
{
	struct agents f = agents(2, 2);
	struct err e;

	waits(1, "no answer", false);
	ck_assert(!progress_warning(&f, 1, &e));
	ck_assert(!progress_warning(&f, 9, &e));
	ck_assert(progress_warning(&f, 10, &e));
	ck_assert_str_eq(e.text, "waiting for n2 (no answer), at most 0 s more");
	waits(1, "No route to host", true);
	ck_assert(progress_warning(&f, 1, &e));
	ck_assert_str_eq(e.text, "waiting for n2 (no route to host), at most 0 s more");
	host[1].state = HOST_UP;
	ck_assert(!progress_warning(&f, 60, &e));
}
END_TEST

/* A reason of its own for each of many hosts. */
START_TEST(many_reasons)
{
	struct agents f = agents(HOSTS, ~0ull);
	static char why[HOSTS][16];
	char *text;

	for (size_t i = 0; i < HOSTS; i++) {
		snprintf(why[i], sizeof why[i], "reason %zu", i);
		waits(i, why[i], i >= 500);
	}
	text = progress_text(&f, 9, 40000);
	ck_assert(strstr(text, "waiting for n501 (reason 500), n502 (reason 501)"));
	ck_assert(strstr(text, "(reason 755), n1 (reason 0)"));
	ck_assert_str_eq(strstr(text, "n256 "), "n256 (reason 255), ...");
	free(text);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("progress");
	TCase *c = tcase_create("progress");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(c, names_who_is_late);
	tcase_add_test(c, is_cut_to_the_width);
	tcase_add_test(c, reasons);
	tcase_add_test(c, a_warning_needs_a_failure_or_ten_seconds);
	tcase_add_test(c, many_reasons);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
