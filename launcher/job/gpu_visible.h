/* visible.h - does the program choose its GPU by local rank?  For --gpu-visible auto.
 *
 * "one" (each rank sees its GPU alone) suits programs that never choose a device; one
 * that calls set_device(local_rank) needs "node" (all GPUs, in rank order).  We read
 * the script that the command line leads to.  Unknown means one: a wrong "one" ends
 * with a message that names the option, a wrong "node" puts all ranks on the first GPU
 * and says nothing.
 *
 * visible_scan() is pure; visible_find() only reads files, never runs anything. */
#ifndef BERTH_LAUNCHER_JOB_GPU_VISIBLE_H
#define BERTH_LAUNCHER_JOB_GPU_VISIBLE_H

#include "common/job.h"
#include "common/str.h"

enum { VISIBLE_SCAN_BYTES = 256 * 1024 };

struct visible {
	enum gpu_visible mode; /* VISIBLE_ONE or VISIBLE_NODE */
	char *file;            /* what decided, as reached from argv; NULL for one */
	size_t line; /* in file, from 1; 0: file is a word of the command line */
	char *word;  /* the name found there, as "set_device"; NULL for one */
};

/* Scan N bytes of Python.  VISIBLE_NODE if a local rank is used as a device: LINE is
 * then where, and WORD the name (cut to WORD_BYTES); else VISIBLE_ONE.  Comments and
 * strings do not count, expressions inside f-strings do.  LINE and WORD may be NULL. */
enum gpu_visible visible_scan(const char *text, size_t n, size_t *line, char *word,
			      size_t word_bytes);

/* Follow ARGV through shells, wrappers, -m and entry scripts to what it runs, and scan
 * that.  WDIR: where it will run, NULL for here.  ENV ("NAME=VALUE" each) gives PATH
 * and PYTHONPATH.  V must be {0}; free it with visible_free(). */
void visible_find(struct visible *v, const struct strv *argv, const char *wdir,
		  const struct strv *env);
void visible_free(struct visible *v);

#endif
