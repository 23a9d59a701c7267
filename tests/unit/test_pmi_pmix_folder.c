/* agent/pmi/pmix_folder: made, locked, and removed by whatever is left. */
#include "agent/pmi/pmix_folder.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/str.h"

static char parent[64];

static void setup(void)
{
	snprintf(parent, sizeof parent, "/tmp/berth-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(parent));
	setenv("TMPDIR", parent, 1);
}

static void teardown(void)
{
	ck_assert_msg(!rmdir(parent), "%s is not empty", parent);
}

/* "PARENT/NAME", until the next but three. */
static const char *in(const char *folder, const char *name)
{
	static char path[4][512];
	static size_t n;

	n = (n + 1) % 4;
	snprintf(path[n], sizeof path[n], "%s/%s", folder, name);
	return path[n];
}

static bool is_there(const char *path)
{
	struct stat st;

	return !lstat(path, &st);
}

static void add_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	close(fd);
}

static bool is_locked(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool locked;

	ck_assert_int_ge(fd, 0);
	locked = flock(fd, LOCK_EX | LOCK_NB);
	close(fd);
	return locked;
}

struct made {
	struct pmix_folders f;
	int lock, memory_lock;
};

static struct made make(void)
{
	struct made m = { .memory_lock = -1 };
	struct err e = { 0 };

	m.lock = pmix_folders_make(&m.f, &m.memory_lock, &e);
	ck_assert_msg(m.lock >= 0, "%s", e.text);
	return m;
}

static void unmake(struct made *m)
{
	pmix_folders_remove(&m->f);
	close(m->lock);
	if (m->memory_lock >= 0)
		close(m->memory_lock);
}

static void is_ours(const char *path, const char *folder)
{
	struct stat st;

	ck_assert(!strncmp(path, folder, strlen(folder)));
	ck_assert(!strncmp(path + strlen(folder), "/berth-pmix-", 12));
	ck_assert(!lstat(path, &st) && S_ISDIR(st.st_mode));
	ck_assert_uint_eq(st.st_mode & 07777, 0700);
	ck_assert_uint_eq(st.st_uid, geteuid());
	ck_assert(is_locked(path));
}

/* ---- made and removed ---- */

START_TEST(made_and_removed)
{
	struct pmix_folders was;
	struct made m;
	const mode_t mask = umask(0);

	m = make();
	umask(mask);
	is_ours(m.f.files, parent);
	is_ours(m.f.memory, "/dev/shm");
	ck_assert_int_ge(m.memory_lock, 0);
	was = m.f;
	unmake(&m);
	ck_assert_str_eq(m.f.files, "");
	ck_assert_str_eq(m.f.memory, "");
	ck_assert(!is_there(was.files) && !is_there(was.memory));
	pmix_folders_remove(&m.f); /* twice */
	pmix_folders_remove(NULL);
}
END_TEST

/* The guardian is the next one that tries. */
START_TEST(known_until_they_are_gone)
{
	struct pmix_folders was;
	struct made m;

	if (geteuid())
		return; /* only root can become a user that may not remove them */
	m = make();
	was = m.f;
	ck_assert(!seteuid(65534));
	pmix_folders_remove(&m.f);
	ck_assert(!seteuid(0));
	ck_assert_str_eq(m.f.files, was.files);
	ck_assert_str_eq(m.f.memory, was.memory);
	unmake(&m);
	ck_assert_str_eq(m.f.files, "");
	ck_assert_str_eq(m.f.memory, "");
	ck_assert(!is_there(was.files) && !is_there(was.memory));
}
END_TEST

START_TEST(shared_by_processes)
{
	struct pmix_folders *f = pmix_folders_shared();
	int status;

	ck_assert_ptr_nonnull(f);
	ck_assert_str_eq(f->files, "");
	if (!fork()) {
		snprintf(f->files, sizeof f->files, "x");
		_exit(0);
	}
	wait(&status);
	ck_assert_str_eq(f->files, "x");
}
END_TEST

/* A TMPDIR that is not an absolute path of a folder. */
START_TEST(no_tmpdir)
{
	struct made m;

	add_file(in(parent, "file"));
	if (_i == 0)
		unsetenv("TMPDIR");
	else
		setenv("TMPDIR",
		       _i == 1   ? ""
		       : _i == 2 ? "."
		       : _i == 3 ? in(parent, "none")
				 : in(parent, "file"),
		       1);
	m = make();
	is_ours(m.f.files, "/tmp");
	unmake(&m);
	unlink(in(parent, "file"));
}
END_TEST

START_TEST(tmpdir_is_too_long)
{
	char *path = xasprintf("%s/%0*d", parent, 230, 0);
	struct pmix_folders f = { 0 };
	int fd, memory_lock = -1;
	struct err e = { 0 };

	ck_assert(!mkdir(path, 0700));
	setenv("TMPDIR", path, 1);
	fd = pmix_folders_make(&f, &memory_lock, &e);
	ck_assert_int_ge(fd, 0);
	ck_assert(!strncmp(f.files, "/tmp/berth-pmix-", 16));
	pmix_folders_remove(&f);
	close(fd);
	close(memory_lock);
	rmdir(path);
	free(path);
}
END_TEST

/* Others could exchange the folders in it: by its mode, or, of root's tests, as its
 * owner. */
START_TEST(tmpdir_is_shared)
{
	static const struct {
		mode_t mode;
		uid_t owner;
		bool used;
	} cases[] = { { 0777, 0, false },      { 0775, 0, false },
		      { 0757, 0, false },      { 0755, 0, true },
		      { 01777, 0, true },      { 0777, 65534, false },
		      { 01777, 65534, false }, { 0755, 65534, false } };
	struct made m;

	if (cases[_i].owner && (geteuid() || chown(parent, cases[_i].owner, (gid_t)-1)))
		return;
	ck_assert(!chmod(parent, cases[_i].mode));
	m = make();
	is_ours(m.f.files, cases[_i].used ? parent : "/tmp");
	unmake(&m);
	ck_assert(!chmod(parent, 0700) && !chown(parent, geteuid(), (gid_t)-1));
}
END_TEST

START_TEST(tmpdir_takes_no_folder)
{
	struct pmix_folders f = { 0 };
	int memory_lock = -1;
	struct err e = { 0 };

	setenv("TMPDIR", "/proc", 1);
	ck_assert_int_eq(pmix_folders_make(&f, &memory_lock, &e), -1);
	ck_assert_int_eq(e.id, E_PMIX_FOLDER);
	ck_assert_str_eq(f.files, "");
	ck_assert_str_eq(f.memory, "");
	ck_assert_int_eq(memory_lock, -1);
}
END_TEST

START_TEST(all_that_is_in_them)
{
	struct made m = make();
	char deep[256];

	add_file(in(m.f.files, "file"));
	add_file(in(m.f.memory, "file"));
	snprintf(deep, sizeof deep, "%s", m.f.files);
	for (int i = 0; i < 40; i++) {
		snprintf(deep + strlen(deep), sizeof deep - strlen(deep), "/%d", i);
		ck_assert(!mkdir(deep, 0700));
		add_file(in(deep, "file"));
	}
	ck_assert(!mkfifo(in(m.f.files, "fifo"), 0600));
	ck_assert(!symlink("nowhere", in(m.f.files, "dangling")));
	unmake(&m);
}
END_TEST

/* What links lead to stays. */
START_TEST(links_are_not_followed)
{
	struct made m;

	ck_assert(!mkdir(in(parent, "other"), 0700));
	add_file(in(parent, "other/file"));
	m = make();
	ck_assert(!symlink(in(parent, "other"), in(m.f.files, "folder")));
	ck_assert(!symlink(in(parent, "other/file"), in(m.f.files, "file")));
	ck_assert(!link(in(parent, "other/file"), in(m.f.files, "hard")));
	unmake(&m);
	ck_assert(!unlink(in(parent, "other/file")));
	ck_assert(!rmdir(in(parent, "other")));
}
END_TEST

/* Another folder is there by now, of another user (root's tests) or of this one: it and
 * all that is in it stays. */
START_TEST(exchanged)
{
	struct made m;
	char files[256];

	if (_i && geteuid())
		return;
	m = make();
	snprintf(files, sizeof files, "%s", m.f.files);
	ck_assert(!rename(files, in(parent, "away")));
	ck_assert(!mkdir(files, 0777) && !mkdir(in(files, "sub"), 0777));
	add_file(in(files, "sub/file"));
	add_file(in(files, "file"));
	if (_i)
		ck_assert(!chown(files, 65534, 65534));
	pmix_folders_empty(&m.f);
	unmake(&m);
	ck_assert(!unlink(in(files, "sub/file")) && !rmdir(in(files, "sub")));
	ck_assert(!unlink(in(files, "file")) && !rmdir(files));
	ck_assert(!rmdir(in(parent, "away")));
}
END_TEST

/* A process that knows their names alone, as the PMIx server does. */
START_TEST(known_by_their_names)
{
	struct made m = make();
	struct pmix_folders f = { 0 };
	char files[256];

	snprintf(files, sizeof files, "%s", m.f.files);
	memcpy(f.files, m.f.files, sizeof f.files);
	pmix_folders_know(&f);
	ck_assert(!rename(files, in(parent, "away")) && !mkdir(files, 0700));
	pmix_folders_remove(&f);
	ck_assert(!rmdir(files) && !rename(in(parent, "away"), files));
	pmix_folders_know(&f);
	pmix_folders_remove(&f);
	ck_assert(!is_there(files));
	unmake(&m);
}
END_TEST

/* ---- what others left ---- */

/* Another agent makes its folders, and is killed. */
static struct pmix_folders left_by_another(void)
{
	int p[2], status;
	struct pmix_folders f;
	pid_t pid;

	ck_assert(!pipe(p));
	pid = fork();
	if (!pid) {
		struct made m = make();

		add_file(in(m.f.files, "file"));
		add_file(in(m.f.memory, "file"));
		_exit(write(p[1], &m.f, sizeof m.f) != sizeof m.f);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(read(p[0], &f, sizeof f), sizeof f);
	close(p[0]);
	close(p[1]);
	/* An agent of another suite may remove that in /dev/shm at any time. */
	ck_assert(is_there(in(f.files, "file")));
	return f;
}

/* An agent of another suite may just be removing what is in /dev/shm. */
static void await_end(const char *path)
{
	while (is_there(path))
		usleep(1000);
}

START_TEST(of_a_dead_agent)
{
	const struct pmix_folders f = left_by_another();
	struct made m = make();

	ck_assert(!is_there(f.files));
	await_end(f.memory);
	is_ours(m.f.files, parent);
	unmake(&m);
}
END_TEST

/* Without a PMIx server of its own; those in use stay. */
START_TEST(swept)
{
	struct made m = make();
	const struct pmix_folders f = left_by_another();

	pmix_folders_sweep();
	ck_assert(!is_there(f.files));
	await_end(f.memory);
	is_ours(m.f.files, parent);
	unmake(&m);
}
END_TEST

START_TEST(of_a_living_agent)
{
	struct made m = make(), n;

	add_file(in(m.f.files, "file"));
	add_file(in(m.f.memory, "file"));
	n = make();
	ck_assert(is_there(in(m.f.files, "file")) && is_there(in(m.f.memory, "file")));
	ck_assert_str_ne(m.f.files, n.f.files);
	ck_assert_str_ne(m.f.memory, n.f.memory);
	unmake(&n);
	is_ours(m.f.files, parent);
	unmake(&m);
}
END_TEST

/* Only root makes folders of another user. */
START_TEST(of_another_user)
{
	struct made m;
	const char *path = in(parent, "berth-pmix-abcdef");

	if (geteuid())
		return;
	ck_assert(!mkdir(path, 0755) && !chown(path, 65534, 65534));
	m = make();
	ck_assert(is_there(path));
	unmake(&m);
	ck_assert(!rmdir(in(parent, "berth-pmix-abcdef")));
}
END_TEST

/* Links, files and other names are none of ours. */
START_TEST(other_things)
{
	struct made m;

	ck_assert(!mkdir(in(parent, "other"), 0700));
	add_file(in(parent, "other/file"));
	ck_assert(!symlink(in(parent, "other"), in(parent, "berth-pmix-x")));
	add_file(in(parent, "berth-pmix-y"));
	ck_assert(!mkdir(in(parent, "berth-pmi"), 0700));
	ck_assert(!mkdir(in(parent, "a-berth-pmix-z"), 0700));
	m = make();
	unmake(&m);
	ck_assert(!unlink(in(parent, "other/file")));
	ck_assert(!rmdir(in(parent, "other")));
	ck_assert(!unlink(in(parent, "berth-pmix-x")));
	ck_assert(!unlink(in(parent, "berth-pmix-y")));
	ck_assert(!rmdir(in(parent, "berth-pmi")));
	ck_assert(!rmdir(in(parent, "a-berth-pmix-z")));
}
END_TEST

/* Agents that begin at the same time do not take each other's folders. */
START_TEST(several_at_once)
{
	enum { AGENTS = 4, TIMES = 300 };
	int status;

	for (int i = 0; i < AGENTS; i++) {
		if (fork())
			continue;
		for (int k = 0; k < TIMES; k++) {
			struct made m = make();

			ck_assert_int_ge(m.memory_lock, 0);
			is_ours(m.f.files, parent);
			is_ours(m.f.memory, "/dev/shm");
			unmake(&m);
		}
		_exit(0);
	}
	for (int i = 0; i < AGENTS; i++) {
		ck_assert_int_gt(wait(&status), 0);
		ck_assert_int_eq(status, 0);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pmix_folder");
	TCase *c = tcase_create("pmix_folder");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, c);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, made_and_removed);
	tcase_add_test(c, known_until_they_are_gone);
	tcase_add_test(c, shared_by_processes);
	tcase_add_loop_test(c, no_tmpdir, 0, 5);
	tcase_add_test(c, tmpdir_is_too_long);
	tcase_add_loop_test(c, tmpdir_is_shared, 0, 8);
	tcase_add_test(c, tmpdir_takes_no_folder);
	tcase_add_test(c, all_that_is_in_them);
	tcase_add_test(c, links_are_not_followed);
	tcase_add_loop_test(c, exchanged, 0, 2);
	tcase_add_test(c, known_by_their_names);
	tcase_add_test(c, of_a_dead_agent);
	tcase_add_test(c, swept);
	tcase_add_test(c, of_a_living_agent);
	tcase_add_test(c, of_another_user);
	tcase_add_test(c, other_things);
	tcase_add_test(c, several_at_once);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
