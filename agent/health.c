#include "agent/health.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/trial.h"

/* The status of "$1", as the answer of a trial.  This shell is a child until it is
 * killed, and so its process group is no other's. */
#define SCRIPT                                                                         \
	"/bin/sh -c \"$1\"\n"                                                          \
	"printf '\\0%d\\0' $?\n"                                                       \
	"kill -STOP $$"

static void say_healthy(struct agent *a, const char *why)
{
	wire_pack_healthy(&a->stream.out, &(struct wire_healthy){ .why = why });
}

static void health_done(void *ctx, enum trial_end end, const char *text)
{
	struct agent *a = ctx;
	const char *said = trial_last_line(a->health);
	char why[512] = "";

	if (end == TRIAL_LATE)
		snprintf(why, sizeof why, "it runs longer than --start-timeout");
	else if (end == TRIAL_SILENT)
		snprintf(why, sizeof why, "its shell was killed");
	else if (strcmp(text, "0") != 0)
		snprintf(why, sizeof why, "status %.8s%s%.400s", text,
			 *said ? ": " : "", said);
	say_healthy(a, why);
}

/* Run COMMAND with stdout and stderr OUT.  The pid, or -1 with errno. */
static pid_t health_spawn(const char *command, int out)
{
	char *const argv[] = { (char *)"sh", (char *)"-c",    (char *)SCRIPT,
			       (char *)"sh", (char *)command, NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t how;
	sigset_t all, none;
	pid_t pid = -1;

	sigfillset(&all);
	sigemptyset(&none);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY,
					 0);
	posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&files, out, STDERR_FILENO);
	posix_spawnattr_init(&how);
	posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF |
					       POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigdefault(&how, &all);
	posix_spawnattr_setsigmask(&how, &none);
	errno = posix_spawn(&pid, "/bin/sh", &files, &how, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&how);
	return errno ? -1 : pid;
}

int health_begin(struct agent *a, const struct wire_health *m, struct err *e)
{
	int p[2] = { -1, -1 };
	pid_t pid;

	if (a->job)
		return err_set(e, E_WIRE, "'health' message during a job");
	pid = pipe2(p, O_CLOEXEC) ? -1 : health_spawn(m->command, p[1]);
	if (pid < 0)
		say_healthy(a, strerror(errno));
	if (p[1] >= 0)
		close(p[1]);
	health_end(a);
	if (pid > 0)
		a->health = trial_await(a, pid, p[0], m->timeout_ms, health_done, a);
	else if (p[0] >= 0)
		close(p[0]);
	return 0;
}

void health_end(struct agent *a)
{
	trial_free(a->health);
	a->health = NULL;
}
