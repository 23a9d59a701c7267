/* signals.h - the signals that runner takes, as events of the loop; and ^Z.
 *
 * A signal that the program that started runner ignores (nohup, a shell's "&") stays
 * ignored. */
#ifndef BERTH_LAUNCHER_JOB_SIGNALS_H
#define BERTH_LAUNCHER_JOB_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

struct event;
struct job;

struct signals {
	struct event *watch[10];
	void (*on_signal)(struct job *j, int signo);
	uint64_t pause_by_ms; /* ^Z: runner stops itself then at the latest */
	int last;             /* of INT, TERM and HUP */
	bool said;            /* the user has been told of a TERM or HUP */
	uint64_t told_ms; /* an agent last said that Slurm sent it TERM; 0: none did */
};

/* ON_SIGNAL gets each INT, TERM, HUP, USR1, USR2, CONT and QUIT.  ^Z is done here: the
 * agents are told, all ranks stop, then runner stops itself; afterwards the time that
 * it stood still counts in no deadline of J. */
void signals_open(struct job *j, void (*on_signal)(struct job *j, int signo));
void signals_close(struct job *j);

#endif
