#include "common/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { LINKS_MAX = 40, FOLDER_MODE = 0777 };

int walk_fail(const struct walk *w, int error)
{
	w->why->len = 0;
	str_add(w->why, strerror(error));
	errno = error;
	return -1;
}

int walk_entry(struct walk *w, int at, const char *name, struct stat *st)
{
	int fd = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, st)) {
		int error = errno;

		if (fd >= 0)
			close(fd);
		return walk_fail(w, error);
	}
	if (w->may(w, at, fd, st))
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

/* The text of a link in /proc is no path, so there
 * the kernel follows it. */
int walk_link(struct walk *w, int at, int link, const char *name)
{
	char target[PATH_MAX];
	struct statfs fs;
	ssize_t n;
	int fd;

	if (!fstatfs(link, &fs) && fs.f_type == PROC_SUPER_MAGIC) {
		fd = openat(at, name, O_PATH | O_CLOEXEC);
		return fd < 0 ? walk_fail(w, errno) : fd;
	}
	n = readlinkat(link, "", target, sizeof target - 1);
	if (n < 0 || ++w->links > LINKS_MAX)
		return walk_fail(w, n < 0 ? errno : ELOOP);
	target[n] = '\0';
	return walk_path(w, at, target, NULL);
}

int walk_path(struct walk *w, int at, const char *path, const char **last)
{
	int fd = *path == '/' ? open("/", O_PATH | O_CLOEXEC)
			      : openat(at, ".", O_PATH | O_CLOEXEC);

	if (fd < 0)
		return walk_fail(w, errno);
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
			return walk_fail(w, ENAMETOOLONG);
		}
		memcpy(name, path, n);
		name[n] = '\0';
		path += n;
		if (w->make && mkdirat(fd, name, FOLDER_MODE) && errno != EEXIST) {
			int error = errno;

			close(fd);
			return walk_fail(w, error);
		}
		next = walk_entry(w, fd, name, &st);
		if (next >= 0 && S_ISLNK(st.st_mode)) {
			link = next;
			next = walk_link(w, fd, link, name);
			close(link);
		}
		close(fd);
		if (next < 0)
			return -1;
		fd = next;
	}
}
