#include "launcher/output/logfiles.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/str.h"

struct logfiles {
	const char *dir;
	int *fd; /* [2 * rank + (stream - 1)], -1: not open */
	uint32_t np;
	int rank_digits;
	bool keep_fds, stopped;
	logfiles_failed *failed;
	void *ctx;
};

static char *file_path(const struct logfiles *f, uint32_t rank, unsigned stream)
{
	return xasprintf("%s/rank.%0*u/%s", f->dir, f->rank_digits, rank,
			 stream == 1 ? "stdout" : "stderr");
}

void logfiles_write(struct logfiles *f, uint32_t rank, unsigned stream, const char *p,
		    size_t n)
{
	int *kept, fd;
	char *path;

	if (!f || f->stopped)
		return;
	path = file_path(f, rank, stream);
	kept = &f->fd[2 * (size_t)rank + stream - 1];
	fd = *kept;
	if (fd < 0)
		fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	while (n) {
		ssize_t done = fd < 0 ? -1 : write(fd, p, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0) {
			f->failed(f->ctx, path, errno);
			f->stopped = true;
			break;
		}
		p += done;
		n -= (size_t)done;
	}
	if (f->keep_fds)
		*kept = fd;
	else if (fd >= 0)
		close(fd);
	free(path);
}

/* PATH and the directories above it. */
static int make_dirs(const char *path, struct err *e)
{
	char *copy = xstrdup(path);
	int rc = 0;

	for (char *p = copy + 1; rc == 0 && p; p++) {
		p = strchr(p, '/');
		if (p)
			*p = '\0';
		if (mkdir(copy, 0777) && errno != EEXIST)
			rc = err_set(e, E_LOG_DIR, path, strerror(errno));
		if (!p)
			break;
		*p = '/';
	}
	free(copy);
	return rc;
}

static int make_file(struct logfiles *f, uint32_t rank, unsigned stream, struct err *e)
{
	char *path = file_path(f, rank, stream);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
	int rc = fd < 0 ? err_set(e, E_LOG_DIR, path, strerror(errno)) : 0;

	if (f->keep_fds)
		f->fd[2 * (size_t)rank + stream - 1] = fd;
	else if (fd >= 0)
		close(fd);
	free(path);
	return rc;
}

int logfiles_open(struct logfiles **files, const char *dir, uint32_t np,
		  logfiles_failed *failed, void *ctx, struct err *e)
{
	struct logfiles *f = xcalloc(1, sizeof *f);
	struct rlimit limit = { 0 };
	int rc = 0;

	*f = (struct logfiles){ .dir = dir, .np = np, .failed = failed, .ctx = ctx };
	f->rank_digits = snprintf(NULL, 0, "%u", np - 1);
	f->fd = xcalloc(2 * (size_t)np, sizeof *f->fd);
	for (size_t i = 0; i < 2 * (size_t)np; i++)
		f->fd[i] = -1;
	getrlimit(RLIMIT_NOFILE, &limit);
	f->keep_fds = 2 * (rlim_t)np + 256 < limit.rlim_cur;
	*files = f;
	for (uint32_t rank = 0; rank < np && !rc; rank++) {
		char *rank_dir = xasprintf("%s/rank.%0*u", dir, f->rank_digits, rank);

		rc = make_dirs(rank_dir, e) || make_file(f, rank, 1, e) ||
		     make_file(f, rank, 2, e);
		free(rank_dir);
	}
	return rc ? -1 : 0;
}

void logfiles_free(struct logfiles *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < 2 * (size_t)f->np; i++)
		if (f->fd[i] >= 0)
			close(f->fd[i]);
	free(f->fd);
	free(f);
}
