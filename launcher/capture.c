#include "launcher/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/str.h"

extern char **environ;

/* Starts it, with its stdout at FD.  Returns an errno. */
static int capture_start(pid_t *pid, const struct capture *c, int fd)
{
	posix_spawn_file_actions_t files;
	int error = ENOMEM;

	if (posix_spawn_file_actions_init(&files))
		return error;
	if (!(c->in < 0 ? posix_spawn_file_actions_addopen(&files, 0, "/dev/null",
							   O_RDONLY, 0)
			: posix_spawn_file_actions_adddup2(&files, c->in, 0)) &&
	    !posix_spawn_file_actions_adddup2(&files, fd, 1) &&
	    !posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0))
		error = posix_spawnp(pid, c->words[0], &files, NULL,
				     (char *const *)c->words, environ);
	posix_spawn_file_actions_destroy(&files);
	return error;
}

/* Appends to OUT what FD gives.  Returns whether its end came within the limits. */
static bool capture_read(struct str *out, int fd, const struct capture *c)
{
	const uint64_t until_ms = clock_ms() + c->limit_ms;
	const size_t before = out->len;
	struct pollfd from = { .fd = fd, .events = POLLIN };
	uint64_t now_ms;
	char text[4096];

	while ((now_ms = clock_ms()) < until_ms) {
		ssize_t n;

		if (poll(&from, 1, (int)(until_ms - now_ms)) <= 0)
			continue;
		n = read(fd, text, sizeof text);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || out->len - before > c->most_bytes)
			return !n;
		str_addn(out, text, (size_t)n);
	}
	return false;
}

const char *capture_run(struct str *out, const struct capture *c)
{
	int ends[2], status = 0, error;
	bool whole = false;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return strerror(errno);
	error = capture_start(&pid, c, ends[1]);
	close(ends[1]);
	if (!error) {
		whole = capture_read(out, ends[0], c);
		if (!whole)
			kill(pid, SIGKILL);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	}
	close(ends[0]);
	if (error)
		return strerror(error);
	if (!whole)
		return "it takes too long, or writes too much";
	return status ? "it has failed" : NULL;
}
