/* trace_read.h: events of trace files, however their bytes come; what is none.
 * takes_s: 0 */
#include <check.h>

#include "common/str.h"
#include "launcher/trace/trace_read.h"

/* A file whose bytes come STEP at a time. */
struct bytes {
	const char *p;
	size_t n, step;
};

static ssize_t pull(void *ctx, void *to, size_t n)
{
	struct bytes *b = ctx;

	if (n > b->step)
		n = b->step;
	if (n > b->n)
		n = b->n;
	memcpy(to, b->p, n);
	b->p += n;
	b->n -= n;
	return (ssize_t)n;
}

/* One line for each event of TEXT, then "end", "cut" or the error. */
static char *read_all(const char *text, size_t step, size_t most)
{
	struct bytes b = { text, strlen(text), step };
	struct trace_reader *r;
	struct trace_head h;
	struct trace_event ev;
	struct str out = { 0 };
	struct err e = { 0 };
	int more;

	trace_reader_from(&r, "f", pull, &b, most);
	more = trace_reader_begin(r, &h, &e) ? -1 : 1;
	if (more > 0 && h.base_ns)
		str_addf(&out, "base %lld\n", (long long)h.base_ns);
	if (more > 0 && h.rank >= 0)
		str_addf(&out, "rank %ld\n", h.rank);
	while (more > 0 && (more = trace_reader_next(r, &ev, &e)) > 0) {
		str_addf(&out, "%c %.*s", ev.ph ? ev.ph : '?', (int)ev.name.n,
			 ev.name.n ? ev.name.s : "");
		if (ev.timed)
			str_addf(&out, " %lld+%lld", (long long)ev.ts_ns,
				 (long long)ev.dur_ns);
		str_addf(&out, " %lld:%lld %.*s\n", (long long)ev.pid,
			 (long long)ev.tid, (int)ev.args.n, ev.args.n ? ev.args.s : "");
	}
	str_add(&out, more < 0 ? e.text : trace_reader_cut(r) ? "cut" : "end");
	trace_reader_free(r);
	return str_take(&out);
}

#define BAD(place, why) "'f' is not a timeline: byte " place ": " why

static const struct {
	const char *text, *out;
} files[] = {
	{ "[]", "end" },
	{ "", "cut" },
	{ " \n", "cut" },
	{ "[", "cut" },
	{ "{\"traceEvents\":[]}", "end" },
	{ "{}", "end" },
	{ "{\"traceEvents\":[", "cut" },
	{ "[{}]", "?  0:0 \nend" },
	{ "[{\"ph\":\"X\",\"name\":\"a\",\"ts\":1.5,\"dur\":2,\"pid\":3,\"tid\":4}",
	  "X a 1500+2000 3:4 \ncut" },
	{ "[{\"ph\":\"X\",\"name\":\"a\",\"ts\":1.5,\"dur\":2,\"pid\":3,\"tid\":4}\n]"
	  "\n",
	  "X a 1500+2000 3:4 \nend" },
	{ "[{\"ph\":\"i\",\"ts\":-1.0019},{\"ph\":\"i\",\"ts\":1e3},{\"ph\":\"i\","
	  "\"ts\":null}]",
	  "i  -1001+0 0:0 \ni  1000000+0 0:0 \ni  0:0 \nend" },
	{ "[{\"args\":{\"a\":[1,{\"b\":\"}\\\"\"}]},\"name\":\"\\u00e9\xc3\xa9\"},]",
	  "? \\u00e9\xc3\xa9 0:0 {\"a\":[1,{\"b\":\"}\\\"\"}]}\nend" },
	{ "[{\"pid\":\"Spans\",\"args\":3,\"name\":7,\"x\":true,\"y\":null,\"z\":false}"
	  "]",
	  "?  27193848:0 \nend" },
	{ "{\"a\":{\"b\":[]},\"baseTimeNanoseconds\":17,\"distributedInfo\":{"
	  "\"backend\":"
	  "\"nccl\",\"rank\":3},\"traceEvents\":[{\"ph\":\"B\"}],\"traceName\":\"x\"}",
	  "base 17\nrank 3\nB  0:0 \nend" },
	{ "x", BAD("0", "neither a list nor an object") },
	{ "[x]", BAD("1", "no event") },
	{ "[[]]", BAD("1", "no event") },
	{ "[{x}]", BAD("2", "no string") },
	{ "[{\"a\" 1}]", BAD("6", "no ':' behind a key") },
	{ "[{\"a\":1 \"b\":2}]", BAD("8", "no ',' behind a value") },
	{ "[{\"a\":1,}]", BAD("8", "no string") },
	{ "[{\"a\":}]", BAD("6", "no value") },
	{ "[{\"a\":trie}]", BAD("6", "no value") },
	{ "[{\"a\":+1}]", BAD("6", "no value") },
	{ "[{\"a\":[1,]}]", BAD("9", "no value") },
	{ "[{\"a\":{\"b\":1,}}]", BAD("13", "no string") },
	{ "[{\"a\":\"\\x\"}]", BAD("7", "an escape that there is not") },
	{ "[{\"a\":\"\\u12g4\"}]", BAD("7", "an escape that there is not") },
	{ "[{\"a\":\"\n\"}]", BAD("7", "a control character in a string") },
	{ "[{\"a\":\"\xff....\"}]", BAD("7", "a string that is not UTF-8") },
	{ "[{\"a\":\"\xed\xa0\x80....\"}]", BAD("7", "a string that is not UTF-8") },
	{ "{\"traceEvents\":[],\"traceEvents\":[]}",
	  BAD("33", "a second list of events") },
	{ "{\"a\" 1}", BAD("5", "no ':' behind a key") },
};

START_TEST(files_are_read_however_they_come)
{
	const size_t n = strlen(files[_i].text);

	for (size_t step = 1; step <= n + 1; step++) {
		char *out = read_all(files[_i].text, step, 4096);

		ck_assert_str_eq(out, files[_i].out);
		free(out);
	}
}
END_TEST

/* What is cut anywhere has the events that are whole, and no error. */
START_TEST(a_file_may_end_anywhere)
{
	static const char whole[] =
		"{\"traceEvents\":[{\"ph\":\"X\",\"ts\":1,\"dur\":-12.5e0,\"name\":"
		"\"\\u00e9\xc3\xa9\",\"args\":{\"a\":[true,null]}},{\"ph\":\"E\"}],"
		"\"x\":1}";

	for (size_t n = 0; n < sizeof whole - 1; n++) {
		char *part = xstrndup(whole, n), *out = read_all(part, 7, 4096);

		ck_assert_msg(strlen(out) >= 3 && !strcmp(out + strlen(out) - 3, "cut"),
			      "%zu: %s", n, out);
		free(part);
		free(out);
	}
}
END_TEST

START_TEST(an_event_has_a_bound)
{
	struct str text = { 0 };
	char *out;

	str_add(&text, "[{\"ph\":\"E\"},{\"name\":\"");
	for (int i = 0; i < 5000; i++)
		str_add(&text, "a");
	str_add(&text, "\"}]");
	out = read_all(str_text(&text), 100, 4096);
	ck_assert_str_eq(out, "E  0:0 \n" BAD("12", "too much memory for one event or "
						    "value"));
	free(out);
	str_free(&text);
	str_add(&text, "[");
	for (int i = 0; i < 200; i++)
		str_add(&text, "{\"a\":");
	out = read_all(str_text(&text), 1000, 4096);
	ck_assert_ptr_nonnull(strstr(out, "too many objects in one another"));
	free(out);
	str_free(&text);
}
END_TEST

START_TEST(members_and_numbers)
{
	static const char object[] =
		"{\"a\": \"x y\", \"b\" : {\"c\": 1}, \"d\":-2.25}";
	const struct trace_text t = { object, sizeof object - 1 };
	struct trace_text key, v;
	size_t at = 0;
	int64_t ns;
	uint64_t n;

	ck_assert(trace_member(&t, &at, &key, &v) && trace_is(&key, "a") &&
		  trace_is(&v, "x y") && !trace_number(&v, &n));
	ck_assert(trace_member(&t, &at, &key, &v) && trace_is(&v, "{\"c\": 1}"));
	ck_assert(trace_member(&t, &at, &key, &v) && trace_thousandths(&v, &ns));
	ck_assert_int_eq(ns, -2250);
	ck_assert(!trace_member(&t, &at, &key, &v));
	v = (struct trace_text){ "18446744073709551615", 20 };
	ck_assert(trace_number(&v, &n) == (n == UINT64_MAX));
	ck_assert(!trace_thousandths(&v, &ns));
	v = (struct trace_text){ "18446744073709551616", 20 };
	ck_assert(!trace_number(&v, &n));
	v = (struct trace_text){ "1e300", 5 };
	ck_assert(!trace_thousandths(&v, &ns));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("trace_read");
	TCase *t = tcase_create("trace_read");
	SRunner *run = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, files_are_read_however_they_come, 0,
			    sizeof files / sizeof *files);
	tcase_add_test(t, a_file_may_end_anywhere);
	tcase_add_test(t, an_event_has_a_bound);
	tcase_add_test(t, members_and_numbers);
	suite_add_tcase(s, t);
	srunner_run_all(run, CK_ENV);
	failed = srunner_ntests_failed(run);
	srunner_free(run);
	return failed != 0;
}
