#include "launcher/cli/frameworks.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_MS = 10000, TEXT_MAX = 8192 };

extern char **environ;

/* The words behind it: the folder of the package berth, and libberth's file.  Modules
 * in the current folder may be anybody's, so none is imported. */
static const char script[] =
	"import sys\n"
	"sys.path[:] = sys.argv[1:2] + [p for p in sys.path if p]\n"
	"import os\n"
	"os.environ.setdefault('BERTH_LIBRARY', sys.argv[2])\n"
	"import berth.frameworks\n"
	"berth.frameworks.main()\n";

/* Start it, with its standard output at FD.  Returns an errno. */
static int frameworks_start(pid_t *pid, const struct package *p, int fd)
{
	const char *const words[] = { "python3", "-c",       script,
				      p->python, p->library, NULL };
	posix_spawn_file_actions_t files;
	int error = ENOMEM;

	if (posix_spawn_file_actions_init(&files))
		return error;
	if (!posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0) &&
	    !posix_spawn_file_actions_adddup2(&files, fd, 1) &&
	    /* TensorFlow's library greets there */
	    !posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0))
		error = posix_spawnp(pid, words[0], &files, NULL, (char *const *)words,
				     environ);
	posix_spawn_file_actions_destroy(&files);
	return error;
}

/* Append to OUT what FD gives.  Returns whether its end came within LIMIT_MS. */
static bool frameworks_read(struct str *out, int fd)
{
	const uint64_t until_ms = clock_ms() + LIMIT_MS;
	struct pollfd from = { .fd = fd, .events = POLLIN };
	uint64_t now_ms;
	char text[1024];

	while ((now_ms = clock_ms()) < until_ms) {
		ssize_t n;

		if (poll(&from, 1, (int)(until_ms - now_ms)) <= 0)
			continue;
		n = read(fd, text, sizeof text);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || out->len > TEXT_MAX)
			return !n;
		str_addn(out, text, (size_t)n);
	}
	return false;
}

void frameworks_print(struct str *out, const struct package *p)
{
	struct str said = { 0 };
	const char *why = NULL;
	int ends[2], status = 0, error;
	bool whole = false;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return;
	error = frameworks_start(&pid, p, ends[1]);
	close(ends[1]);
	if (!error) {
		whole = frameworks_read(&said, ends[0]);
		if (!whole)
			kill(pid, SIGKILL);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	}
	close(ends[0]);
	if (error)
		why = strerror(error);
	else if (!whole)
		why = "no answer within 10 s";
	else if (status)
		why = "it can't run berth.frameworks";
	if (why)
		str_addf(out, "\nNot known: TensorFlow and Keras of python3: %s\n",
			 why);
	else
		str_add(out, str_text(&said));
	str_free(&said);
}
