/* launcher/insight/page.h: the page: tags in pairs, texts of any bytes, folds, sizes.
 *
 * PAGE_FOLDER=DIR keeps the pages there, for a look by eye. */
#include "launcher/insight/page.h"

#include <stdio.h>
#include <time.h>

#include "tests/unit/facts.h"

enum { MIB = 1 << 20, DEEP = 64 };

static const char *page(void)
{
	facts_out.len = 0;
	page_html(&facts, facts_to_out, NULL);
	return str_text(&facts_out);
}

static void keep(const char *name)
{
	const char *folder = getenv("PAGE_FOLDER");
	char *path = folder ? xasprintf("%s/%s.html", folder, name) : NULL;
	FILE *file = path ? fopen(path, "w") : NULL;

	if (file) {
		fwrite(facts_out.s, 1, facts_out.len, file);
		fclose(file);
	}
	free(path);
}

static void has(const char *what)
{
	ck_assert_msg(strstr(page(), what), "no %s in the page", what);
}

static size_t count(const char *what)
{
	size_t n = 0;

	for (const char *p = page(); (p = strstr(p, what)); p += strlen(what))
		n++;
	return n;
}

/* Each tag of the page is closed in its turn, each '<' begins a tag of ours, and
 * nothing names another place. */
static void is_sound(void)
{
	static const char *const void_tags[] = { "meta", "!DOCTYPE" };
	static const char *const outside[] = { "http:",   "https:", "src=", "url(",
					       "@import", "script", "//" };
	char open[DEEP][16], tag[16];
	size_t depth = 0;

	for (const char *p = page(); (p = strchr(p, '<')); p++) {
		const bool ends = p[1] == '/';
		const size_t n = strcspn(p + 1 + ends, " >/");
		bool alone = strchr(p, '>')[-1] == '/';

		ck_assert_uint_lt(n, sizeof tag);
		snprintf(tag, sizeof tag, "%.*s", (int)n, p + 1 + ends);
		for (size_t i = 0; i < 2; i++)
			alone |= !strcmp(tag, void_tags[i]);
		if (ends) {
			ck_assert_msg(depth && !strcmp(open[depth - 1], tag),
				      "</%s> at %.40s", tag, p);
			depth--;
		} else if (!alone) {
			ck_assert_uint_lt(depth, DEEP);
			memcpy(open[depth++], tag, sizeof tag);
		}
	}
	ck_assert_uint_eq(depth, 0);
	for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
		ck_assert_msg(!strstr(str_text(&facts_out), outside[i]), "%s",
			      outside[i]);
}

START_TEST(a_small_job_is_open)
{
	facts_make(4, 2, 60);
	facts_find(2, "rank 2 on 'n001': others wait for it");
	has("ended well: status 0");
	has("<b>SLOW RANK</b>");
	has("<a href=\"#r2\">rank 2</a>");
	has("id=\"r3\"");
	ck_assert_uint_eq(count("<details open><summary><span class=\"row\">"), 2);
	has(">4-7<i>rank 1</i>"); /* its CPUs */
	has(">8-15<i>free</i>");
	is_sound();
	keep("small");
}
END_TEST

START_TEST(a_failed_job)
{
	facts_make(2, 1, 5);
	facts.status = 7;
	facts.cause = "rank 1 on 'n000' failed";
	facts_rank[1].failed = true;
	has("failed: status 7");
	has("<b>CAUSE</b>");
	has("class=\"rank odd\" id=\"r1\"");
	is_sound();
}
END_TEST

START_TEST(nothing_is_known)
{
	facts_make(2, 1, 0);
	facts.nhosts = 0;
	facts_rank[0].host = facts_rank[1].host = FACTS_NO_HOST;
	facts_verdict.looked = false;
	facts.env = NULL;
	facts_app.env = NULL;
	has("no host any more");
	has("too little to look at");
	is_sound();
}
END_TEST

/* All texts that a host, a user or a program may choose. */
static void set_texts(char *text)
{
	facts.cause = facts.logs = facts_host[0].name = text;
	facts_host[0].idle = facts_host[0].certificate = text;
	facts_rank[0].gpu = facts_rank[0].gpu_name = facts_rank[0].cpus = text;
	facts_rank[0].numa = facts_rank[0].visible = facts_rank[0].why = text;
	strv_add(&facts_argv, text);
	strv_add(&facts_env, text);
	strv_add(&facts_own, text);
	facts_find(0, text);
	event_log_begin(&facts_log, "cause", 1700000001);
	event_log_text(&facts_log, "host", text);
	event_log_text(&facts_log, "text", text);
	event_log_end(&facts_log);
}

START_TEST(collectives_by_size)
{
	const struct wire_large_ops m = { .kind = "broadcast",
					  .size = 31,
					  .ops = 4,
					  .bytes = UINT64_C(12) << 30,
					  .bus_bytes = UINT64_C(12000000000),
					  .us = 6000000 };

	facts_make(2, 1, 10);
	ck_assert_ptr_null(strstr(page(), "Collectives"));
	ck_assert_ptr_null(large_add(&facts_record.rank[1].large, &m));
	ck_assert_ptr_nonnull(strstr(page(),
				     "<td>broadcast</td><td class=\"r\">2 GiB</td>"
				     "<td class=\"r\">4</td><td class=\"r\">1500</td>"
				     "<td class=\"r\">1500</td><td class=\"r\">2.00 "));
}
END_TEST

START_TEST(texts_are_only_texts)
{
	static char text[] = "</title><script>alert(1)</script>\"'><img "
			     "src=http://n/>&amp;\x01\xff\xc2\x85\x1b[2J";

	facts_make(1, 1, 3);
	set_texts(text);
	page();
	ck_assert_ptr_null(strstr(facts_out.s, "<script"));
	ck_assert_ptr_null(strstr(facts_out.s, "<img"));
	ck_assert_ptr_null(strchr(facts_out.s, '\x1b'));
	ck_assert_ptr_null(strstr(facts_out.s, "\xc2\x85"));
	has("&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&gt;&lt;img "
	    "src");
	has("&amp;amp;\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd[2J");
	keep("hostile");
}
END_TEST

START_TEST(long_texts_are_cut)
{
	char *text = xcalloc(1, 65537);

	memset(text, '<', 65536);
	facts_make(1, 1, 3);
	set_texts(text);
	ck_assert_uint_lt(strlen(page()), 200000);
	has("&lt; [cut here]");
	is_sound();
	keep("long");
	free(text);
}
END_TEST

/* A list of CPUs that a hostile host tells takes bounded memory and time. */
START_TEST(impossible_cpus)
{
	static const char *const lists[] = { "0-4294967295",
					     "99999999999999999999",
					     "3-1",
					     "1-2-3",
					     "0-9,5-2000000",
					     "-",
					     ",",
					     "0x10" };

	facts_make(1, 1, 3);
	facts_host[0].cpus = facts_host[0].gpus = UINT32_MAX;
	facts_rank[0].gpu_index = UINT32_MAX;
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		facts_rank[0].cpus = lists[i];
		is_sound();
	}
}
END_TEST

START_TEST(secrets_are_left_out)
{
	facts_make(1, 1, 3);
	strv_add(&facts_env, "HF_TOKEN=unseen1");
	strv_add(&facts_own, "AWS_SECRET_ACCESS_KEY=unseen2");
	strv_add(&facts_argv, "--password=unseen3");
	has("&lt;redacted, 7 bytes&gt;");
	ck_assert_ptr_null(strstr(page(), "unseen"));
}
END_TEST

START_TEST(an_hour_of_64_ranks)
{
	clock_t begin; /* CPU time: the machine may have other work */

	facts_make(64, 16, 3600);
	begin = clock();
	page();
	ck_assert_int_lt(clock() - begin, CLOCKS_PER_SEC);
	ck_assert_uint_lt(facts_out.len, MIB);
	is_sound();
	ck_assert_uint_eq(count("<details open><summary><span"), 0);
	keep("hour");
}
END_TEST

START_TEST(of_64_hosts_those_with_odd_ranks_are_open)
{
	facts_make(256, 64, 3600);
	facts_find(13, "rank 13 on 'n003': others wait for it");
	facts_rank[200].failed = true;
	is_sound();
	ck_assert_uint_eq(count("<details open><summary><span class=\"row\">"), 2);
	ck_assert_uint_eq(count("<details><summary><span class=\"row\">"), 62);
	ck_assert_uint_lt(facts_out.len, 4 * MIB);
	/* not all are, if all are odd */
	for (int i = 0; i < 256; i++)
		facts_rank[i].failed = true;
	ck_assert_uint_lt(count("<details open><summary><span class=\"row\">"), 16);
	for (int i = 0; i < 256; i++)
		facts_rank[i].failed = i == 200;
	page();
	keep("large");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("insight_page");
	TCase *t = tcase_create("all");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, slow_s(20));
	tcase_add_checked_fixture(t, NULL, facts_free);
	tcase_add_test(t, a_small_job_is_open);
	tcase_add_test(t, a_failed_job);
	tcase_add_test(t, nothing_is_known);
	tcase_add_test(t, collectives_by_size);
	tcase_add_test(t, texts_are_only_texts);
	tcase_add_test(t, long_texts_are_cut);
	tcase_add_test(t, impossible_cpus);
	tcase_add_test(t, secrets_are_left_out);
	tcase_add_test(t, an_hour_of_64_ranks);
	tcase_add_test(t, of_64_hosts_those_with_odd_ranks_are_open);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
