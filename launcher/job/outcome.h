/* outcome.h - pure: how every rank and host ended, to one cause and one exit status.
 *
 * The first failure is the cause, by the agents' clocks and not by arrival.  If two
 * failures lie within the clocks' error of each other, the graver kind wins: host lost,
 * OOM kill, signal other than TERM or PIPE, exec failure, non-zero exit.  TERM and PIPE
 * count as a non-zero exit.
 *
 * If a rank printed an error before it exited, it failed at that time: its program may
 * need longer to exit than the ranks that fail because of it.  An abort after such an
 * error counts as an exit.
 *
 * A process that is killed or crashes closes its sockets before the agent can reap it.
 * On a busy machine other ranks may exit in between.  The exit of one rank never kills
 * another, so such a death goes before exits that began up to EXIT_LASTS_MS earlier.
 * So does the loss of a host, also before crashes: the ranks of a dead agent are gone
 * before its stream ends, and some MPIs then crash. */
#ifndef BERTH_LAUNCHER_JOB_OUTCOME_H
#define BERTH_LAUNCHER_JOB_OUTCOME_H

#include "common/str.h"

/* In order of gravity. */
enum fate {
	FATE_NONE, /* runs, or never began */
	FATE_OK,
	FATE_EXIT,
	FATE_EXEC, /* could not be exec'd */
	FATE_SIGNAL,
	FATE_OOM,
	FATE_LOST /* its host or agent was lost */
};

/* The end of a rank, as an agent reported it.  Times are of our clock. */
struct ending {
	enum fate fate;
	int64_t began_ns;         /* when the exit began */
	uint64_t clock_error_ns;  /* of began_ns */
	int code;                 /* exit code, or the signal */
	int64_t error_printed_ns; /* when an error was printed before, or 0 */
};

/* From wait(2)'s STATUS, whether the OOM killer did it, and whether exec failed. */
void outcome_classify(struct ending *out, uint32_t status, bool oom, bool exec_failed);

/* Index of the cause among N endings, or -1 if none failed. */
long outcome_cause(const struct ending *v, size_t n);

/* Exit status for one failed ending (128+signal, EXIT_LOST, ...); 0 for FATE_OK. */
int outcome_status(const struct ending *cause);

/* Status of runner after a signal SIGNO sent to it: 0 for TERM with every rank at 0. */
int outcome_signalled(int signo, bool all_ok);

/* "SIGKILL", or "signal 40". */
const char *outcome_signal_name(int signo);

#endif
