/* signals.h - the signals that runner takes, as events of the loop; and ^Z.
 *
 * A signal that the program that started runner ignores (nohup, a shell's "&") stays
 * ignored. */
#ifndef BERTH_LAUNCHER_JOB_SIGNALS_H
#define BERTH_LAUNCHER_JOB_SIGNALS_H

#include "launcher/job/job.h"

/* ON_SIGNAL gets each INT, TERM, HUP, USR1, USR2, CONT and QUIT.  ^Z is done here: the
 * agents are told, all ranks stop, then runner stops itself; afterwards the time that
 * it stood still counts in no deadline of J. */
void signals_open(struct job *j, void (*on_signal)(struct job *j, int signo));
void signals_close(struct signals *s);

#endif
