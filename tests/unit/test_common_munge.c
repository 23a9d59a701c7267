/* munge.h: who opens a credential, and for how long; with tests/helpers/libmunge.c in
 * place of libmunge.  tests/cluster/secrets.bats has the real one. */
#include <check.h>
#include <dirent.h>
#include <dlfcn.h>
#include <unistd.h>

#include "common/munge.h"

static char folder[] = "/tmp/test_common_munge.XXXXXX";
static const char call[] = "all\0that an agent acts on";
static bool installed;

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags)
{
	const char *build = getenv("BUILD");
	char *path;
	void *library;

	ck_assert_str_eq(name, "libmunge.so.2");
	if (!installed)
		return NULL;
	path = xasprintf("%s/helpers/libmunge.so", build ? build : "build");
	library = __real_dlopen(path, flags);
	ck_assert_msg(library != NULL, "%s", dlerror());
	free(path);
	return library;
}

static void put(const char *name, const char *text)
{
	char *path = xasprintf("%s/%s", folder, name);
	FILE *f = fopen(path, "we");

	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	ck_assert_int_eq(fclose(f), 0);
	free(path);
}

static void empty(void)
{
	DIR *d = opendir(folder);

	for (struct dirent *f; d && (f = readdir(d));)
		unlinkat(dirfd(d), f->d_name, 0);
	closedir(d);
}

static void setup(void)
{
	setenv("STANDIN_MUNGE", folder, 1);
	put("key", "of the cluster");
	installed = true;
}

static char *wrapped(void)
{
	struct str why = { 0 };
	char *credential = munge_wrap(NULL, call, sizeof call, &why);

	ck_assert_msg(credential != NULL, "%s", str_text(&why));
	ck_assert_uint_eq(why.len, 0);
	return credential;
}

static void opens(const char *socket, const char *credential)
{
	struct str why = { 0 };
	struct buf out = { 0 };

	buf_add(&out, "before", 6);
	ck_assert_msg(!munge_unwrap(socket, credential, &out, &why), "%s",
		      str_text(&why));
	ck_assert_uint_eq(out.len, 6 + sizeof call);
	ck_assert(!memcmp(buf_head(&out), "before", 6));
	ck_assert(!memcmp(buf_head(&out) + 6, call, sizeof call));
	buf_free(&out);
}

static void refused(const char *credential, const char *text)
{
	struct str why = { 0 };
	struct buf out = { 0 };

	ck_assert_int_eq(munge_unwrap(NULL, credential, &out, &why), -1);
	ck_assert_msg(strstr(str_text(&why), text) != NULL, "%s", str_text(&why));
	ck_assert_uint_eq(out.len, 0);
	str_free(&why);
}

START_TEST(opened_more_than_once)
{
	char *credential = wrapped();

	for (int i = 0; i < 3; i++)
		opens(NULL, credential);
	free(credential);
}
END_TEST

/* By what munged says of it (its own limit is 300 s here), and by how old it is.  Text:
 * it is refused. */
static const struct age_case {
	const char *age, *text;
} ages[] = {
	{ "0", NULL },
	{ "299", NULL },
	{ "310", NULL }, /* EXPIRED, and young enough */
	{ "3600", NULL },
	{ "3890", NULL }, /* an hour, and the clocks differ */
	{ "3910", "the credential is 391" },
	{ "40000", "the credential is 4000" },
	{ "-290", NULL },
	{ "-320", "the clock here is 3" },
	{ "-3600", "the clock here is 3" }, /* REWOUND */
};

START_TEST(an_hour_and_five_minutes)
{
	char *credential = wrapped();

	put("age", ages[_i].age);
	if (ages[_i].text)
		refused(credential, ages[_i].text);
	else
		opens(NULL, credential);
	free(credential);
}
END_TEST

START_TEST(of_another_user)
{
	char *credential;

	put("uid", "2002");
	credential = wrapped();
	refused(credential, "user 2002 made the credential");
	put("age", "310");
	refused(credential, "user 2002 made the credential");
	free(credential);
}
END_TEST

START_TEST(changed)
{
	char *credential = wrapped();
	const size_t n = strlen(credential);

	for (size_t i = 6; i + 1 < n; i++) {
		const char was = credential[i];

		credential[i] = was == '0' ? '1' : '0';
		refused(credential, "MUNGE: ");
		credential[i] = was;
	}
	opens(NULL, credential);
	put("key", "of another cluster");
	refused(credential, "MUNGE: ");
	free(credential);
}
END_TEST

START_TEST(munged_is_down)
{
	struct str why = { 0 };
	char *credential = wrapped(), *key = xasprintf("%s/key", folder);

	ck_assert_int_eq(unlink(key), 0);
	refused(credential, "MUNGE: the stand-in is down");
	ck_assert_ptr_null(munge_wrap(NULL, call, sizeof call, &why));
	ck_assert_str_eq(str_text(&why), "MUNGE: the stand-in is down");
	str_free(&why);
	free(credential);
	free(key);
}
END_TEST

START_TEST(at_another_socket)
{
	struct str why = { 0 };
	char *credential;

	put("socket", "/run/munge/other");
	ck_assert_ptr_null(munge_wrap(NULL, call, sizeof call, &why));
	str_free(&why);
	credential = munge_wrap("/run/munge/other", call, sizeof call, &why);
	ck_assert_ptr_nonnull(credential);
	refused(credential, "MUNGE: ");
	opens("/run/munge/other", credential);
	free(credential);
}
END_TEST

START_TEST(not_installed)
{
	struct str why = { 0 };

	installed = false;
	ck_assert_ptr_null(munge_wrap(NULL, call, sizeof call, &why));
	ck_assert_str_eq(str_text(&why), "libmunge.so.2 is not installed");
	str_free(&why);
	refused("MUNGE:00:", "libmunge.so.2 is not installed");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("munge");
	TCase *c = tcase_create("munge");
	SRunner *r = srunner_create(s);
	int failed;

	if (!mkdtemp(folder))
		return 1;
	tcase_add_checked_fixture(c, setup, empty);
	tcase_add_test(c, opened_more_than_once);
	tcase_add_loop_test(c, an_hour_and_five_minutes, 0, sizeof ages / sizeof *ages);
	tcase_add_test(c, of_another_user);
	tcase_add_test(c, changed);
	tcase_add_test(c, munged_is_down);
	tcase_add_test(c, at_another_socket);
	tcase_add_test(c, not_installed);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	empty();
	rmdir(folder);
	return failed != 0;
}
