/* report_file.h - --report: what the job knows at its end, to a page and to JSON.
 *
 * The files are opened before the job starts, so that a name that cannot be written to
 * is an error then. */
#ifndef BERTH_LAUNCHER_JOB_REPORT_FILE_H
#define BERTH_LAUNCHER_JOB_REPORT_FILE_H

#include "launcher/job/job.h"

/* Opens the files, if the user wants any; the job's events are kept for them.  0, or -1
 * with j->err. */
int report_file_open(struct job *j);
/* J has ended with STATUS. */
void report_file_write(struct job *j, int status);
void report_file_close(struct job *j);

#endif
