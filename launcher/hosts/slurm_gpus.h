/* slurm_gpus.h - pure: srun's option for a step that has all GPUs of a Slurm job.
 *
 * A job of --gpus-per-node or --gres has as many on each host, and --gpus-per-node
 * gives them to a step.  A job of --gpus or --gpus-per-task may have unequal numbers.
 * Slurm 22.05 then refuses --gpus-per-node ("Invalid generic resource"), or gives the
 * step one GPU.  Such a job needs a step for each host, with --gpus=N; scontrol says
 * what N is.  From Slurm 23.11 on, a step of --external-launcher has all that the job
 * has on each host. */
#ifndef BERTH_LAUNCHER_HOSTS_SLURM_GPUS_H
#define BERTH_LAUNCHER_HOSTS_SLURM_GPUS_H

#include "launcher/hosts.h"

/* Does only `scontrol show job --details` tell how many GPUs each host has? */
bool slurm_gpus_differ(char *const *env);

/* The option of one step for all hosts; NULL: this Slurm has none.  VERSION is what
 * `scontrol --version` says. */
const char *slurm_gpus_any_option(const char *version);

/* The option where they do not differ; NULL: the job has none.  To be freed. */
char *slurm_gpus_option(char *const *env);

/* The GPUs of each host of HOSTS in TEXT, what scontrol says, into GPUS. */
void slurm_gpus_read(int *gpus, const struct hosts *hosts, const char *text);

#endif
