/* job_spec.h - what each host is told of the job: plan and request to job frames. */
#ifndef BERTH_LAUNCHER_JOB_JOB_SPEC_H
#define BERTH_LAUNCHER_JOB_JOB_SPEC_H

#include "launcher/job/job.h"

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
/* The frames alone, to H, whose ranks join the others. */
void job_spec_send_one(struct job *j, const struct host *h);

/* All agents hold the ports of their ranks: if --tf-config asks for it, tell each of
 * them what TF_CONFIG says.  0, or -1 with j->err. */
int job_spec_send_tf_config(struct job *j);

#endif
