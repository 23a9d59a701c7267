/* job_spec.h - what each host is told of the job: plan and request to job frames. */
#ifndef BERTH_LAUNCHER_JOB_JOB_SPEC_H
#define BERTH_LAUNCHER_JOB_JOB_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/job.h"
#include "common/str.h"
#include "common/wire.h"

struct job;

struct job_spec {
	char job_id[33];                   /* BERTH_JOB: random hexadecimal digits */
	unsigned char key[WIRE_KEY_BYTES]; /* of the epoch */
	char nspace[40];                   /* of PMIx: of the epoch, random */
	bool own_names;    /* PMIx knows hosts by their own names, which all differ */
	char *master_addr; /* NULL until the epoch's job was sent */
	uint32_t master_port;
	enum gpu_visible visible;
	char *visible_why;   /* file:line that decided, or the option */
	size_t credit_bytes; /* output that each host may send in advance */
	char *cwd;
	char *python;    /* runner's own, of common/package.h; or "" */
	uint64_t nofile; /* the user's soft limit, before runner raised its own */
	bool managed;    /* inside a resource manager's job */
	/* job_spec_read() sets: */
	struct strv *app_env; /* of each app: --export, --env-file and -x */
	size_t napps;
	struct strv gpus; /* --gpus, or a CUDA_VISIBLE_DEVICES of -x; or none */
};

/* All but what each epoch chooses.  Raises runner's own limit of open files. */
void job_spec_open(struct job_spec *s);
void job_spec_free(struct job_spec *s);

/* Once the hosts are up: what --env-file and -x set.  A list of GPUs there counts as
 * --gpus where hosts have GPUs.  0, or -1 with j->err. */
int job_spec_read(struct job *j);
/* If the ranks have ptys, tell all hosts with ranks the size of the user's terminal. */
void job_spec_window(struct job *j);

/* --gpu-visible auto is decided here once, for all hosts. */
void job_spec_choose_visible(struct job *j);

/* Choose rendezvous, key and credit of the epoch, and send app and job frames to each
 * host with ranks. */
void job_spec_send(struct job *j);

#endif
