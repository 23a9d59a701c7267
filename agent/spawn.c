#include "agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum step { STEP_NONE, STEP_STDIO, STEP_WDIR, STEP_EXEC };

/* Shared with the child while it runs on our memory. */
struct child {
	const struct spawn *s;
	pid_t parent;
	struct rlimit limit[4];
	int bind_errno;
	enum step step;
	int error;
};

/* ---- looking up the program ---- */

static bool is_program(const char *path, int *why)
{
	struct stat st;

	if (stat(path, &st))
		return false;
	if (S_ISREG(st.st_mode) && !access(path, X_OK))
		return true;
	*why = S_ISDIR(st.st_mode) ? EISDIR : EACCES;
	return false;
}

/* PATH's entry of LEN bytes at DIR joined with NAME; "" stands for the current folder.
 * What is relative is seen from WDIR here, but stays as it is for the child, which is
 * there by then. */
static bool try_folder(struct program *p, const char *dir, size_t len, const char *name,
		       const char *wdir, int *why)
{
	char *path = len ? xasprintf("%.*s/%s", (int)len, dir, name)
			 : xasprintf("./%s", name);
	char *seen = *path == '/' ? xstrdup(path) : xasprintf("%s/%s", wdir, path);
	bool found = is_program(seen, why);

	free(seen);
	if (found)
		p->path = path;
	else
		free(path);
	return found;
}

static int search_path(struct program *p, const char *name, const char *path,
		       const char *wdir, struct err *e)
{
	int why = 0;

	for (const char *dir = path; dir;) {
		size_t len = strcspn(dir, ":");

		if (try_folder(p, dir, len, name, wdir, &why))
			return 0;
		dir = dir[len] ? dir + len + 1 : NULL;
	}
	if (why)
		return err_set(e, E_NOT_EXECUTABLE, name, strerror(why));
	err_set(e, E_NOT_FOUND, name);
	return err_hint(e, "no folder of PATH has it: %.400s", path);
}

int program_find(struct program *p, wire_strv argv, const char *path, const char *wdir,
		 struct err *e)
{
	const char *name = argv.n ? argv.v[0] : "";

	*p = (struct program){ .argv = xcalloc(argv.n + 1, sizeof *p->argv) };
	for (size_t i = 0; i < argv.n; i++)
		p->argv[i] = argv.v[i];
	if (!*name)
		return err_set(e, E_NOT_FOUND, name);
	if (!strchr(name, '/'))
		return search_path(
			p, name, path ? path : "/usr/local/bin:/usr/bin:/bin", wdir, e);
	p->path = xstrdup(name);
	return 0;
}

void program_free(struct program *p)
{
	free(p->path);
	free(p->script);
	free(p->argv);
	*p = (struct program){ 0 };
}

/* ---- the child: async-signal-safe calls, no instrumentation, its parent's memory ----
 */

#define CHILD __attribute__((no_sanitize("address", "undefined")))

/* Ignored signals would stay ignored and handlers of ours must not run on shared
 * memory: these are the only ones that the agent touches (guard.c, main.c). */
static CHILD void child_signals(void)
{
	static const int ours[] = { SIGINT,  SIGHUP,  SIGQUIT, SIGUSR1,
				    SIGUSR2, SIGPIPE, SIGTERM, SIGCHLD };
	sigset_t none;

	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
		signal(ours[i], SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static CHILD void child_limits(struct child *c)
{
	static const __rlimit_resource_t which[4] = { RLIMIT_NOFILE, RLIMIT_CORE,
						      RLIMIT_STACK, RLIMIT_MEMLOCK };

	umask(c->s->limits->umask);
	for (int i = 0; i < 4; i++)
		setrlimit(which[i], &c->limit[i]);
}

static CHILD int child_steps(struct child *c)
{
	const struct spawn *s = c->s;

	setsid();
	prctl(PR_SET_PDEATHSIG, (long)SIGKILL, 0L, 0L, 0L);
	/* sched_setaffinity(2) itself: glibc's takes no mask of our width without a
	 * cast */
	if (s->cpus &&
	    syscall(SYS_sched_setaffinity, 0, s->cpus->nwords * 8, s->cpus->w))
		c->bind_errno = errno;
	child_limits(c);
	c->step = STEP_STDIO;
	for (int i = 0; i < 3; i++)
		if (dup2(s->fd[i], i) < 0)
			return errno;
	c->step = STEP_WDIR;
	if (chdir(s->wdir))
		return errno;
	c->step = STEP_EXEC;
	child_signals();
	execve(s->program->path, (char *const *)s->program->argv, s->env);
	return errno;
}

static CHILD int child_main(void *arg)
{
	struct child *c = arg;

	c->error = child_steps(c);
	_exit(EXIT_RUNNER);
}

/* ---- the parent ---- */

static struct rlimit capped(__rlimit_resource_t which, uint64_t soft)
{
	struct rlimit r = { 0 };

	getrlimit(which, &r);
	r.rlim_cur = soft < r.rlim_max ? soft : r.rlim_max;
	return r;
}

static pid_t run_child(struct child *c)
{
	static _Alignas(64) unsigned char stack[65536];
	sigset_t all, old;
	pid_t pid;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	pid = clone(child_main, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD,
		    c);
	if (pid < 0)
		c->error = errno;
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid > 0 && c->error) {
		waitpid(pid, NULL, 0);
		pid = -1;
	}
	return pid;
}

/* The first bytes of the program that the child tried, seen from its folder. */
static size_t read_start(const struct spawn *s, char *out, size_t size)
{
	const char *path = s->program->path;
	char *seen = *path == '/' ? xstrdup(path) : xasprintf("%s/%s", s->wdir, path);
	int fd = open(seen, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

	if (fd >= 0)
		close(fd);
	free(seen);
	n = n < 0 ? 0 : n;
	out[n] = '\0';
	return (size_t)n;
}

/* execvp's rule: a text without a "#!" line is the shell's.  A binary is not: the
 * kernel refused it because it is for another machine. */
static bool use_shell(const struct spawn *s)
{
	struct program *p = s->program;
	const char **argv;
	char start[128];
	size_t n = 0, len = read_start(s, start, sizeof start);

	if (memchr(start, '\0', len) || !strncmp(start, "\177ELF", 4))
		return false;
	while (p->argv[n])
		n++;
	argv = xcalloc(n + 2, sizeof *argv);
	argv[0] = "/bin/sh";
	argv[1] = p->script = p->path;
	memcpy(argv + 2, p->argv + 1, (n - 1) * sizeof *argv);
	free(p->argv);
	p->argv = argv;
	p->path = xstrdup("/bin/sh");
	return true;
}

/* ENOENT of a file that is there: what it names in its first line, or as its loader, is
 * not. */
static int missing_helper(const struct spawn *s, struct err *e)
{
	const char *name = s->program->argv[0];
	char start[128];

	if (!read_start(s, start, sizeof start))
		return err_set(e, E_NOT_FOUND, name);
	if (strncmp(start, "#!", 2))
		return err_set(e, E_NOT_EXECUTABLE, name,
			       "the loader it was linked for is not there");
	start[strcspn(start, "\n")] = '\0';
	err_set(e, E_NOT_EXECUTABLE, name, "its interpreter is not there");
	if (strchr(start, '\r'))
		return err_hint(e,
				"its first line ends with a carriage return: save it "
				"with Unix line ends");
	return err_hint(e, "its first line is '%s'", start);
}

static int exec_error(const struct spawn *s, int error, struct err *e)
{
	const char *name = s->program->argv[0];

	switch (error) {
	case ENOENT:
		return missing_helper(s, e);
	case ENOTDIR:
		return err_set(e, E_NOT_FOUND, name);
	case ENOEXEC:
		return err_set(e, E_NOT_EXECUTABLE, name,
			       "not a program for this kind of machine");
	case EACCES:
	case EISDIR:
	case ELOOP:
	case ETXTBSY:
		return err_set(e, E_NOT_EXECUTABLE, name, strerror(error));
	default:
		return err_set(e, E_SPAWN, name, strerror(error));
	}
}

static int child_error(const struct child *c, struct err *e)
{
	switch (c->step) {
	case STEP_EXEC:
		return exec_error(c->s, c->error, e);
	case STEP_WDIR:
		return err_set(e, E_WDIR, c->s->wdir, strerror(c->error));
	case STEP_STDIO:
	case STEP_NONE:
		break;
	}
	return err_set(e, E_SPAWN, c->s->program->argv[0], strerror(c->error));
}

pid_t spawn_start(const struct spawn *s, int *bind_errno, struct err *e)
{
	const struct spawn_limits *l = s->limits;
	struct child c = { .s = s,
			   .limit = { capped(RLIMIT_NOFILE, l->nofile),
				      capped(RLIMIT_CORE, l->core),
				      capped(RLIMIT_STACK, l->stack),
				      capped(RLIMIT_MEMLOCK, l->memlock) } };
	pid_t pid = run_child(&c);

	if (pid < 0 && c.step == STEP_EXEC && c.error == ENOEXEC && use_shell(s)) {
		c.step = STEP_NONE;
		c.error = 0;
		pid = run_child(&c);
	}
	*bind_errno = c.bind_errno;
	return pid < 0 ? child_error(&c, e) : pid;
}

void spawn_mask(struct str *out, pid_t pid)
{
	uint64_t bits[128];
	long bytes = syscall(SYS_sched_getaffinity, pid, sizeof bits, bits);
	size_t n = bytes > 0 ? (size_t)bytes / sizeof *bits : 0;

	while (n && !bits[n - 1])
		n--;
	str_add_bits(out, bits, n);
}
