/* spawn.h - starts processes: program looked up, bound, a group each, exec.
 *
 * A child shares our memory until it execs (clone VM: 64 of them in 20 ms, fork takes
 * 31).  It makes only async-signal-safe calls and reports a failure as {step, errno} in
 * that shared memory.  The parent makes the sentence. */
#ifndef BERTH_AGENT_RANKS_SPAWN_H
#define BERTH_AGENT_RANKS_SPAWN_H

#include <sys/types.h>

#include "agent/placement/topo.h"
#include "agent/ranks/cgroup.h"
#include "agent/ranks/io.h"
#include "common/wire.h"

/* The program to exec: looked up once for all ranks of an app. */
struct program {
	char *path;   /* as given to execve; relative to the rank's wdir where it has a
			 '/' */
	char *script; /* what /bin/sh runs, NULL if the kernel execs it itself */
	const char **argv; /* borrowed strings, NULL at the end */
};

/* Find ARGV[0] as execvp(3) does: a name without '/' in the folders of PATH (those may
 * be relative to WDIR), else as it is.  0, or -1 with the error of a start that is
 * known without one: E_WDIR, E_NOT_FOUND, E_NOT_EXECUTABLE. */
int program_find(struct program *p, wire_strv argv, const char *path, const char *wdir,
		 struct err *e);
void program_free(struct program *p);

enum { SPAWN_LIMITS = 4 }; /* NOFILE, CORE, STACK, MEMLOCK */
struct spawn_limits {
	uint32_t umask;
	uint64_t soft[SPAWN_LIMITS]; /* ~0: unlimited; the hard ones cap them */
};

struct spawn {
	struct program *program; /* becomes /bin/sh PATH ARGS if the kernel says ENOEXEC
				    of a text */
	char *const *env;
	const char *wdir;
	const struct cpuset *cpus; /* NULL: unbound */
	const struct spawn_limits *limits;
	/* become 0, 1, 2 and LIVENESS_FD; all others of ours close on exec */
	int fd[IO_CHILD_FDS];
	int pmi; /* becomes spawn_pmi_fd(limits); -1: there is none */
};

/* The soft limits of L, none above the hard one. */
void spawn_soft_limits(const struct spawn_limits *l, uint64_t soft[SPAWN_LIMITS]);
/* The number of the liveness pipe in a child with L, and that of PMI_FD. */
int spawn_liveness_fd(const struct spawn_limits *l);
int spawn_pmi_fd(const struct spawn_limits *l);

/* Processes started together: while one runs towards its exec the next is made, so that
 * a busy core delays no other process.  All signals are blocked from open to wait.
 * (64 ranks of `true` on 2 quiet cores: one after the other with vfork 25 ms, together
 * 21; with other load on the cores 46 and 20.) */
struct spawn_batch;

/* Room for MOST processes, which begin in the cgroup of ENTRY.  NULL with E. */
struct spawn_batch *spawn_batch_open(size_t most, struct cgroup_entry entry,
				     struct err *e);
/* Make a process and return its number: 0, 1, ...  What S points to must stay until
 * spawn_batch_wait(); its descriptors may be closed at once. */
size_t spawn_batch_add(struct spawn_batch *b, const struct spawn *s);
/* Until each has exec'd or failed. */
void spawn_batch_wait(struct spawn_batch *b);
/* If process I could not be exec'd because it is a text without "#!", its program is
 * now /bin/sh with this text: start this again, with new descriptors.  Else NULL. */
const struct spawn *spawn_batch_text(struct spawn_batch *b, size_t i);
/* The pid of process I, or -1 with E: E_NOT_FOUND, E_NOT_EXECUTABLE, E_WDIR, E_SPAWN.
 * BIND_ERRNO is 0, or the errno of a failed binding: then it runs unbound. */
pid_t spawn_batch_result(struct spawn_batch *b, size_t i, int *bind_errno,
			 struct err *e);
/* After spawn_batch_wait(): a process could not enter the cgroup, and began outside. */
bool spawn_batch_outside(const struct spawn_batch *b);
void spawn_batch_free(struct spawn_batch *b);

#endif
