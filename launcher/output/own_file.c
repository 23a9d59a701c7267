#include "launcher/output/own_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/walk.h"

enum { MODE = 0666 };

static void say_other(struct str *why, const struct stat *st)
{
	why->len = 0;
	str_addf(why, "%s belongs to another user (uid %u)",
		 S_ISLNK(st->st_mode)   ? "a link there"
		 : S_ISDIR(st->st_mode) ? "a folder there"
					: "it",
		 (unsigned)st->st_uid);
}

static bool file_may(const struct walk *w, int at, int entry, const struct stat *st)
{
	struct stat folder;

	(void)entry;
	if (!fstat(at, &folder) &&
	    (!(folder.st_mode & S_IWOTH) || st->st_uid == geteuid() || !st->st_uid ||
	     st->st_uid == folder.st_uid))
		return true;
	say_other(w->why, st);
	return false;
}

int own_file_folder(const char *path, const char **last, struct str *why)
{
	struct walk w = { .may = file_may, .why = why };

	return walk_path(&w, AT_FDCWD, path, last);
}

int own_file_has(int at, const char *name, struct str *why)
{
	struct walk w = { .may = file_may, .why = why };
	struct stat st;
	int fd = walk_entry(&w, at, name, &st);

	if (fd < 0)
		return errno == ENOENT ? 0 : -1;
	close(fd);
	return 1;
}

/* Open what LOOKED, an entry of some folder, stands for.  Only a file of ours that has
 * no other name is cut off or appended to. */
static int open_old(const struct walk *w, int looked, enum own_file how)
{
	struct str *why = w->why;
	char path[64];
	struct stat st;
	int fd, flags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY;

	if (fstat(looked, &st))
		return walk_fail(w, errno);
	if (S_ISREG(st.st_mode) && st.st_uid != geteuid()) {
		say_other(why, &st);
		return -1;
	}
	if (S_ISREG(st.st_mode) && st.st_nlink > 1) {
		why->len = 0;
		str_add(why, "it has another name as well (a hard link)");
		return -1;
	}
	if (!S_ISREG(st.st_mode) && how == OWN_FILE_APPEND)
		return walk_fail(w, EEXIST);
	if (how == OWN_FILE_REPLACE && S_ISREG(st.st_mode))
		flags |= O_TRUNC;
	/* LOOKED cannot be exchanged for another file any more */
	snprintf(path, sizeof path, "/proc/self/fd/%d", looked);
	fd = open(path, flags);
	return fd < 0 ? walk_fail(w, errno) : fd;
}

/* NAME in the folder AT: the file that is there. */
static int open_there(struct walk *w, int at, const char *name, enum own_file how)
{
	struct stat st;
	int looked = walk_entry(w, at, name, &st), fd = looked;

	if (looked >= 0 && S_ISLNK(st.st_mode)) {
		looked = how == OWN_FILE_REPLACE ? walk_link(w, at, fd, name)
						 : walk_fail(w, ELOOP);
		close(fd);
	}
	if (looked < 0)
		return -1;
	fd = open_old(w, looked, how);
	close(looked);
	return fd;
}

int own_file_open(const char *path, enum own_file how, struct str *why)
{
	struct walk w = { .may = file_may, .make = how == OWN_FILE_NEW, .why = why };
	const char *name;
	int at = walk_path(&w, AT_FDCWD, path, &name), fd = -1, error = EEXIST;

	if (at < 0)
		return -1;
	w.make = false;
	if (how != OWN_FILE_APPEND) {
		fd = openat(at, name,
			    O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, MODE);
		error = errno;
	}
	if (fd < 0 && (error != EEXIST || how == OWN_FILE_NEW)) {
		struct stat st;
		int looked = error == EEXIST ? walk_entry(&w, at, name, &st) : -1;

		if (error != EEXIST || looked >= 0)
			walk_fail(&w, error);
		if (looked >= 0)
			close(looked);
	} else if (fd < 0) {
		fd = open_there(&w, at, name, how);
	}
	close(at);
	return fd;
}
