#include "contrib/slurm/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "contrib/slurm/answer.h"

/* ---- whether to trust the program ---- */

static bool is_roots(const char *path, struct stat *st)
{
	return !lstat(path, st) && !st->st_uid && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

const char *ask_distrust(const char *path)
{
	char prefix[4096];
	const size_t n = strlen(path);
	struct stat st;

	if (*path != '/' || n >= sizeof prefix || strstr(path, "/../"))
		return "its path is not absolute";
	for (size_t i = 1; i <= n; i++) {
		if (path[i] != '/' && path[i])
			continue;
		memcpy(prefix, path, i);
		prefix[i] = '\0';
		if (lstat(prefix, &st))
			return strerror(errno);
		if (S_ISLNK(st.st_mode))
			return "a part of its path is a symbolic link";
		if (!is_roots(prefix, &st))
			return "not only root can write to a part of its path";
	}
	if (!is_roots("/", &st))
		return "not only root can write to /";
	return lstat(path, &st) || !S_ISREG(st.st_mode) || !(st.st_mode & S_IXOTH)
		       ? "it is no program that all may run"
		       : NULL;
}

/* ---- the child ---- */

/* libc's setresuid() would tell all threads, which a copy of slurmstepd does not have.
 * Only the effective ids are the user's before this. */
static bool ask_become(const struct ask_user *u)
{
	if (getuid() == u->uid && getgid() == u->gid && u->uid)
		return !syscall(SYS_setresgid, u->gid, u->gid, u->gid) &&
		       !syscall(SYS_setresuid, u->uid, u->uid, u->uid);
	return !syscall(SYS_setresuid, -1, 0, -1) &&
	       !syscall(SYS_setgroups, u->ngroups, u->groups) &&
	       !syscall(SYS_setresgid, u->gid, u->gid, u->gid) &&
	       !syscall(SYS_setresuid, u->uid, u->uid, u->uid);
}

/* Before Linux 5.9 there is no close_range(). */
static bool close_all(void)
{
	const long most = sysconf(_SC_OPEN_MAX);

	if (!syscall(SYS_close_range, 3, ~0U, 0))
		return true;
	if (errno != ENOSYS || most < 0)
		return false;
	for (int fd = 3; fd < most; fd++)
		syscall(SYS_close, fd);
	return true;
}

static void ask_child(const char *path, const struct ask_user *u, int fd)
{
	char *const argv[] = { (char[]){ "berth-agent" }, (char[]){ "--step" }, NULL };
	char *const env[] = { NULL };
	sigset_t none;
	int null;

	if (!ask_become(u) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_PDEATHSIG, SIGKILL))
		_exit(126);
	if (u->cpus)
		syscall(SYS_sched_setaffinity, 0, u->cpus_bytes, u->cpus);
	null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (dup2(fd, 0) < 0 || dup2(fd, 1) < 0 || dup2(null, 2) < 0 || !close_all() ||
	    chdir("/"))
		_exit(126);
	for (int s = 1; s < NSIG; s++) /* as a new program has them */
		signal(s, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve(path, argv, env);
	_exit(127);
}

/* ---- the parent ---- */

static long long ask_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* The talk so far. */
struct talk {
	int fd;
	const char *request;
	size_t left;
	char *text;
	size_t n, room;
};

static bool ask_again(void)
{
	return errno == EAGAIN || errno == EINTR;
}

/* DONE: it has said all. */
static const char *ask_hear(struct talk *t, bool *done)
{
	ssize_t n;

	if (t->room - t->n < 2) {
		char *more;

		if (t->room >= ANSWER_BYTES)
			return "its answer is too long";
		more = realloc(t->text, t->room ? 2 * t->room : 65536);
		if (!more)
			return "out of memory";
		t->text = more;
		t->room = t->room ? 2 * t->room : 65536;
	}
	n = recv(t->fd, t->text + t->n, t->room - t->n - 1, MSG_DONTWAIT);
	if (n < 0)
		return ask_again() ? NULL : "it ended without an answer";
	t->n += (size_t)n;
	t->text[t->n] = '\0';
	*done = !n;
	return NULL;
}

static const char *ask_converse(struct talk *t, long long until)
{
	bool done = false;

	while (!done) {
		struct pollfd p = { .fd = t->fd,
				    .events =
					    (short)(POLLIN | (t->left ? POLLOUT : 0)) };
		const long long left = until - ask_now_ms();
		const char *why = NULL;
		ssize_t n;

		if (left <= 0)
			return "it did not answer in time";
		if (poll(&p, 1, (int)left) < 0 && errno != EINTR)
			return strerror(errno);
		if (p.revents & POLLOUT) {
			n = send(t->fd, t->request, t->left,
				 MSG_NOSIGNAL | MSG_DONTWAIT);
			if (n >= 0) {
				t->request += n;
				t->left -= (size_t)n;
				if (!t->left)
					shutdown(t->fd, SHUT_WR);
			} else if (!ask_again()) {
				why = "it ended without an answer";
			}
		}
		if (!why && p.revents & (POLLIN | POLLHUP | POLLERR))
			why = ask_hear(t, &done);
		if (why)
			return why;
	}
	return strlen(t->text) == t->n && t->n ? NULL : "it ended without an answer";
}

char *ask(const char *path, const struct ask_user *user, const char *request, size_t n,
	  int deadline_ms, const char **why)
{
	const long long until = ask_now_ms() + deadline_ms;
	struct talk t = { .request = request, .left = n };
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
		*why = strerror(errno);
		return NULL;
	}
	pid = fork();
	if (!pid)
		ask_child(path, user, pair[1]);
	close(pair[1]);
	t.fd = pair[0];
	*why = pid < 0 ? strerror(errno) : ask_converse(&t, until);
	close(t.fd);
	if (pid > 0) {
		/* as root, if this process is: the child is the user's */
		kill(pid, SIGKILL);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (*why) {
		free(t.text);
		t.text = NULL;
	}
	return t.text;
}
