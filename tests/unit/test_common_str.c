/* str.h: strings, lists, environment lists, numbers, near words, sets. */
#include <check.h>
#include <limits.h>

#include "common/str.h"

/* ---- strings ---- */

START_TEST(string_grows)
{
	struct str s = { 0 };
	char *text;

	ck_assert_str_eq(str_text(&s), "");
	str_add(&s, "");
	ck_assert_str_eq(str_text(&s), "");
	for (int i = 0; i < 1000; i++)
		str_addf(&s, "%d,", i % 10);
	ck_assert_uint_eq(s.len, 2000);
	ck_assert_uint_eq(strlen(s.s), 2000);
	str_addn(&s, "a\0b", 3);
	ck_assert_uint_eq(s.len, 2003);
	ck_assert_int_eq(memcmp(s.s + 1998, "9,a\0b", 6), 0);
	text = str_take(&s);
	ck_assert(!s.s && !s.len && !s.cap);
	free(text);
	text = str_take(&s); /* never NULL */
	ck_assert_str_eq(text, "");
	free(text);
	str_free(&s);
}
END_TEST

START_TEST(string_formats_any_length)
{
	struct str s = { 0 };
	char *want;

	str_addf(&s, "%s", "");
	for (int n = 1; n < 300; n++) {
		str_free(&s);
		str_add(&s, "head:");
		str_addf(&s, "%0*d", n, 7);
		want = xasprintf("head:%0*d", n, 7);
		ck_assert_str_eq(str_text(&s), want);
		ck_assert_uint_eq(s.len, 5 + (size_t)n);
		free(want);
	}
	str_free(&s);
}
END_TEST

START_TEST(memory_of_no_size)
{
	void *p[] = { xmalloc(0),         xcalloc(0, 8),
		      xcalloc(8, 0),      xreallocarray(NULL, 0, 0),
		      xstrndup("abc", 0), xstrndup("abc", 9) };

	for (size_t i = 0; i < sizeof p / sizeof *p; i++)
		ck_assert_ptr_nonnull(p[i]);
	ck_assert_str_eq(p[4], "");
	ck_assert_str_eq(p[5], "abc");
	for (size_t i = 0; i < sizeof p / sizeof *p; i++)
		free(p[i]);
}
END_TEST

/* ---- lists ---- */

START_TEST(list_owns_its_strings)
{
	struct strv l = { 0 };
	char text[] = "one";

	strv_add(&l, text);
	text[0] = 'X';
	ck_assert(!strv_has(&l, "two"));
	strv_take(&l, xstrdup("two"));
	ck_assert(strv_has(&l, "two"));
	ck_assert_uint_eq(l.n, 2);
	ck_assert_str_eq(l.v[0], "one");
	ck_assert_str_eq(l.v[1], "two");
	ck_assert_ptr_null(l.v[2]);
	strv_free(&l);
	ck_assert(!l.v && !l.n);
	strv_free(&l);
}
END_TEST

static void env_is(const struct strv *l, const char *want)
{
	struct str s = { 0 };

	for (size_t i = 0; i < l->n; i++)
		str_addf(&s, "%s%s", i ? " " : "", l->v[i]);
	ck_assert_str_eq(str_text(&s), want);
	ck_assert(!l->v || !l->v[l->n]);
	str_free(&s);
}

START_TEST(environment_list)
{
	struct strv l = { 0 };

	ck_assert_ptr_null(strv_env_get(&l, "A"));
	strv_env_set(&l, "A", "1");
	strv_env_set(&l, "AB", "2");
	strv_env_set(&l, "B", "");
	env_is(&l, "A=1 AB=2 B=");
	ck_assert_str_eq(strv_env_get(&l, "A"), "1");
	ck_assert_str_eq(strv_env_get(&l, "B"), "");
	strv_env_set(&l, "A", "x=y"); /* in its old place */
	env_is(&l, "A=x=y AB=2 B=");
	ck_assert_str_eq(strv_env_get(&l, "A"), "x=y");
	strv_free(&l);
}
END_TEST

START_TEST(environment_list_with_doubles)
{
	struct strv l = { 0 };

	strv_add(&l, "A=1");
	strv_add(&l, "NOVALUE");
	strv_add(&l, "B=2");
	strv_add(&l, "A=3");
	ck_assert_str_eq(strv_env_get(&l, "A"), "1"); /* as getenv(3) does */
	ck_assert_ptr_null(strv_env_get(&l, "NOVALUE"));
	strv_env_set(&l, "A", "4"); /* the first */
	env_is(&l, "A=4 NOVALUE B=2 A=3");
	strv_free(&l);
}
END_TEST

/* ---- numbers ---- */

static const struct {
	const char *text;
	long min, max;
	int rc;
	long out;
} numbers[] = {
	{ "0", 0, 10, 0, 0 },
	{ "10", 0, 10, 0, 10 },
	{ "007", 0, 10, 0, 7 },
	{ "-3", -3, 3, 0, -3 },
	{ "9223372036854775807", LONG_MIN, LONG_MAX, 0, LONG_MAX },
	{ "-9223372036854775808", LONG_MIN, LONG_MAX, 0, LONG_MIN },
	{ "11", 0, 10, -1, 0 },
	{ "-1", 0, 10, -1, 0 },
	{ "9223372036854775808", LONG_MIN, LONG_MAX, -1, 0 },
	{ "-9223372036854775809", LONG_MIN, LONG_MAX, -1, 0 },
	{ "99999999999999999999999", 0, LONG_MAX, -1, 0 },
	{ "", 0, 10, -1, 0 },
	{ " 1", 0, 10, -1, 0 },
	{ "\t1", 0, 10, -1, 0 },
	{ "\n1", 0, 10, -1, 0 },
	{ "\r1", 0, 10, -1, 0 },
	{ "\v1", 0, 10, -1, 0 },
	{ "\f-1", -10, 10, -1, 0 },
	{ "1 ", 0, 10, -1, 0 },
	{ "1\n", 0, 10, -1, 0 },
	{ "+1", 0, 10, -1, 0 },
	{ "-", -10, 10, -1, 0 },
	{ "--1", -10, 10, -1, 0 },
	{ "- 1", -10, 10, -1, 0 },
	{ "0x1", 0, 10, -1, 0 },
	{ "1x", 0, 10, -1, 0 },
	{ "x", 0, 10, -1, 0 },
	{ "1.0", 0, 10, -1, 0 },
	{ "1e1", 0, 10, -1, 0 },
	{ "1,0", 0, 10, -1, 0 },
};

START_TEST(number)
{
	struct err e = { 0 };
	long out = 4711;
	char *want;

	ck_assert_msg(str_to_long(&out, numbers[_i].text, numbers[_i].min,
				  numbers[_i].max, &e) == numbers[_i].rc,
		      "'%s' is %s", numbers[_i].text,
		      numbers[_i].rc ? "taken" : "refused");
	if (numbers[_i].rc == 0) {
		ck_assert_int_eq(out, numbers[_i].out);
		ck_assert_int_eq(e.id, ERR_NONE);
		return;
	}
	ck_assert_int_eq(out, 4711);
	ck_assert_int_eq(e.id, E_NUMBER);
	want = xasprintf("'%s' is not a number from %ld to %ld", numbers[_i].text,
			 numbers[_i].min, numbers[_i].max);
	ck_assert_str_eq(e.text, str_plain(want));
	free(want);
}
END_TEST

/* ---- what is shown ---- */

static const struct {
	const char *text, *shown;
} plain[] = {
	{ "", "" },
	{ "as it is: \xc3\xa4, \xe2\x82\xac, \xf0\x9f\x99\x82",
	  "as it is: \xc3\xa4, \xe2\x82\xac, \xf0\x9f\x99\x82" },
	{ "two\nlines\r\n", "two?lines??" },
	{ "a\ttab\v", "a\ttab?" },
	{ "\x1b[31mred\x1b]0;title\x07\x7f", "?[31mred?]0;title??" },
	{ "C1: \xc2\x9b"
	  "31m \xc2\x80 \xc2\xa0",
	  "C1: ?31m ? \xc2\xa0" },
	{ "no UTF-8: \x9b \xff \xc3", "no UTF-8: ? ? ?" },
	{ "cut: \xe2\x82", "cut: ??" },
	{ "too long: \xc0\xaf, a surrogate: \xed\xa0\x80",
	  "too long: ??, a surrogate: ???" },
};

START_TEST(plain_text)
{
	char *text = xstrdup(plain[_i].text);

	ck_assert_ptr_eq(str_plain(text), text);
	ck_assert_str_eq(text, plain[_i].shown);
	free(text);
}
END_TEST

/* ---- near words ---- */

static const char *const words[] = { "np",      "hosts",   "hostfile",
				     "timeout", "verbose", "timestamps",
				     "tag",     "bind-to", "start-timeout" };

static const struct {
	const char *word, *nearest;
} near[] = {
	{ "np", "np" },
	{ "nq", "np" },
	{ "n", "np" },
	{ "hots", "hosts" },
	{ "host", "hosts" },
	{ "hostfiel", "hostfile" },
	{ "host-file", "hostfile" },
	{ "timeot", "timeout" },
	{ "tiemout", "timeout" },
	{ "strat-timeout", "start-timeout" },
	{ "bindto", "bind-to" },
	{ "bind_to", "bind-to" },
	{ "tga", "tag" }, /* two letters exchanged */
	{ "pn", "np" },
	{ "atgs", NULL }, /* and one more is two changes */
	{ "gat", NULL },
	{ "xyz", NULL },
	{ "completely-other", NULL },
	{ "a-word-that-is-longer-than-any-option-that-berth-has-or-ever-will-have",
	  NULL },
};

START_TEST(nearest)
{
	const char *got =
		str_nearest(near[_i].word, words, sizeof words / sizeof *words);

	ck_assert_msg(got == near[_i].nearest || (got && near[_i].nearest &&
						  !strcmp(got, near[_i].nearest)),
		      "%s: %s, not %s", near[_i].word, got ? got : "none",
		      near[_i].nearest ? near[_i].nearest : "none");
}
END_TEST

START_TEST(nearest_of_equals_is_the_first)
{
	static const char *const v[] = { "abcd", "abce", "abcf" };

	ck_assert_str_eq(str_nearest("abcx", v, 3), "abcd");
	ck_assert_str_eq(str_nearest("abcf", v, 3), "abcf");
	ck_assert_ptr_null(str_nearest("abcx", v, 0));
}
END_TEST

/* ---- sets ---- */

static const struct {
	uint64_t bits[3];
	size_t n;
	const char *text;
} sets[] = {
	{ { 0 }, 0, "" },
	{ { 0, 0, 0 }, 3, "" },
	{ { 1 }, 1, "0" },
	{ { 3 }, 1, "0-1" },
	{ { 0xd0f }, 1, "0-3,8,10-11" },
	{ { UINT64_MAX }, 1, "0-63" },
	{ { UINT64_MAX, UINT64_MAX, UINT64_MAX }, 3, "0-191" },
	{ { (uint64_t)1 << 63, 1, 0 }, 3, "63-64" },
	{ { (uint64_t)1 << 63, 2, (uint64_t)1 << 63 }, 3, "63,65,191" },
	{ { 0x5555555555555555, 0, 0 },
	  1,
	  "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44,46,48,50,52,"
	  "54,56,58,60,62" },
};

START_TEST(set_as_list)
{
	struct str s = { 0 };

	str_add_bits(&s, sets[_i].bits, sets[_i].n);
	ck_assert_str_eq(str_text(&s), sets[_i].text);
	str_free(&s);
}
END_TEST

START_TEST(set_appends)
{
	struct str s = { 0 };

	str_add(&s, "cpus ");
	str_add_bits(&s, (const uint64_t[]){ 6 }, 1);
	ck_assert_str_eq(str_text(&s), "cpus 1-2");
	str_free(&s);
}
END_TEST

START_TEST(hexadecimal)
{
	char out[9];

	str_hex(out, (const unsigned char *)"\x00\x9f\xf0\xab", 4);
	ck_assert_str_eq(out, "009ff0ab");
	str_hex(out, (const unsigned char *)"", 0);
	ck_assert_str_eq(out, "");
}
END_TEST

/* ---- secrets ---- */

static const struct {
	const char *name, *value, *want;
} secrets[] = {
	{ "PATH", "/bin", "/bin" },
	{ "HF_TOKEN", "abc", "<redacted, 3 bytes>" },
	{ "my_secret", "abc", "<redacted, 3 bytes>" },
	{ "AWS_ACCESS_KEY_ID", "", "<redacted, 0 bytes>" },
	{ "PGPASSWORD", "x", "<redacted, 1 byte>" },
	{ "GOOGLE_APPLICATION_CREDENTIALS", "x", "<redacted, 1 byte>" },
	{ "https_proxy", "http://me:pw@proxy:80", "<redacted, 21 bytes>" },
	{ "https_proxy", "http://proxy:80/a@b", "http://proxy:80/a@b" },
	{ "URL", "https://user@host/", "https://user@host/" },
};

START_TEST(values_as_printed)
{
	struct str s = { 0 };

	str_add_value(&s, secrets[_i].name, secrets[_i].value);
	ck_assert_str_eq(str_text(&s), secrets[_i].want);
	str_free(&s);
}
END_TEST

static const struct {
	const char *word;
	bool malformed;
	const char *want;
} shown[] = {
	{ "A=1", false, "A=1" },
	{ "./a", false, "./a" },
	{ "", false, "" },
	{ "HF_TOKEN=abc", false, "HF_TOKEN=<redacted, 3 bytes>" },
	{ "HF_TOKEN=", false, "HF_TOKEN=" },
	{ "HF_TOKEN", false, "HF_TOKEN" },
	{ "U=http://me:pw@h/", false, "U=<redacted, 15 bytes>" },
	{ "http://me:pw@h/?a=b", false, "http://me:pw@h/?a=b" },
	{ "MY KEY=secret", true, "MY KEY=<redacted, 6 bytes>" },
	{ "MY NAME=value", true, "MY NAME=<redacted, 5 bytes>" },
	{ "=A", true, "=<redacted, 1 byte>" },
	{ "=", true, "=" },
	{ "", true, "" },
	{ "np 3", true, "np 3" },
	{ "HF_TOKEN: abc", true, "HF_TOKEN<redacted, 5 bytes>" },
	{ "key", true, "key" },
};

START_TEST(words_as_printed)
{
	struct str s = { 0 };

	str_add_word(&s, shown[_i].word, shown[_i].malformed);
	ck_assert_str_eq(str_text(&s), shown[_i].want);
	str_free(&s);
}
END_TEST

START_TEST(clocks_agree)
{
	uint64_t a = clock_ms(), b = clock_ns() / 1000000, c = clock_ms();

	ck_assert(a <= b && b <= c && c - a < 60000);
}
END_TEST

#define COUNT(v) ((int)(sizeof(v) / sizeof *(v)))

int main(void)
{
	Suite *s = suite_create("str");
	TCase *c = tcase_create("str");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(c, string_grows);
	tcase_add_test(c, string_formats_any_length);
	tcase_add_test(c, memory_of_no_size);
	tcase_add_test(c, list_owns_its_strings);
	tcase_add_test(c, environment_list);
	tcase_add_test(c, environment_list_with_doubles);
	tcase_add_loop_test(c, number, 0, COUNT(numbers));
	tcase_add_loop_test(c, plain_text, 0, COUNT(plain));
	tcase_add_loop_test(c, nearest, 0, COUNT(near));
	tcase_add_test(c, nearest_of_equals_is_the_first);
	tcase_add_loop_test(c, set_as_list, 0, COUNT(sets));
	tcase_add_test(c, set_appends);
	tcase_add_test(c, hexadecimal);
	tcase_add_loop_test(c, values_as_printed, 0, COUNT(secrets));
	tcase_add_loop_test(c, words_as_printed, 0, COUNT(shown));
	tcase_add_test(c, clocks_agree);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
