/* events.h: JSON lines, and the escaping of any bytes.
 * takes_s: 0 */
#include <check.h>
#include <fcntl.h>
#include <unistd.h>

#include "launcher/output/events.h"

#define BAD "\xef\xbf\xbd" /* U+FFFD */

static const struct {
	const char *text, *json;
} strings[] = {
	{ "", "\"\"" },
	{ "plain", "\"plain\"" },
	{ "a\"b\\c/d", "\"a\\\"b\\\\c/d\"" },
	{ "\n\r\t\b\f", "\"\\u000a\\u000d\\u0009\\u0008\\u000c\"" },
	{ "\x01\x1f\x7f", "\"\\u0001\\u001f\\u007f\"" },
	{ "\x1b[31mred", "\"\\u001b[31mred\"" },
	/* UTF-8 at the edges of its lengths */
	{ "\xc2\x80 \xdf\xbf", "\"\xc2\x80 \xdf\xbf\"" },
	{ "\xe0\xa0\x80 \xef\xbf\xbf", "\"\xe0\xa0\x80 \xef\xbf\xbf\"" },
	{ "\xed\x9f\xbf \xee\x80\x80", "\"\xed\x9f\xbf \xee\x80\x80\"" },
	{ "\xf0\x90\x80\x80 \xf4\x8f\xbf\xbf",
	  "\"\xf0\x90\x80\x80 \xf4\x8f\xbf\xbf\"" },
	/* bytes that are none, each shown for itself */
	{ "a\xff"
	  "b",
	  "\"a" BAD "b\"" },
	{ "\x80", "\"" BAD "\"" },
	{ "\xc0\xaf", "\"" BAD BAD "\"" },
	{ "\xc3", "\"" BAD "\"" },
	{ "\xc3(", "\"" BAD "(\"" },
	{ "\xe2\x82", "\"" BAD BAD "\"" },
	{ "\xe2\"", "\"" BAD "\\\"\"" },
	{ "\xf0\x9f\x98", "\"" BAD BAD BAD "\"" },
	{ "\xf8\x88\x80\x80\x80", "\"" BAD BAD BAD BAD BAD "\"" },
	/* longer than need be, a surrogate, beyond U+10FFFF: no UTF-8 (RFC 3629) */
	{ "\xe0\x80\xaf", "\"" BAD BAD BAD "\"" },
	{ "\xe0\x9f\xbf", "\"" BAD BAD BAD "\"" },
	{ "\xf0\x80\x80\xaf", "\"" BAD BAD BAD BAD "\"" },
	{ "\xf0\x8f\xbf\xbf", "\"" BAD BAD BAD BAD "\"" },
	{ "\xed\xa0\x80", "\"" BAD BAD BAD "\"" },
	{ "\xed\xbf\xbf", "\"" BAD BAD BAD "\"" },
	{ "\xf4\x90\x80\x80", "\"" BAD BAD BAD BAD "\"" },
};

START_TEST(escape)
{
	struct str s = { 0 };

	json_string(&s, strings[_i].text);
	ck_assert_str_eq(str_text(&s), strings[_i].json);
	str_free(&s);
}
END_TEST

START_TEST(escape_reads_no_further)
{
	/* a character cut off at the end of a block of its own */
	static const char *const cut[] = { "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xf0",
					   "\\" };

	for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
		struct str s = { 0 };
		char *text = xstrdup(cut[i]);

		json_string(&s, text);
		ck_assert(s.len > 2 && s.s[s.len - 1] == '"');
		free(text);
		str_free(&s);
	}
}
END_TEST

/* FILE's text; the caller's. */
static char *slurp(const char *file)
{
	struct str s = { 0 };
	char block[4096];
	int fd = open(file, O_RDONLY);
	ssize_t n;

	ck_assert_int_ge(fd, 0);
	while ((n = read(fd, block, sizeof block)) > 0)
		str_addn(&s, block, (size_t)n);
	close(fd);
	return str_take(&s);
}

/* The text after {"t": N.NNNNNN of a line. */
static const char *after_time(const char *line)
{
	double t;
	int used = 0;

	ck_assert_int_eq(sscanf(line, "{\"t\": %lf%n", &t, &used), 1);
	ck_assert(t > 1.7e9);
	return line + used;
}

START_TEST(lines)
{
	char file[] = "/tmp/berth-events-XXXXXX";
	struct err e = { 0 };
	struct events *ev;
	char *text, *second;

	close(mkstemp(file));
	ck_assert_int_eq(events_open(&ev, file, "c00kie", NULL, NULL, &e), 0);
	events_begin(ev, "rank ended");
	events_number(ev, "rank", 3);
	events_number(ev, "status", -1);
	events_text(ev, "host", "a\"b");
	events_end(ev);
	events_begin(ev, "end");
	events_end(ev);
	events_close(ev);
	text = slurp(file);
	unlink(file);
	second = strchr(text, '\n') + 1;
	ck_assert_str_eq(after_time(second),
			 ", \"job\": \"c00kie\", \"event\": \"end\"}\n");
	*second = '\0';
	ck_assert_str_eq(
		after_time(text),
		", \"job\": \"c00kie\", \"event\": \"rank ended\", \"rank\": 3, "
		"\"status\": -1, \"host\": \"a\\\"b\"}\n");
	free(text);
}
END_TEST

START_TEST(no_file)
{
	struct err e = { 0 };
	struct events *ev = (struct events *)1;

	ck_assert_int_eq(events_open(&ev, NULL, "c", NULL, NULL, &e), 0);
	ck_assert_ptr_null(ev);
	events_begin(ev, "end");
	events_number(ev, "n", 1);
	events_text(ev, "t", "x");
	events_end(ev);
	events_close(ev);
	ck_assert_int_eq(events_open(&ev, "/nonexistent/x", "c", NULL, NULL, &e), -1);
	ck_assert_ptr_null(ev);
	ck_assert_int_eq(e.id, E_EVENTS_FILE);
	ck_assert_str_eq(e.text, "cannot write --events file '/nonexistent/x': No such "
				 "file or directory");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("events");
	TCase *c = tcase_create("events");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, escape, 0, (int)(sizeof strings / sizeof *strings));
	tcase_add_test(c, escape_reads_no_further);
	tcase_add_test(c, lines);
	tcase_add_test(c, no_file);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
