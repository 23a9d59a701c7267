#include "agent/trial.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/placement/env.h"
#include "agent/ranks/procs.h"
#include "common/loop.h"

enum { SAID_MAX = 65536 }; /* of what it prints, the last bytes */

struct trial {
	struct agent *a;
	pid_t group; /* 0: all descendants of the agent */
	int out;
	struct event *readable, *late;
	struct str said;
	trial_done *done;
	void *ctx;
};

static void trial_close(struct trial *t)
{
	if (t->readable)
		event_free(t->readable);
	if (t->late)
		event_free(t->late);
	t->readable = t->late = NULL;
	if (t->out >= 0)
		close(t->out);
	t->out = -1;
}

const char *trial_last_line(struct trial *t)
{
	size_t n = strlen(str_text(&t->said));
	const char *from;

	while (n && t->said.s[n - 1] == '\n')
		t->said.s[--n] = '\0';
	from = n ? memrchr(t->said.s, '\n', n) : NULL;
	return from ? from + 1 : str_text(&t->said);
}

/* Nothing of it is left.  The cgroup of a rank's is not killed: Linux 6.18 kills each
 * process that begins in one after that, as the next trial does. */
static void trial_kill(const struct trial *t)
{
	siginfo_t info;

	if (!t->group)
		procs_sweep_tree(SIGKILL);
	else if (!waitid(P_PID, (id_t)t->group, &info, WEXITED | WNOHANG | WNOWAIT))
		kill(-t->group, SIGKILL); /* its number is no other's yet */
}

static void trial_finish(struct trial *t, enum trial_end end, const char *text)
{
	trial_close(t);
	trial_kill(t);
	t->done(t->ctx, end, text);
}

static void trial_on_late(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	trial_finish(arg, TRIAL_LATE, "");
}

static void trial_on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct trial *t = arg;
	char bytes[4096], *from, *to;
	ssize_t n = read(fd, bytes, sizeof bytes);

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		trial_finish(t, TRIAL_SILENT, trial_last_line(t));
		return;
	}
	if (t->said.len > SAID_MAX)
		t->said.len = 0;
	str_addn(&t->said, bytes, (size_t)n);
	from = memchr(t->said.s, '\0', t->said.len);
	to = from ? memchr(from + 1, '\0', t->said.len - (size_t)(from + 1 - t->said.s))
		  : NULL;
	if (to)
		trial_finish(t, TRIAL_ANSWERED, from + 1);
}

/* Run WORDS with stdout and stderr OUT.  0, or -1 with E. */
static int trial_spawn(struct agent *a, wire_strv words, int out, struct err *e)
{
	const struct app_start *app = agent_app_start(a, 0);
	const struct env_rank r = agent_env_rank(a, 0);
	const struct berth *b = &a->placement.v[0];
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), bind_errno;
	char **env = env_build(&app->env, &r);
	struct spawn_batch *batch = NULL;
	struct program program = { 0 };
	int rc = program_find(&program, words, env_get(&app->env, "PATH"), r.wdir, e);

	if (!rc)
		batch = spawn_batch_open(1, a->ranks.entry, e);
	if (batch) {
		spawn_batch_add(batch,
				&(struct spawn){ .program = &program,
						 .env = env,
						 .wdir = r.wdir,
						 .cpus = b->bound ? &b->cpus : NULL,
						 .limits = &app->limits,
						 .fd = { null, out, out, null },
						 .pmi = -1 });
		spawn_batch_wait(batch);
		rc = spawn_batch_result(batch, 0, &bind_errno, e) < 0 ? -1 : 0;
		spawn_batch_free(batch);
	}
	program_free(&program);
	free(env);
	if (null >= 0)
		close(null);
	return batch ? rc : -1;
}

struct trial *trial_start(struct agent *a, wire_strv words, uint32_t timeout_ms,
			  trial_done *done, void *ctx, struct err *e)
{
	int p[2], rc;

	if (pipe2(p, O_CLOEXEC)) {
		err_set(e, E_SYSTEM, "a pipe", strerror(errno));
		return NULL;
	}
	rc = trial_spawn(a, words, p[1], e);
	close(p[1]);
	if (rc) {
		close(p[0]);
		return NULL;
	}
	return trial_await(a, 0, p[0], timeout_ms, done, ctx);
}

struct trial *trial_await(struct agent *a, pid_t pid, int out, uint32_t timeout_ms,
			  trial_done *done, void *ctx)
{
	struct trial *t = xcalloc(1, sizeof *t);

	*t = (struct trial){
		.a = a, .group = pid, .out = out, .done = done, .ctx = ctx
	};
	fcntl(t->out, F_SETFL, O_NONBLOCK);
	t->readable =
		event_new(a->base, t->out, EV_READ | EV_PERSIST, trial_on_readable, t);
	t->late = event_new(a->base, -1, 0, trial_on_late, t);
	loop_watch(t->readable);
	loop_after_ms(t->late, timeout_ms);
	return t;
}

void trial_free(struct trial *t)
{
	if (!t)
		return;
	if (t->group && t->out >= 0)
		trial_kill(t);
	trial_close(t);
	str_free(&t->said);
	free(t);
}
