#include "agent/ranks/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/file.h"
#include "common/job.h"

static const int limited[SPAWN_LIMITS] = { RLIMIT_NOFILE, RLIMIT_CORE, RLIMIT_STACK,
					   RLIMIT_MEMLOCK };

enum step { STEP_NONE, STEP_STDIO, STEP_WDIR, STEP_EXEC };

/* Shared with the child while it runs on our memory. */
struct child {
	struct spawn s;
	pid_t pid, parent;
	bool text; /* /bin/sh runs it already */
	struct rlimit limit[SPAWN_LIMITS];
	int tasks;    /* of a cgroup to enter; -1: none */
	bool outside; /* it could not */
	int bind_errno;
	enum step step;
	int error;
};

/* ---- looking up the program ---- */

/* PATH as a child sees it that is in WDIR. */
static char *spawn_see(const char *path, const char *wdir)
{
	return *path == '/' ? xstrdup(path) : xasprintf("%s/%s", wdir, path);
}

/* The first bytes of the file that P names, seen from WDIR. */
static size_t read_start(const struct program *p, const char *wdir, char *out,
			 size_t size)
{
	char *seen = spawn_see(p->path, wdir);
	ssize_t n = file_start(seen, out, size);

	free(seen);
	return n < 0 ? 0 : (size_t)n;
}

static int cannot_execute(const char *name, int error, struct err *e)
{
	err_set(e, E_NOT_EXECUTABLE, name, strerror(error));
	return error == EISDIR ? err_hint(e, "name a program in that directory") : -1;
}

/* Why execve() of P gives ERROR. */
static int exec_error(const struct program *p, const char *wdir, int error,
		      struct err *e)
{
	const char *name = p->argv[0];
	char start[128];

	switch (error) {
	case ENOENT:
		break;
	case ENOTDIR:
		return err_set(e, E_NOT_FOUND, name);
	case ENOEXEC:
		return err_set(e, E_NOT_EXECUTABLE, name,
			       "not a program for this kind of machine");
	case EACCES:
	case EISDIR:
	case ELOOP:
	case ETXTBSY:
		return cannot_execute(name, error, e);
	default:
		return err_set(e, E_SPAWN, name, strerror(error));
	}
	/* If the file exists, its loader or the interpreter in its first line does
	 * not. */
	if (!read_start(p, wdir, start, sizeof start))
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

/* Does folder DIR of PATH, LEN bytes long, have program NAME?  "" stands for the
 * current folder.  A relative path is seen from WDIR here, but stays as it is for the
 * child, which is there by then.  Else WHY is set if the file cannot be executed. */
static bool try_folder(struct program *p, const char *dir, size_t len, const char *name,
		       const char *wdir, int *why)
{
	char *path = len ? xasprintf("%.*s/%s", (int)len, dir, name)
			 : xasprintf("./%s", name);
	char *seen = spawn_see(path, wdir);
	struct stat st;

	if (!stat(seen, &st)) {
		if (S_ISREG(st.st_mode) && !access(seen, X_OK))
			p->path = path;
		else
			*why = S_ISDIR(st.st_mode) ? EISDIR : EACCES;
	}
	free(seen);
	if (!p->path)
		free(path);
	return p->path != NULL;
}

/* The folders of PATH as far as one line has room for them. */
static void hint_path(const char *path, struct err *e)
{
	enum { ROOM = 60 };
	size_t n = strcspn(path, ":"), more = 0;

	while (path[n] && n + 1 + strcspn(path + n + 1, ":") <= ROOM)
		n += 1 + strcspn(path + n + 1, ":");
	for (const char *p = path + n; *p; p++)
		more += *p == ':';
	err_hint(e, "no folder of PATH has it: %.*s", (int)n, path);
	if (more)
		snprintf(e->hint + strlen(e->hint), sizeof e->hint - strlen(e->hint),
			 " and %zu more", more);
}

/* There is no program NAME: what the user may have meant. */
static int hint_meant(const char *name, const char *wdir, struct err *e)
{
	const size_t word = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"
					 "abcdefghijklmnopqrstuvwxyz0123456789");
	const char *dot = strrchr(name, '.');
	char *seen = xasprintf("%s/%s", wdir, name);
	struct str shown = { 0 };
	struct stat st;
	const bool beside =
		*name && !strchr(name, '/') && !stat(seen, &st) && S_ISREG(st.st_mode);

	free(seen);
	if (beside && dot && !strcmp(dot, ".py")) {
		err_hint(e, "it is not in PATH: write ./%s or python %s", name, name);
	} else if (beside) {
		err_hint(e, "it is not in PATH: write ./%s", name);
	} else if (word && name[word] == '=') { /* its value may be a secret */
		str_add_word(&shown, name, false);
		err_set(e, E_NOT_FOUND, str_text(&shown));
		err_hint(e, "set a variable with -x: -x %s", str_text(&shown));
		str_free(&shown);
	} else if (strpbrk(name, " \t")) {
		err_hint(e, "drop the quotes: %s", name);
	}
	return -1;
}

static int find_in_path(struct program *p, const char *path, const char *wdir,
			struct err *e)
{
	const char *name = p->argv[0];
	int why = 0;

	for (const char *dir = path; dir;) {
		size_t len = strcspn(dir, ":");

		if (try_folder(p, dir, len, name, wdir, &why))
			return 0;
		dir = dir[len] ? dir + len + 1 : NULL;
	}
	if (why)
		return cannot_execute(name, why, e);
	err_set(e, E_NOT_FOUND, name);
	hint_path(path, e);
	return -1;
}

/* The errors of execve() that show without it, its interpreter's among them. */
static int check_file(const struct program *p, const char *wdir, struct err *e)
{
	char *seen = spawn_see(p->path, wdir), start[128], *interpreter;
	struct stat st;
	int error = 0;

	if (stat(seen, &st) || (S_ISREG(st.st_mode) && access(seen, X_OK)))
		error = errno;
	else if (!S_ISREG(st.st_mode))
		error = S_ISDIR(st.st_mode) ? EISDIR : EACCES;
	free(seen);
	if (!error && read_start(p, wdir, start, sizeof start) > 2 &&
	    !strncmp(start, "#!", 2) && strchr(start, '\n')) {
		interpreter = start + 2 + strspn(start + 2, " \t");
		interpreter[strcspn(interpreter, " \t\n")] = '\0';
		seen = spawn_see(interpreter, wdir);
		if (stat(seen, &st))
			error = errno;
		free(seen);
	}
	return error ? exec_error(p, wdir, error, e) : 0;
}

int program_find(struct program *p, wire_strv argv, const char *path, const char *wdir,
		 struct err *e)
{
	const char *name = argv.n ? argv.v[0] : "";
	struct stat st;
	int rc = 0;

	*p = (struct program){ .argv = xcalloc(argv.n + 1, sizeof *p->argv) };
	for (size_t i = 0; i < argv.n; i++)
		p->argv[i] = argv.v[i];
	if (stat(wdir, &st) || (S_ISDIR(st.st_mode) && access(wdir, X_OK)))
		return err_set(e, E_WDIR, wdir, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return err_set(e, E_WDIR, wdir, strerror(ENOTDIR));
	if (!*name)
		return err_set(e, E_NOT_FOUND, name);
	if (strchr(name, '/'))
		p->path = xstrdup(name);
	else
		rc = find_in_path(p, path ? path : "/usr/local/bin:/usr/bin:/bin", wdir,
				  e);
	if (!rc)
		rc = check_file(p, wdir, e);
	return rc && e->id == E_NOT_FOUND ? hint_meant(name, wdir, e) : rc;
}

void program_free(struct program *p)
{
	free(p->path);
	free(p->script);
	free(p->argv);
	*p = (struct program){ 0 };
}

/* ---- the child: bare system calls on its parent's memory ---- */

#define CHILD __attribute__((no_sanitize("address", "undefined")))

/* The result, or -errno.  libc's wrappers would write errno, which belongs to the
 * parent, and the parent runs at the same time. */
static CHILD long spawn_bare(long n, long a, long b, long c, long d)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return r;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3)
			 : "memory");
	return x0;
#else
#error "berth runs on x86-64 and aarch64"
#endif
}

/* Ignored signals would stay ignored, and handlers of ours must not run on shared
 * memory.  The agent touches only these signals (guard.c, main.c). */
static CHILD void child_signals(void)
{
	/* 32 and 33 are libc's own, which guard.c's sigaction() cannot reach.  The
	 * program that started us may have ignored them. */
	static const int ours[] = { SIGINT,  SIGHUP,  SIGQUIT, SIGUSR1, SIGUSR2,
				    SIGPIPE, SIGTERM, SIGCHLD, 32,      33 };
	static const long
		by_default[8]; /* the kernel's struct sigaction: SIG_DFL, no mask */
	static const uint64_t none;

	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
		spawn_bare(SYS_rt_sigaction, ours[i], (long)by_default, 0, 8);
	spawn_bare(SYS_rt_sigprocmask, SIG_SETMASK, (long)&none, 0, 8);
}

static CHILD int liveness_fd(rlim_t nofile)
{
	return nofile > LIVENESS_FD ? LIVENESS_FD : (int)nofile - 1;
}

static CHILD int child_steps(struct child *c)
{
	const struct spawn *s = &c->s;
	const int liveness = liveness_fd(c->limit[0].rlim_cur);
	long rc;

	/* A group, in the guardian's session.  With a session each, the kernel would
	 * schedule each rank as a user of its own (autogroup), and sched_yield() would
	 * no longer let the next one run (8 bytes between 4 ranks on 2 cores: 550 us
	 * instead of 1.7). */
	spawn_bare(SYS_setpgid, 0, 0, 0, 0);
	spawn_bare(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0);
	if (spawn_bare(SYS_getppid, 0, 0, 0, 0) != c->parent)
		return ESRCH; /* it died before this: no signal will come */
	if (c->tasks >= 0)
		c->outside = spawn_bare(SYS_write, c->tasks, (long)"0", 1, 0) < 0;
	rc = s->cpus ? spawn_bare(SYS_sched_setaffinity, 0, (long)(s->cpus->nwords * 8),
				  (long)s->cpus->w, 0)
		     : 0;
	c->bind_errno = rc < 0 ? (int)-rc : 0;
	spawn_bare(SYS_umask, (long)s->limits->umask, 0, 0, 0);
	for (int i = 0; i < SPAWN_LIMITS; i++)
		spawn_bare(SYS_prlimit64, 0, limited[i], (long)&c->limit[i], 0);
	c->step = STEP_STDIO;
	for (int i = 0; i < 3; i++)
		if ((rc = spawn_bare(SYS_dup3, s->fd[i], i, 0, 0)) < 0)
			return (int)-rc;
	if (liveness > 2) /* no room for it: no harm */
		spawn_bare(SYS_dup3, s->fd[3], liveness, 0, 0);
	if (s->pmi >= 0 && liveness > 3)
		spawn_bare(SYS_dup3, s->pmi, liveness - 1, 0, 0);
	c->step = STEP_WDIR;
	rc = spawn_bare(SYS_chdir, (long)s->wdir, 0, 0, 0);
	if (rc < 0)
		return (int)-rc;
	c->step = STEP_EXEC;
	child_signals();
	return (int)-spawn_bare(SYS_execve, (long)s->program->path,
				(long)s->program->argv, (long)s->env, 0);
}

static CHILD int child_main(void *arg)
{
	struct child *c = arg;

	c->error = child_steps(c);
	spawn_bare(SYS_exit_group, EXIT_RUNNER, 0, 0, 0);
	return 0;
}

/* The kernel's struct clone_args, with the members of Linux 5.7. */
struct clone3_args {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size,
		tls, set_tid, set_tid_size, cgroup;
};

enum { CALL_CLONE3 = 435 };
#define INTO_CGROUP 0x200000000ull

/* child_main(C) in a process on our memory, as by clone(), but with a cgroup.  libc has
 * no wrapper.  The pid, or -errno. */
static CHILD long clone_into(const struct clone3_args *a, struct child *c)
{
#if defined(__x86_64__)
	register struct child *r8 __asm__("r8") = c;
	register int (*r9)(void *) __asm__("r9") = child_main;
	long r;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r8, %%rdi\n\t"
			 "call *%%r9\n\t"
			 "hlt\n"
			 "1:"
			 : "=a"(r)
			 : "a"(CALL_CLONE3), "D"(a), "S"(sizeof *a), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return r;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = CALL_CLONE3;
	register long x0 __asm__("x0") = (long)a;
	register long x1 __asm__("x1") = sizeof *a;
	register struct child *x2 __asm__("x2") = c;
	register int (*x3)(void *) __asm__("x3") = child_main;

	__asm__ volatile("svc 0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x29, 0\n\t"
			 "mov x0, x2\n\t"
			 "blr x3\n\t"
			 "brk 0\n"
			 "1:"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3)
			 : "memory");
	return x0;
#endif
}

/* ---- the parent ---- */

void spawn_soft_limits(const struct spawn_limits *l, uint64_t soft[SPAWN_LIMITS])
{
	for (int i = 0; i < SPAWN_LIMITS; i++) {
		struct rlimit hard;

		getrlimit((__rlimit_resource_t)limited[i], &hard);
		soft[i] = l->soft[i] < hard.rlim_max ? l->soft[i] : hard.rlim_max;
	}
}

int spawn_liveness_fd(const struct spawn_limits *l)
{
	uint64_t soft[SPAWN_LIMITS];

	spawn_soft_limits(l, soft);
	return liveness_fd(soft[0]);
}

int spawn_pmi_fd(const struct spawn_limits *l)
{
	return spawn_liveness_fd(l) - 1;
}

enum { STACK_BYTES = 16384 };

struct spawn_batch {
	struct child *v;
	size_t n, most;
	unsigned char *stacks;
	int gate[2];   /* each child holds the write end until it execs or ends */
	sigset_t mask; /* as it was before */
	struct rlimit hard[SPAWN_LIMITS];
	struct cgroup_entry entry;
};

struct spawn_batch *spawn_batch_open(size_t most, struct cgroup_entry entry,
				     struct err *e)
{
	struct spawn_batch *b = xcalloc(1, sizeof *b);
	sigset_t all;

	b->stacks = mmap(NULL, most * STACK_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (b->stacks == MAP_FAILED || pipe2(b->gate, O_CLOEXEC)) {
		err_set(e, E_SYSTEM, b->stacks == MAP_FAILED ? "mmap" : "pipe",
			strerror(errno));
		if (b->stacks != MAP_FAILED)
			munmap(b->stacks, most * STACK_BYTES);
		free(b);
		return NULL;
	}
	b->most = most;
	b->entry = entry;
	b->v = xcalloc(most, sizeof *b->v);
	for (int i = 0; i < SPAWN_LIMITS; i++)
		getrlimit((__rlimit_resource_t)limited[i], &b->hard[i]);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &b->mask);
	return b;
}

/* By clone3() if only that leads into the cgroup.  A sandbox may forbid it, or the
 * cgroup may have gone: then outside. */
static pid_t start_child(struct spawn_batch *b, struct child *c)
{
	unsigned char *stack = b->stacks + b->n * STACK_BYTES;
	struct clone3_args a = { .flags = CLONE_VM | INTO_CGROUP,
				 .exit_signal = SIGCHLD,
				 .stack = (uint64_t)(uintptr_t)stack,
				 .stack_size = STACK_BYTES,
				 .cgroup = (uint64_t)b->entry.fd };
	long pid;

	c->tasks = b->entry.by_clone ? -1 : b->entry.fd;
	if (b->entry.fd >= 0 && b->entry.by_clone) {
		pid = clone_into(&a, c);
		if (pid > 0)
			return (pid_t)pid;
		errno = (int)-pid;
		if (errno == EAGAIN || errno == ENOMEM)
			return -1;
		c->outside = true;
	}
	return clone(child_main, stack + STACK_BYTES, CLONE_VM | SIGCHLD, c);
}

size_t spawn_batch_add(struct spawn_batch *b, const struct spawn *s)
{
	struct child *c = &b->v[b->n];

	*c = (struct child){ .s = *s,
			     .parent = getpid(),
			     .text = s->program->script != NULL };
	for (int i = 0; i < SPAWN_LIMITS; i++) {
		uint64_t soft = s->limits->soft[i], hard = b->hard[i].rlim_max;

		c->limit[i] = (struct rlimit){ soft < hard ? soft : hard, hard };
	}
	c->pid = start_child(b, c);
	if (c->pid < 0)
		c->error = errno;
	return b->n++;
}

/* The gate is at its end once the last child has closed it. */
void spawn_batch_wait(struct spawn_batch *b)
{
	char c;

	if (b->gate[1] < 0)
		return;
	close(b->gate[1]);
	b->gate[1] = -1;
	while (read(b->gate[0], &c, 1) < 0 && errno == EINTR)
		;
	sigprocmask(SIG_SETMASK, &b->mask, NULL);
}

/* execvp's rule: /bin/sh runs a text without a "#!" line.  A binary is for another
 * machine, else the kernel would not have refused it. */
static bool use_shell(const struct spawn *s)
{
	struct program *p = s->program;
	const char **argv;
	char start[128];
	size_t n = 0, len = read_start(s->program, s->wdir, start, sizeof start);

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

static bool spawn_failed(struct child *c)
{
	if (!c->error)
		return false;
	if (c->pid > 0)
		waitpid(c->pid, NULL, 0);
	return true;
}

const struct spawn *spawn_batch_text(struct spawn_batch *b, size_t i)
{
	struct child *c = &b->v[i];

	if (c->text || c->step != STEP_EXEC || c->error != ENOEXEC)
		return NULL;
	if (!c->s.program->script && !use_shell(&c->s))
		return NULL;
	spawn_failed(c); /* reaps it */
	return &c->s;
}

pid_t spawn_batch_result(struct spawn_batch *b, size_t i, int *bind_errno,
			 struct err *e)
{
	struct child *c = &b->v[i];

	*bind_errno = c->bind_errno;
	if (!spawn_failed(c))
		return c->pid;
	switch (c->step) {
	case STEP_EXEC:
		return exec_error(c->s.program, c->s.wdir, c->error, e);
	case STEP_WDIR:
		return err_set(e, E_WDIR, c->s.wdir, strerror(c->error));
	case STEP_STDIO:
	case STEP_NONE:
		break;
	}
	return err_set(e, E_SPAWN, c->s.program->argv[0], strerror(c->error));
}

bool spawn_batch_outside(const struct spawn_batch *b)
{
	for (size_t i = 0; i < b->n; i++)
		if (b->v[i].outside && !b->v[i].error)
			return true;
	return false;
}

void spawn_batch_free(struct spawn_batch *b)
{
	if (!b)
		return;
	spawn_batch_wait(b);
	close(b->gate[0]);
	munmap(b->stacks, b->most * STACK_BYTES);
	free(b->v);
	free(b);
}
