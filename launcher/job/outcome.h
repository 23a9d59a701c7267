/* outcome.h - pure: how every rank and host ended, to one cause and one exit status.
 *
 * The first failure is the cause, by the agents' clocks and not by arrival.  Where two
 * lie within the clocks' error of each other the graver kind wins: host lost, OOM kill,
 * signal other than TERM or PIPE, exec failure, non-zero exit (TERM and PIPE count
 * here).  Among those that exit, who said on stderr that it fails did so then: its
 * program may need longer to end than the others, whom it has failed, do; one that said
 * so and then aborts counts as one that exits.  A process
 * that is killed, or crashes, closes its sockets before it is seen to be dead, and on a
 * busy machine it may get no turn in between while others see that and exit: as no exit
 * of another kills a rank, such an end goes before exits of up to 400 ms earlier. */
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

struct ending {
	enum fate fate;
	int64_t at_ns;      /* our clock */
	uint64_t error_ns;  /* of at_ns */
	int code;           /* exit code, or the signal */
	int64_t failing_ns; /* when it said that it fails, before it exited; or 0 */
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
