#include "launcher/job/dump_ask.h"

#include <dirent.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/file.h"
#include "launcher/job/dump_folder.h"

enum { ANSWER_MS = 15000 };

/* The jobs that were found. */
struct found {
	struct strv jobs;
	int fd;         /* the connection to the last of them */
	struct str why; /* a folder cannot be used */
};

static void find_in(struct found *f, const char *path, const char *job)
{
	const int at = dump_folder_open(path, false, &f->why);
	DIR *dir = at < 0 ? NULL : fdopendir(dup(at));
	struct dirent *d;

	if (f->why.len)
		str_addf(&f->why, ": '%s'", path);
	while (dir && f->jobs.n < DUMP_JOBS_MOST && (d = readdir(dir))) {
		int fd;

		if (*d->d_name == '.' || strncmp(d->d_name, job, strlen(job)) != 0)
			continue;
		fd = dump_folder_dial(at, d->d_name);
		if (fd < 0)
			continue;
		if (f->fd >= 0)
			close(f->fd);
		f->fd = fd;
		strv_add(&f->jobs, d->d_name);
	}
	if (dir)
		closedir(dir);
	if (at >= 0)
		close(at);
}

/* Print what comes on FD.  Bytes, or -1: it is late. */
static long copy_answer(int fd)
{
	static char part[65536];
	struct pollfd p = { .fd = fd, .events = POLLIN };
	long bytes = 0;
	ssize_t n;

	if (send(fd, DUMP_WORD, strlen(DUMP_WORD), MSG_NOSIGNAL) < 0)
		return -1;
	do {
		if (poll(&p, 1, ANSWER_MS) < 1)
			return -1;
		n = recv(fd, part, sizeof part, 0);
		if (n > 0 && file_write(STDOUT_FILENO, part, (size_t)n))
			return bytes + 1;
		bytes += n > 0 ? n : 0;
	} while (n > 0);
	return bytes;
}

int dump_ask_job(const char *job, struct err *e)
{
	struct found f = { .fd = -1 };
	struct str list = { 0 };
	int rc = 0;

	for (int i = 0; i < DUMP_FOLDERS; i++) {
		struct str path = { 0 };

		if (dump_folder_path(&path, i))
			find_in(&f, str_text(&path), job);
		str_free(&path);
	}
	if (f.jobs.n > 1) {
		for (size_t i = 0; i < f.jobs.n && i < 8; i++)
			str_addf(&list, "%s%.8s", i ? ", " : "", f.jobs.v[i]);
		if (f.jobs.n > 8)
			str_addf(&list, ",... (%zu jobs)", f.jobs.n);
		rc = err_set(e, E_DUMP_SEVERAL, str_text(&list));
	} else if (!f.jobs.n) {
		rc = *job ? err_set(e, E_DUMP_JOB, job) : err_set(e, E_DUMP_NONE);
		if (f.why.len)
			err_hint(e, "%s", str_text(&f.why));
	} else if (copy_answer(f.fd) <= 0) {
		rc = err_set(e, E_DUMP_SILENT, f.jobs.v[0]);
	}
	if (f.fd >= 0)
		close(f.fd);
	strv_free(&f.jobs);
	str_free(&f.why);
	str_free(&list);
	return rc;
}
