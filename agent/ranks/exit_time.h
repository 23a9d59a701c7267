/* exit_time.h - when a rank's exit began, and when the rank printed an error before.
 *
 * A process that exits closes its descriptors, the highest first.  The agent can reap
 * it only later.  On a busy machine other ranks, which fail because its sockets are
 * closed, may exit and be reaped in between (5 of 100 rings with os._exit(), 8 ranks on
 * 2 cores).  So each rank holds the write end of a liveness pipe, as descriptor
 * LIVENESS_FD and for nothing else: its exit begins when that end is closed.  If
 * children of the rank hold the pipe too, the time of reaping serves instead.
 *
 * An interpreter prints its error before it shuts down.  Shutting down closes its
 * sockets and may last longer than the exits of other ranks that fail because of it.
 * So the time of the error is kept, too. */
#ifndef BERTH_AGENT_RANKS_EXIT_TIME_H
#define BERTH_AGENT_RANKS_EXIT_TIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct event;
struct event_base;

/* Above all descriptors that a program opens, or the highest that it may. */
enum { LIVENESS_FD = 1023 };

struct exit_time {
	struct event *readable;    /* NULL: the pipe is closed */
	int fd;                    /* the pipe's read end */
	uint64_t closed_ns;        /* when the rank closed the pipe; 0: it did not */
	uint64_t error_printed_ns; /* when it printed its last error; 0: none */
};

/* Watch the read end FD of a rank's liveness pipe, which T owns from now on. */
void exit_time_watch(struct exit_time *t, struct event_base *base, int fd);
/* The rank wrote N bytes at TEXT to stderr. */
void exit_time_stderr(struct exit_time *t, const void *text, size_t n);
/* When the exit of a rank began that was reaped at REAPED_NS. */
uint64_t exit_time_began(const struct exit_time *t, uint64_t reaped_ns);
/* Has rank PID printed an error a short time ago, or does it exit just now? */
bool exit_time_is_near(const struct exit_time *t, pid_t pid);
/* Takes {0}, too. */
void exit_time_free(struct exit_time *t);

#endif
