#include "launcher/job/dump_ask.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/file.h"
#include "launcher/job/dump_name.h"

enum { ANSWER_MS = 15000, NAMED_MOST = 8 };

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

/* Several jobs run. */
static int ask_which(const struct strv *jobs, struct err *e)
{
	struct str list = { 0 };
	int rc;

	for (size_t i = 0; i < jobs->n && i < NAMED_MOST; i++)
		str_addf(&list, "%s%.8s", i ? ", " : "", jobs->v[i]);
	if (jobs->n > NAMED_MOST)
		str_addf(&list, ",... (%zu jobs)", jobs->n);
	rc = err_set(e, E_DUMP_SEVERAL, str_text(&list));
	str_free(&list);
	return rc;
}

int dump_ask_job(const char *job, struct err *e)
{
	struct strv jobs = { 0 };
	int fd = -1, rc = 0;

	dump_name_list(&jobs, job);
	if (jobs.n == 1)
		fd = dump_name_dial(jobs.v[0]);
	if (jobs.n > 1)
		rc = ask_which(&jobs, e);
	else if (fd < 0) /* none, or it has ended since */
		rc = *job ? err_set(e, E_DUMP_JOB, job) : err_set(e, E_DUMP_NONE);
	else if (copy_answer(fd) <= 0)
		rc = err_set(e, E_DUMP_SILENT, jobs.v[0]);
	if (fd >= 0)
		close(fd);
	strv_free(&jobs);
	return rc;
}
