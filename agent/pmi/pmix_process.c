#include "agent/pmi/pmix_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/str.h"

enum { STACK_BYTES = 16384 };

/* Shared with the child while it runs on our memory. */
struct start {
	int fd, null;
	sigset_t mask;
	int error;
};

static int start_main(void *arg)
{
	static char name[] = "berth-agent", option[] = "--pmix",
		    *argv[] = { name, option, NULL };
	struct start *s = arg;

	for (int i = 1; i < NSIG; i++)
		if (i != SIGPIPE)
			signal(i, SIG_DFL);
	if (dup2(s->fd, STDIN_FILENO) >= 0 && dup2(s->null, STDOUT_FILENO) >= 0 &&
	    dup2(s->null, STDERR_FILENO) >= 0) {
		sigprocmask(SIG_SETMASK, &s->mask, NULL);
		execv("/proc/self/exe", argv);
	}
	s->error = errno;
	_exit(127);
}

/* The guardian is the parent of both, and reaps it. */
static int process_start(struct pmix_process *p, struct start *s, unsigned char *stack)
{
	const int flags = CLONE_VM | CLONE_VFORK | CLONE_PARENT;
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &s->mask);
	p->pid = clone(start_main, stack + STACK_BYTES, flags | CLONE_PIDFD, s,
		       &p->pidfd);
	sigprocmask(SIG_SETMASK, &s->mask, NULL);
	return p->pid < 0 ? errno : s->error;
}

int pmix_process_start(struct pmix_process *p, struct err *e)
{
	unsigned char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	struct start s = { .fd = -1, .null = open("/dev/null", O_RDWR | O_CLOEXEC) };
	int pair[2] = { -1, -1 }, error = 0;

	*p = (struct pmix_process){ .pidfd = -1, .fd = -1 };
	if (stack == MAP_FAILED || s.null < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		error = errno;
	s.fd = pair[1];
	if (!error)
		error = process_start(p, &s, stack);
	if (pair[1] >= 0)
		close(pair[1]);
	if (s.null >= 0)
		close(s.null);
	if (stack != MAP_FAILED)
		munmap(stack, STACK_BYTES);
	p->fd = pair[0];
	if (!error)
		return 0;
	pmix_process_end(p);
	return err_set(e, E_SYSTEM, "the PMIx server", strerror(error));
}

void pmix_process_kill(const struct pmix_process *p)
{
	if (p->pidfd >= 0)
		syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
	else if (p->pid > 0)
		kill(p->pid, SIGKILL);
}

void pmix_process_end(struct pmix_process *p)
{
	enum { DIES_MS = 1000 };
	struct pollfd dead = { .fd = p->pidfd, .events = POLLIN };

	if (p->fd >= 0)
		close(p->fd);
	pmix_process_kill(p);
	if (p->pidfd >= 0) {
		while (poll(&dead, 1, DIES_MS) < 0 && errno == EINTR)
			;
		close(p->pidfd);
	}
	*p = (struct pmix_process){ .pidfd = -1, .fd = -1 };
}
