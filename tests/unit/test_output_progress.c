/* progress.h: the line, at any width and for any number of hosts. */
#include <check.h>

#include "launcher/output/progress.h"

enum { HOSTS = 1000 };

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

int main(void)
{
	Suite *s = suite_create("progress");
	TCase *c = tcase_create("progress");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(c, names_who_is_late);
	tcase_add_test(c, is_cut_to_the_width);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
