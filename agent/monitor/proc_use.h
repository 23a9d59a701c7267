/* proc_use.h - what one process has used since it began, as /proc says.
 *
 * Six files are read: 60 us.  A file that cannot be read leaves its numbers 0. */
#ifndef BERTH_AGENT_MONITOR_PROC_USE_H
#define BERTH_AGENT_MONITOR_PROC_USE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_use {
	/* of all threads, of the main thread; in which that had no CPU */
	uint64_t cpu_us, main_us, delay_us;
	uint64_t resident_bytes;
	uint64_t read_bytes, written_bytes; /* by system calls */
	uint64_t disk_bytes;                /* read from disks */
	uint64_t sleeps, preempted;         /* switches of the main thread */
	uint32_t threads;
	uint32_t children; /* of the main thread */
	uint64_t children_us;
	pid_t child;     /* the first of them, or 0 */
	char state[2];   /* of the main thread, as in /proc/PID/stat */
	char cpus[1024]; /* on which that may run: a list; "" if it is longer */
};

/* ROOT: "", or a folder in place of /.  False: there is no such process. */
bool proc_use_read(struct proc_use *u, const char *root, pid_t pid);

/* The process at or below PID that does its work: from a shell, or from another program
 * that waits for one child, that child.  U: what it has used. */
pid_t proc_use_worker(struct proc_use *u, const char *root, pid_t pid);

#endif
