/* job_spec.h - what each host is told of the job: plan and request to job frames. */
#ifndef BERTH_LAUNCHER_JOB_JOB_SPEC_H
#define BERTH_LAUNCHER_JOB_JOB_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/job.h"
#include "common/wire.h"

struct job;

struct job_spec {
	char job_id[33];                   /* BERTH_JOB: random hexadecimal digits */
	unsigned char key[WIRE_KEY_BYTES]; /* of the epoch */
	char *master_addr;                 /* NULL until the epoch's job was sent */
	uint32_t master_port;
	enum gpu_visible visible;
	char *visible_why;   /* file:line that decided, or the option */
	size_t credit_bytes; /* output that each host may send in advance */
	char *cwd;
	uint64_t nofile; /* the user's soft limit, before runner raised its own */
	bool managed;    /* inside a resource manager's job */
};

/* All but what each epoch chooses.  Raises runner's own limit of open files. */
void job_spec_open(struct job_spec *s);
void job_spec_free(struct job_spec *s);

/* --gpu-visible auto is decided here once, for all hosts. */
void job_spec_choose_visible(struct job *j);

/* Choose rendezvous, key and credit of the epoch, and send app and job frames to each
 * host with ranks.  0, or -1 with j->err. */
int job_spec_send(struct job *j);

#endif
