/* logfiles.h, own_file.h: names of log files, those of an earlier run, and what other
 * users put in the way. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/output/events.h"
#include "launcher/output/logfiles.h"
#include "launcher/output/own_file.h"
#include "launcher/transport/callback.h"

enum { OTHER = 54321, VICTIM = 54322, NP = 12 };

/* ---- names ---- */

static const struct {
	const char *pattern;
	uint32_t rank;
	const char *out, *err; /* NULL: E_LOG_NAME */
} names[] = {
	{ "log", 3, "log/rank.03/stdout", "log/rank.03/stderr" },
	{ "a/b/", 11, "a/b//rank.11/stdout", "a/b//rank.11/stderr" },
	{ "log.%r", 3, "log.3", "log.3.err" },
	{ "log.%t", 3, "log.3", "log.3.err" },
	{ "log.%4t", 3, "log.0003", "log.0003.err" },
	{ "log.%04r.txt", 11, "log.0011.txt", "log.0011.txt.err" },
	{ "%R", 3, "03", "03.err" },
	{ "runs/%j", 3, "runs/c00kie/rank.03/stdout", "runs/c00kie/rank.03/stderr" },
	{ "%h", 3, "n1/rank.03/stdout", "n1/rank.03/stderr" },
	{ "%l", 3, "1/rank.03/stdout", "1/rank.03/stderr" },
	{ "%N.%l", 3, "n1.1", "n1.1.err" },
	{ "%h/%2l", 3, "n1/01", "n1/01.err" },
	{ "%e", 3, "7/rank.03/stdout", "7/rank.03/stderr" },
	{ "%r.%2e", 3, "3.07", "3.07.err" },
	{ "100%%/%r", 3, "100%/3", "100%/3.err" },
	{ "100%%", 3, "100%/rank.03/stdout", "100%/rank.03/stderr" },
	{ "%%r", 3, "%r/rank.03/stdout", "%r/rank.03/stderr" },
	{ "%x", 3, NULL, NULL },
	{ "%r%", 3, NULL, NULL },
	{ "%5", 3, NULL, NULL },
	{ "%99999999999r", 3, NULL, NULL },
	{ "% r", 3, NULL, NULL },
};

static struct log_names names_of(const char *pattern)
{
	struct log_names n = { pattern, "c00kie", NP, xcalloc(NP, sizeof *n.rank), 7 };

	for (uint32_t i = 0; i < NP; i++)
		n.rank[i] = (struct log_rank){ i % 2 ? "n1" : "n0", i / 2, 0 };
	return n;
}

START_TEST(name)
{
	struct log_names n = names_of(names[_i].pattern);
	const char *want[] = { names[_i].out, names[_i].err };

	for (unsigned k = 0; k < 2; k++) {
		struct str s = { 0 };
		struct err e = { 0 };
		int rc = logfiles_name(&s, &n, names[_i].rank, k + 1, &e);

		ck_assert_int_eq(rc, want[k] ? 0 : -1);
		ck_assert_int_eq(e.id, want[k] ? ERR_NONE : E_LOG_NAME);
		if (want[k])
			ck_assert_str_eq(s.s, want[k]);
		str_free(&s);
	}
	free(n.rank);
}
END_TEST

/* ---- in a folder of its own ---- */

static char folder[40];

static void to_folder(void)
{
	snprintf(folder, sizeof folder, "/tmp/berth-logfiles-XXXXXX");
	ck_assert(mkdtemp(folder) && !chdir(folder));
}

static void leave_folder(void)
{
	char *command[] = { "rm", "-rf", folder, NULL };
	pid_t pid = fork();

	if (!pid) {
		execvp(*command, command);
		_exit(1);
	}
	ck_assert(!chdir("/") && waitpid(pid, NULL, 0) == pid);
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (int)strlen(text));
	close(fd);
}

static void file_is(const char *path, const char *want)
{
	char got[256];
	int fd = open(path, O_RDONLY);
	ssize_t n;

	ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
	n = read(fd, got, sizeof got - 1);
	close(fd);
	ck_assert_int_ge(n, 0);
	got[n] = '\0';
	ck_assert_msg(!strcmp(got, want), "%s: '%s'", path, got);
}

static void on_failed(void *ctx, const char *path, int error)
{
	(void)path;
	*(int *)ctx = error;
}

/* Rank 0 writes TEXT to its files of PATTERN.  Returns the note, or "error: ". */
static char *log_text(const char *pattern, const char *text)
{
	struct log_names n = names_of(pattern);
	struct logfiles *f;
	struct str note = { 0 };
	struct err e = { 0 };
	int failed = 0;

	if (logfiles_open(&f, &n, &note, on_failed, &failed, &e)) {
		note.len = 0;
		str_addf(&note, "error: %s", e.text);
	} else {
		logfiles_write(f, 0, 1, text, strlen(text));
	}
	ck_assert_int_eq(failed, 0);
	logfiles_free(f);
	return str_take(&note);
}

START_TEST(earlier_runs_are_kept)
{
	static const char *const want[] = {
		"", "the files of an earlier run are now in 'log/run.1'",
		"the files of an earlier run are now in 'log/run.2'"
	};

	to_folder();
	ck_assert(!mkdir("log", 0755));
	write_file("log/mine", "mine");
	for (int i = 0; i < 3; i++) {
		char text[] = { (char)('a' + i), '\0' }, *note = log_text("log", text);

		ck_assert_str_eq(note, want[i]);
		free(note);
	}
	file_is("log/run.1/rank.00/stdout", "a");
	file_is("log/run.2/rank.00/stdout", "b");
	file_is("log/rank.00/stdout", "c");
	file_is("log/mine", "mine");
	leave_folder();
}
END_TEST

START_TEST(earlier_files_are_kept)
{
	static const char *const want[] = {
		"", "'log.0' of an earlier run is now 'log.0.1'",
		"'log.0' of an earlier run is now 'log.0.2'"
	};

	to_folder();
	for (int i = 0; i < 3; i++) {
		char text[] = { (char)('a' + i), '\0' },
		     *note = log_text("log.%r", text);

		ck_assert_str_eq(note, want[i]);
		free(note);
	}
	file_is("log.0.1", "a");
	file_is("log.0.2", "b");
	file_is("log.0", "c");
	file_is("log.11.err.2", "");
	leave_folder();
}
END_TEST

/* Ranks of two hosts take turns. */
START_TEST(a_folder_for_each_host)
{
	static const char *const want[] = {
		"", "the files of an earlier run are now in 'n0/run.1'"
	};

	to_folder();
	for (int i = 0; i < 2; i++) {
		char *note = log_text("%h", i ? "b" : "a");

		ck_assert_str_eq(note, want[i]);
		free(note);
	}
	file_is("n0/run.1/rank.00/stdout", "a");
	file_is("n0/rank.00/stdout", "b");
	file_is("n1/run.1/rank.11/stdout", "");
	ck_assert(access("n0/run.2", F_OK) && access("n1/run.2", F_OK));
	leave_folder();
}
END_TEST

START_TEST(a_folder_for_each_job)
{
	char *note;

	to_folder();
	note = log_text("runs/%j", "a");
	ck_assert_str_eq(note, "");
	free(note);
	file_is("runs/c00kie/rank.00/stdout", "a");
	leave_folder();
}
END_TEST

/* ---- other users ---- */

enum plant { LINK, LINK_TO_NOTHING, HARD_LINK, A_FILE, A_FIFO, A_FOLDER };

/* What another user left at PATH; "precious" is the victim's. */
static void plant(enum plant what, const char *path)
{
	int rc = what == LINK              ? symlink("../precious", path)
		 : what == LINK_TO_NOTHING ? symlink("../nothing", path)
		 : what == HARD_LINK       ? link("precious", path)
		 : what == A_FIFO          ? mkfifo(path, 0666)
		 : what == A_FOLDER        ? mkdir(path, 0777)
					   : 0;

	if (what == A_FILE)
		write_file(path, "theirs");
	ck_assert_msg(!rc, "%s: %s", path, strerror(errno));
	if (what != HARD_LINK)
		ck_assert(!fchownat(AT_FDCWD, path, OTHER, OTHER, AT_SYMLINK_NOFOLLOW));
	if (what == A_FILE || what == A_FIFO)
		ck_assert(!chmod(path, 0666));
	if (what == A_FOLDER)
		ck_assert(!chmod(path, 0777));
}

/* Each thing that can be planted, in a folder with and without its sticky bit, against
 * root and against an ordinary user. */
static const char *begin_plant(int i, enum plant *what)
{
	static char said[64];
	const bool sticky = i / 6 % 2, root = i / 12;

	if (geteuid())
		return NULL;
	*what = (enum plant)(i % 6);
	to_folder();
	ck_assert(!chmod(folder, 0755));
	ck_assert(!mkdir("shared", 0777) && !chmod("shared", sticky ? 01777 : 0777));
	write_file("precious", "precious");
	if (!root)
		ck_assert(!chown("precious", VICTIM, VICTIM) &&
			  !chown(folder, VICTIM, VICTIM));
	snprintf(said, sizeof said, "%d, %s, %s", *what, sticky ? "sticky" : "open",
		 root ? "root" : "user");
	return said;
}

static void as_victim(int i)
{
	if (!(i / 12))
		ck_assert(!setegid(VICTIM) && !seteuid(VICTIM));
}

static void as_root(void)
{
	ck_assert(!seteuid(0) && !setegid(0));
}

START_TEST(planted_events)
{
	enum plant what;
	const char *which = begin_plant(_i, &what);
	struct events *ev;
	struct err e = { 0 };
	int rc;

	if (!which)
		return;
	plant(what, "shared/events");
	as_victim(_i);
	rc = events_open(&ev, "shared/events", "c00kie", NULL, NULL, &e);
	as_root();
	ck_assert_msg(rc == -1, "%s: it was opened", which);
	ck_assert_int_eq(e.id, E_EVENTS_FILE);
	ck_assert_msg(strstr(e.text, what == HARD_LINK
					     ? "it has another name"
					     : "belongs to another user (uid 54321)"),
		      "%s: %s", which, e.text);
	file_is("precious", "precious");
	ck_assert(access("nothing", F_OK));
	if (what == A_FILE)
		file_is("shared/events", "theirs");
	leave_folder();
}
END_TEST

/* At each name that logs are written to, and in their path. */
START_TEST(planted_logs)
{
	static const struct {
		const char *at, *pattern;
	} way[] = { { "shared/log", "shared/log" },
		    { "shared/log", "shared/log/%r" },
		    { "shared/rank.00", "shared" },
		    { "shared/log.0", "shared/log.%r" } };
	enum plant what;
	const char *which = begin_plant(_i % 24, &what);
	const int w = _i / 24;
	char *note;

	if (!which)
		return;
	plant(what, way[w].at);
	as_victim(_i % 24);
	note = log_text(way[w].pattern, "text");
	as_root();
	file_is("precious", "precious");
	ck_assert(access("nothing", F_OK));
	if (what == A_FILE)
		file_is(way[w].at, "theirs");
	/* a hard link of our own file may be moved, and is then no file of the job's */
	ck_assert_msg(what == HARD_LINK ||
			      (strstr(note, "belongs to another user (uid 54321)") &&
			       strstr(note, way[w].at)),
		      "%s, %s: '%s'", which, way[w].at, note);
	free(note);
	leave_folder();
}
END_TEST

/* A file of another user is not written to in a folder of ours, either. */
START_TEST(their_file_in_our_folder)
{
	struct str why = { 0 };

	if (geteuid())
		return;
	to_folder();
	plant(A_FILE, "events");
	ck_assert_int_eq(own_file_open("events", OWN_FILE_REPLACE, &why), -1);
	ck_assert_str_eq(why.s, "it belongs to another user (uid 54321)");
	file_is("events", "theirs");
	str_free(&why);
	leave_folder();
}
END_TEST

/* What is ours may be a link, a FIFO or a device. */
START_TEST(own_names)
{
	struct str why = { 0 };
	int fd[2], out;
	char path[64], got[2];

	to_folder();
	write_file("file", "a longer text");
	ck_assert(!symlink("file", "link") && !symlink("link", "link2") &&
		  !mkdir("real", 0755) && !symlink("real", "folder") &&
		  !symlink("loop", "loop") && !pipe(fd));
	out = own_file_open("link2", OWN_FILE_REPLACE, &why);
	ck_assert(out >= 0 && write(out, "a", 1) == 1);
	close(out);
	file_is("file", "a");
	out = own_file_open("folder/x/./y/z", OWN_FILE_NEW, &why);
	ck_assert(out >= 0 && write(out, "b", 1) == 1);
	close(out);
	out = own_file_open("folder/x/y/z", OWN_FILE_APPEND, &why);
	ck_assert(out >= 0 && write(out, "c", 1) == 1);
	close(out);
	file_is("real/x/y/z", "bc");
	out = own_file_open("/dev/null", OWN_FILE_REPLACE, &why);
	ck_assert_int_ge(out, 0);
	close(out);
	snprintf(path, sizeof path, "/dev/fd/%d", fd[1]);
	out = own_file_open(path, OWN_FILE_REPLACE, &why);
	ck_assert(out >= 0 && write(out, "d", 1) == 1 && read(fd[0], got, 1) == 1);
	close(out);
	ck_assert_int_eq(own_file_open("loop", OWN_FILE_REPLACE, &why), -1);
	ck_assert_str_eq(why.s, strerror(ELOOP));
	ck_assert_int_eq(own_file_open("real", OWN_FILE_REPLACE, &why), -1);
	ck_assert_str_eq(why.s, strerror(EISDIR));
	ck_assert_int_eq(own_file_open("file/x", OWN_FILE_REPLACE, &why), -1);
	ck_assert_str_eq(why.s, strerror(ENOTDIR));
	ck_assert_int_eq(own_file_open("no/x", OWN_FILE_REPLACE, &why), -1);
	ck_assert_str_eq(why.s, strerror(ENOENT));
	ck_assert_int_eq(own_file_open("file", OWN_FILE_NEW, &why), -1);
	ck_assert_str_eq(why.s, strerror(EEXIST));
	ck_assert_int_eq(own_file_open("link", OWN_FILE_APPEND, &why), -1);
	ck_assert_str_eq(why.s, strerror(ELOOP));
	str_free(&why);
	leave_folder();
}
END_TEST

static int count_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Of two hosts in turn: as if each rank had a host of its own. */
START_TEST(descriptors_for_all_else)
{
	const rlim_t enough = 5 * NP + CALLBACK_CALLERS_MOST + 256 + 1;
	const struct rlimit limit = { enough - (rlim_t)_i, enough };
	struct log_names n = names_of("log");
	struct str note = { 0 };
	struct logfiles *f;
	struct err e = { 0 };
	const int before = count_descriptors();
	int failed = 0;

	to_folder();
	ck_assert(!setrlimit(RLIMIT_NOFILE, &limit));
	ck_assert(!logfiles_open(&f, &n, &note, on_failed, &failed, &e));
	ck_assert_int_eq(count_descriptors() - before, _i ? 0 : 2 * NP);
	logfiles_write(f, 3, 1, "a", 1);
	file_is("log/rank.03/stdout", "a");
	logfiles_free(f);
	leave_folder();
}
END_TEST

#define COUNT(v) ((int)(sizeof(v) / sizeof *(v)))

int main(void)
{
	Suite *s = suite_create("logfiles");
	TCase *c = tcase_create("logfiles");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, name, 0, COUNT(names));
	tcase_add_test(c, earlier_runs_are_kept);
	tcase_add_test(c, earlier_files_are_kept);
	tcase_add_test(c, a_folder_for_each_host);
	tcase_add_test(c, a_folder_for_each_job);
	tcase_add_loop_test(c, planted_events, 0, 24);
	tcase_add_loop_test(c, planted_logs, 0, 96);
	tcase_add_test(c, their_file_in_our_folder);
	tcase_add_test(c, own_names);
	tcase_add_loop_test(c, descriptors_for_all_else, 0, 2);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
