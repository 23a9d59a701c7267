/* ledger_file.h - $XDG_STATE_HOME/berth/ledger, else ~/.local/state/berth/ledger: how
 * fast a user's commands were.
 *
 * One runner at a time has it.  A job never fails for it: if it cannot be read, locked
 * or written, nothing is said, and nothing is known. */
#ifndef BERTH_LAUNCHER_JOB_LEDGER_FILE_H
#define BERTH_LAUNCHER_JOB_LEDGER_FILE_H

#include "launcher/job/job.h"

/* The job has ended: what it was like to the ledger, and what it is compared with to
 * its account. */
void ledger_file_note(struct job *j);

#endif
