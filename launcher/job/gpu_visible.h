/* gpu_visible.h - does the program choose its GPU by local rank?  For --gpu-visible
 * auto.
 *
 * "one" (each rank sees its own GPU alone) suits programs that never choose a device.
 * A program that calls set_device(local_rank) needs "node" (all GPUs, in rank order).
 * Only the entry script is read, which the command line or one shell script names; what
 * it imports is not read.  If it is not found, the answer is "one": a wrong "one" ends
 * with a message that names the option, a wrong "node" puts all ranks on the first GPU
 * without a message. */
#ifndef BERTH_LAUNCHER_JOB_GPU_VISIBLE_H
#define BERTH_LAUNCHER_JOB_GPU_VISIBLE_H

#include "common/job.h"
#include "common/str.h"

enum { VISIBLE_FILE_BYTES = 256 * 1024 /* read of one script */ };

struct visible {
	enum gpu_visible mode; /* VISIBLE_ONE or VISIBLE_NODE */
	char *file;            /* what decided, as reached from argv; NULL for one */
	size_t line; /* in file, from 1; 0: file is a word of the command line */
	char *word;  /* the name found there, as "set_device"; NULL for one */
};

/* Pure: set V if N bytes of Python, the TEXT of FILE, use a local rank as a device.
 * Comments and strings do not count, expressions inside f-strings do. */
void visible_scan(struct visible *v, const char *file, const char *text, size_t n);

/* Find the entry script of ARGV and scan it; files are read, nothing is run.  WDIR is
 * the directory where ARGV will run, NULL for this one.  ENV ("NAME=VALUE" each) gives
 * PYTHONPATH.  V must be {0}; free it with visible_free(). */
void visible_find(struct visible *v, const struct strv *argv, const char *wdir,
		  const struct strv *env);
void visible_free(struct visible *v);

#endif
