#include "launcher/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int file_read(struct str *out, const char *path, size_t most, bool regular)
{
	/* Opening a FIFO that has no writer would block. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | (regular ? O_NONBLOCK : 0));
	char block[16384];
	int rc = -1, saved;
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st))
		goto out;
	errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
	if (S_ISDIR(st.st_mode) || (regular && !S_ISREG(st.st_mode)))
		goto out;
	while (most > 0) {
		n = read(fd, block, most < sizeof block ? most : sizeof block);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			goto out;
		if (n == 0)
			break;
		str_addn(out, block, (size_t)n);
		most -= (size_t)n;
	}
	rc = 0;
out:
	saved = errno;
	close(fd);
	errno = saved;
	return rc;
}
