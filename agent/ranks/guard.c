#include "agent/ranks/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/sched/types.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/ranks/procs.h"
#include "common/str.h"

enum { PATIENCE_MS = 10000, LOOK_MS = 20 };

static pid_t agent_pid;

static void pass_on(int signo)
{
	kill(agent_pid, signo);
}

void guard_kill_all(struct guarded *g, unsigned patience_ms)
{
	enum { LEAVE_MS = 1000 };
	const struct timespec look = { .tv_nsec = LOOK_MS * 1000000L };
	sigset_t chld;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	/* Looks are counted, not time: on a busy machine neither we nor the processes
	 * get many turns. */
	for (unsigned idle = 0; idle < patience_ms / LOOK_MS; idle++) {
		pid_t pid;

		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
			idle = 0;
		if (pid < 0)
			break;
		cgroup_kill(g->cgroup);
		procs_sweep_tree(SIGKILL);
		sigtimedwait(&chld, NULL, &look);
	}
	cgroup_remove(g->cgroup, LEAVE_MS);
	pmix_folders_remove(g->folders);
}

/* Hold our end of the pipe, wait for the agent, clear up.  Only the agent may hold the
 * stream: once it is dead, the launcher must see the stream's end at once. */
static void __attribute__((noreturn)) guard_guardian(struct guarded *g)
{
	int status = 0, null = open("/dev/null", O_RDWR);
	pid_t pid;

	for (int fd = STDIN_FILENO; fd <= STDOUT_FILENO; fd++)
		if (null < 0 || dup2(null, fd) < 0)
			close(fd);
	do {
		int s = 0;

		pid = waitpid(-1, &s, 0);
		if (pid == agent_pid)
			status = s;
	} while (pid != agent_pid && (pid > 0 || errno == EINTR));
	guard_kill_all(g, PATIENCE_MS);
	_exit(WIFSIGNALED(status) ? EXIT_SIGNAL_BASE + WTERMSIG(status)
				  : WEXITSTATUS(status));
}

int guard_split(struct guarded *g, struct err *e)
{
	enum { SLICE_NS = 100000 }; /* the least there is; 3 ms is usual */
	static const int ignored[] = { SIGINT,  SIGHUP,  SIGQUIT,
				       SIGUSR1, SIGUSR2, SIGPIPE };
	const struct sigaction sa = { .sa_handler = pass_on, .sa_flags = SA_RESTART };
	struct sched_attr slices = { .size = sizeof slices,
				     .sched_policy = SCHED_NORMAL,
				     .sched_flags = SCHED_FLAG_RESET_ON_FORK,
				     .sched_runtime = SLICE_NS };
	sigset_t term, none;
	int alive[2];

	closefrom(3);
	prctl(PR_SET_NAME,
	      AGENT_COMM); /* an agent that was sent runs from agent-SHA256 */
	for (int i = 1; i < NSIG; i++)
		signal(i, SIG_DFL);
	for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
		signal(ignored[i], SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	if (prctl(PR_SET_CHILD_SUBREAPER, 1L, 0L, 0L, 0L) || pipe2(alive, O_CLOEXEC))
		return err_set(e, E_SYSTEM, "the agent's guardian", strerror(errno));
	g->cgroup = cgroup_shared();
	g->folders = pmix_folders_shared();
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, &none); /* until agent_pid is known */
	agent_pid = fork();
	if (agent_pid < 0)
		return err_set(e, E_SYSTEM, "fork", strerror(errno));
	if (agent_pid) {
		close(alive[0]);
		sigaction(SIGTERM, &sa, NULL);
		sigprocmask(SIG_SETMASK, &none, NULL);
		guard_guardian(g);
	}
	sigprocmask(SIG_SETMASK, &none, NULL);
	close(alive[1]);
	prctl(PR_SET_CHILD_SUBREAPER, 1L, 0L, 0L, 0L);
	/* Ask for short time slices: a process that needs little time at once need not
	 * wait for the slices of others (Linux 6.12; older ones ignore it).  If ranks
	 * fail because of one another, only an agent that looks at once sees which was
	 * the first.  Processes started from here get usual slices. */
	slices.sched_nice = getpriority(PRIO_PROCESS, 0);
	syscall(SYS_sched_setattr, 0, &slices, 0);
	return alive[0];
}
