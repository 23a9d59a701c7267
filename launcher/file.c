#include "launcher/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_all(struct str *out, int fd, size_t most)
{
	char block[16384];

	while (most > 0) {
		size_t want = most < sizeof block ? most : sizeof block;
		ssize_t n = read(fd, block, want);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		str_addn(out, block, (size_t)n);
		most -= (size_t)n;
	}
	return 0;
}

int file_read(struct str *out, const char *path, size_t most, bool regular)
{
	/* Opening a FIFO without a writer would wait for one. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | (regular ? O_NONBLOCK : 0));
	struct stat st;
	int rc = -1, saved;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st))
		goto out;
	errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
	if (S_ISDIR(st.st_mode) || (regular && !S_ISREG(st.st_mode)))
		goto out;
	rc = read_all(out, fd, most);
out:
	saved = errno;
	close(fd);
	errno = saved;
	return rc;
}
