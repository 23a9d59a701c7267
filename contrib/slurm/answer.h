/* answer.h - pure: what `berth-agent --step` said (agent/step.h), checked.
 *
 * slurmstepd reads it as root, and the program that wrote it ran as the user: nothing
 * in it is believed. */
#ifndef BERTH_SLURM_ANSWER_H
#define BERTH_SLURM_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	ANSWER_BYTES = 4 << 20,
	ANSWER_TASKS = 4096,
	ANSWER_CPUS = 8192,      /* Linux's limit */
	ANSWER_VARIABLES = 128,  /* of one task */
	ANSWER_NAME_BYTES = 128, /* of a variable */
	ANSWER_LINE_BYTES = 4096
};

/* Texts point into what was read. */
struct answer_variable {
	const char *name, *value; /* no value: the variable goes */
	bool if_unset;
};

struct answer_task {
	bool bound;
	uint64_t cpus[ANSWER_CPUS / 64];
	long gpu; /* -1: none */
	struct answer_variable v[ANSWER_VARIABLES];
	size_t n;
	const char *report;
};

struct answer {
	bool off, print;
	bool masks;   /* ask again with the masks that the tasks have got */
	bool visible; /* all GPUs that Slurm gave a task stay visible to it */
	const char *error, *hint;
	const char *warning[8];
	size_t warnings;
	struct answer_task *task; /* v[0..tasks); free() */
	size_t tasks;
};

/* TEXT, which ends with a NUL and is changed, for a step with TASKS tasks here.  True
 * if it is a whole answer: off, an error, or something for each task.  Else A is
 * empty. */
bool answer_read(struct answer *a, char *text, size_t tasks);

#endif
