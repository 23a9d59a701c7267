/* common/trust: owners, modes, groups, links and folders like /tmp. */
#include <check.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/trust.h"

enum { OTHER = 54321, MAKER = 54322 };

static char dir[] = "/tmp/berth-trust.XXXXXX";
static int at;

static void put(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void enter(void)
{
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(chdir(dir) | chmod(dir, 0755), 0);
	ck_assert_int_eq(mkdir("a", 0755) | mkdir("a/b", 0755) | mkdir("c", 0755), 0);
	put("a/b/f");
	put("c/f");
	at = open(dir, O_PATH | O_CLOEXEC);
}

static void leave(void)
{
	static const char *const all[] = {
		"a/b/f", "c/f", "a/b/l", "a/b", "a", "c", dir
	};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (unlink(all[i]))
			rmdir(all[i]);
	close(at);
}

static void give(const char *path, uid_t uid, gid_t gid)
{
	ck_assert_int_eq(fchownat(AT_FDCWD, path, uid, gid, AT_SYMLINK_NOFOLLOW), 0);
}

static void allow(const char *path, mode_t mode)
{
	ck_assert_int_eq(chmod(path, mode), 0);
}

/* In a/b: to c/f. */
static void set_link(const char *to)
{
	ck_assert_int_eq(symlink(to, "a/b/l"), 0);
}

static const struct {
	const char *path; /* that is looked at, */
	const char *what; /* where WHAT is done to ON */
	const char *on;
	unsigned value;
	const char *says; /* NULL: nobody else can change it; "": it is not there */
	bool root;        /* only root can do that */
} cases[] = {
	{ "a/b/f", "", "", 0, NULL, false },
	{ "a//b/./../b/f", "", "", 0, NULL, false },
	{ "a/b/g", "", "", 0, "", false },
	{ "g/b/f", "", "", 0, "", false },
	{ "a/b/f/g", "", "", 0, "", false },
	{ "a/b/f", "mode", "a/b/f", 0646, "f' can be written by all users", false },
	{ "a/b/f", "mode", "a/b", 0757, "/a/b' can be written by all users", false },
	{ "a/b/f", "mode", "a/b", 01777, "/a/b' can be written by all users", false },
	{ "a/b/f", "mode", ".", 0757, "' can be written by all users", false },
	{ "a/b/f", "mode", "c", 0777, NULL, false },
	{ "a/b/f", "group", "a", OTHER, "/a' can be written by a group (gid 54321)",
	  true },
	{ "a/b/f", "group", "a/b/f", OTHER, "f' can be written by a group (gid 54321)",
	  true },
	{ "a/b/f", "group", "a", 0, NULL, true }, /* root's own */
	{ "a/b/f", "owner", "a/b", OTHER, "/a/b' belongs to another user (uid 54321)",
	  true },
	{ "a/b/f", "owner", "a/b/f", OTHER, "f' belongs to another user (uid 54321)",
	  true },
	{ "a/b/f", "owner", "a/b/f", MAKER, NULL, true },
	{ "a/b/f", "owner", ".", OTHER, "' belongs to another user (uid 54321)", true },
	{ "a/b/l", "link", "../../c/f", 0, NULL, false },
	{ "a/b/l", "link", "../../c/g", 0, "", false },
	{ "a/b/l", "link", "l", 0, "", false },
	{ "a/b/l", "link", "/tmp/f", 0, "'/tmp' can be written by all users", false },
	{ "a/b/l", "link", "/proc/self/exe", 0, "is a link of a process", false },
	{ "a/b/l", "link", "../../c/f", OTHER, "/l' belongs to another user", true },
};

START_TEST(who_can_change_it)
{
	const char *what = cases[_i].what, *on = cases[_i].on, *says = cases[_i].says;
	const unsigned value = cases[_i].value;
	struct str why = { 0 };
	int rc;

	if (cases[_i].root && geteuid())
		return;
	if (!strcmp(what, "mode")) {
		allow(on, value);
	} else if (!strcmp(what, "owner")) {
		give(on, value, (gid_t)-1);
	} else if (!strcmp(what, "group")) {
		give(on, (uid_t)-1, value);
		allow(on, 0775);
	} else if (!strcmp(what, "link")) {
		set_link(on);
		if (value)
			give("a/b/l", value, value);
	}
	rc = trust_path(at, cases[_i].path, MAKER, &why);
	ck_assert_msg(rc == (!says ? 1 : *says ? -1 : 0), "%d: %s", rc, str_text(&why));
	if (says && *says)
		ck_assert_msg(strstr(str_text(&why), says) != NULL, "%s",
			      str_text(&why));
	str_free(&why);
}
END_TEST

START_TEST(the_whole_way)
{
	struct str why = { 0 };
	char *path = xasprintf("%s/a/b/f", dir);

	ck_assert_int_eq(trust_path(AT_FDCWD, path, 0, &why), -1);
	ck_assert_str_eq(str_text(&why), "'/tmp' can be written by all users");
	ck_assert_int_eq(trust_path(AT_FDCWD, "/bin/sh", 0, &why), 1);
	str_free(&why);
	free(path);
}
END_TEST

/* An ordinary user, whose group is his own, or one of others too. */
START_TEST(the_group_of_a_user)
{
	struct passwd *p = NULL;
	struct group *g;
	struct str why = { 0 };

	for (setpwent(); !geteuid() && (p = getpwent());) {
		g = p->pw_uid ? getgrgid(p->pw_gid) : NULL;
		if (g && !strcmp(g->gr_name, p->pw_name) && !*g->gr_mem)
			break;
	}
	if (!p)
		return; /* there is none, or we are not root */
	give("a", p->pw_uid, p->pw_gid);
	allow("a", 0775);
	ck_assert_int_eq(trust_path(at, "a/b/f", p->pw_uid, &why), 1);
	give("a", p->pw_uid, 0); /* root's group is not his */
	ck_assert_int_eq(trust_path(at, "a/b/f", p->pw_uid, &why), 1);
	give("a", p->pw_uid, OTHER);
	ck_assert_int_eq(trust_path(at, "a/b/f", p->pw_uid, &why), -1);
	str_free(&why);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("trust");
	TCase *t = tcase_create("trust");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, enter, leave);
	tcase_add_loop_test(t, who_can_change_it, 0, sizeof cases / sizeof *cases);
	tcase_add_test(t, the_whole_way);
	tcase_add_test(t, the_group_of_a_user);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed > 0;
}
