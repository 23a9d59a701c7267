#include "launcher/job/dump_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

bool dump_folder_path(struct str *path, int i)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");

	if (i)
		str_addf(path, "/tmp/berth-%u", (unsigned)geteuid());
	else if (runtime && *runtime == '/')
		str_addf(path, "%s/berth", runtime);
	return path->len > 0;
}

int dump_folder_open(const char *path, bool make, struct str *why)
{
	struct stat st;
	int fd;

	if (make && mkdir(path, 0700) && errno != EEXIST)
		return -1; /* as where XDG_RUNTIME_DIR is not there */
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		if (errno == ELOOP || errno == ENOTDIR)
			str_add(why, "it is no folder");
		else if (errno != ENOENT)
			str_addf(why, "%s", strerror(errno));
		return -1;
	}
	if (fstat(fd, &st))
		str_addf(why, "%s", strerror(errno));
	else if (st.st_uid != geteuid())
		str_addf(why, "it belongs to another user (uid %u)",
			 (unsigned)st.st_uid);
	else if (st.st_mode & 077)
		str_addf(why, "other users may use it (mode %03o)",
			 (unsigned)st.st_mode & 0777);
	else
		return fd;
	close(fd);
	return -1;
}

void dump_folder_leave(const char *path)
{
	rmdir(path); /* ENOTEMPTY: other jobs run */
}

/* By the descriptor: the folder is the one that was judged, and a path of any length
 * fits. */
static struct sockaddr_un address_of(int at, const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%.64s", at, name);
	return a;
}

int dump_folder_dial(int at, const char *name)
{
	const struct sockaddr_un a = address_of(at, name);
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && !connect(fd, (const struct sockaddr *)&a, sizeof a))
		return fd;
	if (fd >= 0 && errno == ECONNREFUSED)
		unlinkat(at, name, 0);
	if (fd >= 0)
		close(fd);
	return -1;
}

int dump_folder_listen(int at, const char *name)
{
	const struct sockaddr_un a = address_of(at, name);
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && !bind(fd, (const struct sockaddr *)&a, sizeof a) &&
	    !listen(fd, 8))
		return fd;
	if (fd >= 0) {
		const int error = errno;

		close(fd);
		errno = error;
	}
	return -1;
}
