#include "launcher/output/own_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { LINKS_MAX = 40, MODE = 0666, FOLDER_MODE = 0777 };

struct walk {
	bool make; /* missing folders */
	int links; /* followed so far */
	struct str *why;
};

static int say(struct str *why, int error)
{
	why->len = 0;
	str_add(why, strerror(error));
	errno = error;
	return -1;
}

static int say_other(struct str *why, const struct stat *st)
{
	why->len = 0;
	str_addf(why, "%s belongs to another user (uid %u)",
		 S_ISLNK(st->st_mode)   ? "a link there"
		 : S_ISDIR(st->st_mode) ? "a folder there"
					: "it",
		 (unsigned)st->st_uid);
	errno = EPERM;
	return -1;
}

/* An entry ST of the folder AT. */
static bool is_trusted(int at, const struct stat *st)
{
	struct stat folder;

	return !fstat(at, &folder) &&
	       (!(folder.st_mode & S_IWOTH) || st->st_uid == geteuid() || !st->st_uid ||
		st->st_uid == folder.st_uid);
}

/* The entry NAME of AT as a descriptor for its name alone (O_PATH), and ST.  -1 with
 * WHY and errno. */
static int look(int at, const char *name, struct stat *st, struct str *why)
{
	int fd = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, st)) {
		int error = errno;

		if (fd >= 0)
			close(fd);
		return say(why, error);
	}
	if (is_trusted(at, st))
		return fd;
	close(fd);
	return say_other(why, st);
}

static int walk_path(struct walk *w, int at, const char *path, const char **last);

/* Of the link LINK in the folder AT.  The text of a link in /proc is no path, so there
 * the kernel follows it. */
static int follow(struct walk *w, int at, int link, const char *name)
{
	char target[PATH_MAX];
	struct statfs fs;
	ssize_t n;
	int fd;

	if (!fstatfs(link, &fs) && fs.f_type == PROC_SUPER_MAGIC) {
		fd = openat(at, name, O_PATH | O_CLOEXEC);
		return fd < 0 ? say(w->why, errno) : fd;
	}
	n = readlinkat(link, "", target, sizeof target - 1);
	if (n < 0 || ++w->links > LINKS_MAX)
		return say(w->why, n < 0 ? errno : ELOOP);
	target[n] = '\0';
	return walk_path(w, at, target, NULL);
}

/* From the folder AT along PATH, to its end; if LAST, to the folder of its last part.
 * The caller closes what it returns; AT stays open. */
static int walk_path(struct walk *w, int at, const char *path, const char **last)
{
	int fd = *path == '/' ? open("/", O_PATH | O_CLOEXEC)
			      : openat(at, ".", O_PATH | O_CLOEXEC);

	if (fd < 0)
		return say(w->why, errno);
	for (;;) {
		char name[NAME_MAX + 1];
		struct stat st;
		size_t n;
		int next, link;

		path += strspn(path, "/");
		n = strcspn(path, "/");
		if (last && !path[n + strspn(path + n, "/")]) {
			*last = path;
			return fd;
		}
		if (!n)
			return fd;
		if (n > NAME_MAX) {
			close(fd);
			return say(w->why, ENAMETOOLONG);
		}
		memcpy(name, path, n);
		name[n] = '\0';
		path += n;
		if (w->make && mkdirat(fd, name, FOLDER_MODE) && errno != EEXIST) {
			int error = errno;

			close(fd);
			return say(w->why, error);
		}
		next = look(fd, name, &st, w->why);
		if (next >= 0 && S_ISLNK(st.st_mode)) {
			link = next;
			next = follow(w, fd, link, name);
			close(link);
		}
		close(fd);
		if (next < 0)
			return -1;
		fd = next;
	}
}

int own_file_folder(const char *path, const char **last, struct str *why)
{
	struct walk w = { .why = why };

	return walk_path(&w, AT_FDCWD, path, last);
}

int own_file_has(int at, const char *name, struct str *why)
{
	struct stat st;
	int fd = look(at, name, &st, why);

	if (fd < 0)
		return errno == ENOENT ? 0 : -1;
	close(fd);
	return 1;
}

/* Open what LOOKED, an entry of some folder, stands for.  Only a file of ours that has
 * no other name is cut off or appended to. */
static int open_old(int looked, enum own_file how, struct str *why)
{
	char path[64];
	struct stat st;
	int fd, flags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY;

	if (fstat(looked, &st))
		return say(why, errno);
	if (S_ISREG(st.st_mode) && st.st_uid != geteuid())
		return say_other(why, &st);
	if (S_ISREG(st.st_mode) && st.st_nlink > 1) {
		why->len = 0;
		str_add(why, "it has another name as well (a hard link)");
		return -1;
	}
	if (!S_ISREG(st.st_mode) && how == OWN_FILE_APPEND)
		return say(why, EEXIST);
	if (how == OWN_FILE_REPLACE && S_ISREG(st.st_mode))
		flags |= O_TRUNC;
	/* LOOKED cannot be exchanged for another file any more */
	snprintf(path, sizeof path, "/proc/self/fd/%d", looked);
	fd = open(path, flags);
	return fd < 0 ? say(why, errno) : fd;
}

/* NAME in the folder AT: the file that is there. */
static int open_there(struct walk *w, int at, const char *name, enum own_file how)
{
	struct stat st;
	int looked = look(at, name, &st, w->why), fd = looked;

	if (looked >= 0 && S_ISLNK(st.st_mode)) {
		looked = how == OWN_FILE_REPLACE ? follow(w, at, fd, name)
						 : say(w->why, ELOOP);
		close(fd);
	}
	if (looked < 0)
		return -1;
	fd = open_old(looked, how, w->why);
	close(looked);
	return fd;
}

int own_file_open(const char *path, enum own_file how, struct str *why)
{
	struct walk w = { .make = how == OWN_FILE_NEW, .why = why };
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
		int looked = error == EEXIST ? look(at, name, &st, why) : -1;

		if (error != EEXIST || looked >= 0)
			say(why, error);
		if (looked >= 0)
			close(looked);
	} else if (fd < 0) {
		fd = open_there(&w, at, name, how);
	}
	close(at);
	return fd;
}
