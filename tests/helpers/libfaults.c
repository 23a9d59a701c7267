/* libfaults.so - preloaded, it makes one call of libc fail: the FAULTS_N-th of a kind.
 *
 *   FAULTS=alloc|fork|pipe|socket|open|mmap|epoll|dup|random|read|write|full
 *   FAULTS_N=1.. [FAULTS_LAST=1: all that come after it fail as well]
 *   FAULTS_PROGRAM=berth-agent|runner   no other program is touched
 *   FAULTS_IN=agent|guardian            which of the two that its first fork() makes
 *   FAULTS_LOG=FILE                     gets a line when the call fails
 *
 * The variables and LD_PRELOAD leave the environment at once, so that nothing that the
 * program starts knows of this.  What the static libraries in our programs call of libc
 * comes by here, and what libc itself calls of malloc; its own system calls and the
 * children's bare ones don't. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

enum kind {
	NONE,
	ALLOC,
	FORK,
	PIPE,
	SOCKET,
	OPEN,
	MMAP,
	EPOLL,
	DUP,
	RANDOM,
	READ,
	WRITE,
	FULL
};

static const struct {
	const char *name;
	int error;
} kinds[] = {
	[NONE] = { "none", 0 },          [ALLOC] = { "alloc", ENOMEM },
	[FORK] = { "fork", EAGAIN },     [PIPE] = { "pipe", EMFILE },
	[SOCKET] = { "socket", EMFILE }, [OPEN] = { "open", EMFILE },
	[MMAP] = { "mmap", ENOMEM },     [EPOLL] = { "epoll", ENOMEM },
	[DUP] = { "dup", EBUSY },        [RANDOM] = { "random", ENOSYS },
	[READ] = { "read", EINTR },      [WRITE] = { "write", EINTR },
	[FULL] = { "full", ENOSPC },
};

static enum kind kind;
static unsigned long wanted, calls;
static bool last, guardian, forked;
static char log_path[4096];

static void copy(char *to, size_t size, const char *name)
{
	const char *text = getenv(name);

	snprintf(to, size, "%s", text ? text : "");
	unsetenv(name);
}

__attribute__((constructor)) static void begin(void)
{
	char what[32], n[32], all[8], program[64], in[16];

	copy(what, sizeof what, "FAULTS");
	copy(n, sizeof n, "FAULTS_N");
	copy(all, sizeof all, "FAULTS_LAST");
	copy(program, sizeof program, "FAULTS_PROGRAM");
	copy(in, sizeof in, "FAULTS_IN");
	copy(log_path, sizeof log_path, "FAULTS_LOG");
	unsetenv("LD_PRELOAD");
	if (strcmp(program, program_invocation_short_name))
		return;
	guardian = !strcmp(in, "guardian");
	last = *all;
	wanted = strtoul(n, NULL, 10);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(kinds[i].name, what))
			kind = (enum kind)i;
}

/* By bare system calls: nothing here may be counted or fail. */
static void note(const char *name)
{
	char line[128];
	int n = snprintf(line, sizeof line, "%s %lu: %s\n", kinds[kind].name, calls,
			 name);
	long fd = syscall(SYS_openat, AT_FDCWD, log_path,
			  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

	if (fd < 0)
		return;
	syscall(SYS_write, fd, line, (size_t)n);
	syscall(SYS_close, fd);
}

/* Is this call, of one kind, the one? */
static bool fails(enum kind of, const char *name)
{
	if (of != kind || guardian != (guardian && forked))
		return false;
	calls++;
	if (last ? calls < wanted : calls != wanted)
		return false;
	if (calls == wanted)
		note(name);
	errno = kinds[of].error;
	return true;
}

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* ---- memory: dlsym() itself may ask for some ---- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t align, size_t size);

void *malloc(size_t size)
{
	return fails(ALLOC, "malloc") ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return fails(ALLOC, "calloc") ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
	return fails(ALLOC, "realloc") ? NULL : __libc_realloc(old, size);
}

void *reallocarray(void *old, size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return fails(ALLOC, "reallocarray") ? NULL : __libc_realloc(old, bytes);
}

int posix_memalign(void **out, size_t align, size_t size)
{
	if (fails(ALLOC, "posix_memalign"))
		return ENOMEM;
	*out = __libc_memalign(align, size);
	return *out ? 0 : ENOMEM;
}

/* ---- processes ---- */

/* The first fork makes guardian and agent; children after that are let alone. */
pid_t fork(void)
{
	pid_t pid;

	if (fails(FORK, "fork"))
		return -1;
	pid = REAL(fork)();
	if (pid < 0)
		return pid;
	if (forked ? !pid : guardian == !pid)
		kind = NONE;
	else if (guardian)
		calls = 0;
	forked = true;
	return pid;
}

/* A child of runner's: glibc clones it without a call of fork(). */
int posix_spawnp(pid_t *pid, const char *file,
		 const posix_spawn_file_actions_t *actions,
		 const posix_spawnattr_t *attributes, char *const argv[],
		 char *const env[])
{
	if (fails(FORK, "posix_spawnp"))
		return errno;
	return REAL(posix_spawnp)(pid, file, actions, attributes, argv, env);
}

int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	return fails(FORK, "clone") ? -1 : REAL(clone)(fn, stack, flags, arg);
}

/* ---- descriptors ---- */

#define FAILING(of, type, name, params, args)                                          \
	type name params                                                               \
	{                                                                              \
		static __typeof__(&name) next;                                         \
                                                                                       \
		if (!next)                                                             \
			next = REAL(name);                                             \
		return fails(of, #name) ? (type)-1 : next args;                        \
	}

FAILING(PIPE, int, pipe, (int fd[2]), (fd))
FAILING(PIPE, int, pipe2, (int fd[2], int flags), (fd, flags))
FAILING(SOCKET, int, socket, (int domain, int type, int protocol),
	(domain, type, protocol))
FAILING(SOCKET, int, socketpair, (int domain, int type, int protocol, int fd[2]),
	(domain, type, protocol, fd))
FAILING(OPEN, int, posix_openpt, (int flags), (flags))
FAILING(EPOLL, int, epoll_create, (int size), (size))
FAILING(EPOLL, int, epoll_create1, (int flags), (flags))
FAILING(EPOLL, int, epoll_ctl, (int ep, int op, int fd, struct epoll_event *e),
	(ep, op, fd, e))
FAILING(DUP, int, dup2, (int from, int to), (from, to))
FAILING(RANDOM, ssize_t, getrandom, (void *to, size_t n, unsigned int flags),
	(to, n, flags))
FAILING(READ, ssize_t, read, (int fd, void *to, size_t n), (fd, to, n))

ssize_t write(int fd, const void *from, size_t n)
{
	static __typeof__(&write) next;

	if (!next)
		next = REAL(write);
	/* one byte is libevent's, from a signal's handler into its own pipe */
	return n > 1 && (fails(WRITE, "write") || fails(FULL, "write"))
		       ? -1
		       : next(fd, from, n);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
	static __typeof__(&mmap) next;

	if (!next)
		next = REAL(mmap);
	return fails(MMAP, "mmap") ? (void *)-1 : next(at, n, prot, flags, fd, from);
}

#define OPENING(name, params, args)                                                    \
	int name params                                                                \
	{                                                                              \
		static __typeof__(&name) next;                                         \
		mode_t mode;                                                           \
		va_list ap;                                                            \
                                                                                       \
		va_start(ap, flags);                                                   \
		mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;         \
		va_end(ap);                                                            \
		if (!next)                                                             \
			next = REAL(name);                                             \
		return fails(OPEN, #name) ? -1 : next args;                            \
	}

OPENING(open, (const char *path, int flags, ...), (path, flags, mode))
OPENING(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))

#define NO_FILE(type, name, params, args)                                              \
	type *name params                                                              \
	{                                                                              \
		static __typeof__(&name) next;                                         \
                                                                                       \
		if (!next)                                                             \
			next = REAL(name);                                             \
		return fails(OPEN, #name) ? NULL : next args;                          \
	}

typedef struct __dirstream dir_stream;
dir_stream *opendir(const char *path);
NO_FILE(FILE, fopen, (const char *path, const char *mode), (path, mode))
NO_FILE(dir_stream, opendir, (const char *path), (path))
