#include "lib/base/ours.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

bool ours_peer(int fd)
{
	struct ucred u;
	socklen_t bytes = sizeof u;

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &bytes) &&
	       u.uid == geteuid();
}

/* Cuts off FD.  Returns NULL, or why it did not. */
static const char *ours_refusal(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return strerror(errno);
	if (!S_ISREG(st.st_mode))
		return "it is not a regular file";
	if (st.st_uid != geteuid())
		return "it belongs to another user";
	if (st.st_nlink != 1)
		return "it has another name as well (a hard link)";
	return ftruncate(fd, 0) ? strerror(errno) : NULL;
}

int ours_create(const char *path, char *why, size_t why_bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	const char *no;

	if (fd >= 0)
		return fd;
	/* with O_NONBLOCK, a FIFO without a reader is an error */
	if (errno == EEXIST)
		fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	no = fd >= 0          ? ours_refusal(fd)
	     : errno == ELOOP ? "it is a link"
	     : errno == ENXIO ? "it is not a regular file"
			      : strerror(errno);
	if (!no)
		return fd;
	snprintf(why, why_bytes, "%s", no);
	if (fd >= 0)
		close(fd);
	return -1;
}
