#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Append what is left of FD, up to MOST bytes. */
static int read_open(struct str *out, int fd, size_t most)
{
	char block[16384];
	ssize_t n;

	while (most > 0) {
		n = read(fd, block, most < sizeof block ? most : sizeof block);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return (int)n;
		str_addn(out, block, (size_t)n);
		most -= (size_t)n;
	}
	return 0;
}

int file_read_stdin(struct str *out, size_t most)
{
	return read_open(out, STDIN_FILENO, most);
}

int file_read(struct str *out, const char *path, size_t most, bool regular)
{
	/* Opening a FIFO that has no writer would block. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | (regular ? O_NONBLOCK : 0));
	int rc = -1, saved;
	struct stat st;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st))
		goto out;
	errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
	if (S_ISDIR(st.st_mode) || (regular && !S_ISREG(st.st_mode)))
		goto out;
	rc = read_open(out, fd, most);
out:
	saved = errno;
	close(fd);
	errno = saved;
	return rc;
}

ssize_t file_start(const char *path, char *out, size_t size)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	const ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

	if (fd >= 0)
		close(fd);
	out[n < 0 ? 0 : n] = '\0';
	return n;
}

const char *file_tmp_folder(void)
{
	const char *folder = getenv("TMPDIR");

	return folder && *folder ? folder : "/tmp";
}

int file_nameless(void)
{
	char *name = xasprintf("%s/berth-XXXXXX", file_tmp_folder());
	const int fd = mkostemp(name, O_CLOEXEC), error = errno;

	if (fd >= 0)
		unlink(name);
	free(name);
	errno = error;
	return fd;
}

int file_write(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t done = write(fd, p, n);

		if (done < 0 && errno != EINTR)
			return -1;
		p += done > 0 ? done : 0;
		n -= done > 0 ? (size_t)done : 0;
	}
	return 0;
}
