/* exits.h - the exit statuses of runner that are not a rank's own: the one table.
 *
 * The status of a job is 0, or that of the first failing rank: its own code, or
 * 128+signal.  Statuses below are runner's.  Sources: 124-127 as timeout(1) and env(1)
 * have them; 240 and 241 lie above 128 so that a batch system's "retry" policy for
 * 128..255 covers them. */
#ifndef BERTH_EXITS_H
#define BERTH_EXITS_H

/* X(name, status, meaning for the man page) */
#define EXITS(X)                                                                       \
	X(EXIT_USAGE, 2,                                                               \
	  "wrong usage, or refused before the start: slots, GPUs, options")            \
	X(EXIT_TIMELIMIT, 124, "the time limit of --timeout ran out")                  \
	X(EXIT_RUNNER, 125, "runner itself failed")                                    \
	X(EXIT_NOEXEC, 126,                                                            \
	  "the program is not executable, or there is no such --wdir")                 \
	X(EXIT_NOTFOUND, 127, "there is no such program")                              \
	X(EXIT_START, 240, "hosts could not be started, or --check found a fault")     \
	X(EXIT_LOST, 241, "a host or its agent was lost")

#define X(name, status, meaning) name = status,
enum exits { EXITS(X) EXIT_SIGNAL_BASE = 128 };
#undef X

#endif
