/* allocation_load.h - what allocation.h needs beside the environment: the file that a
 * variable names, the answer of the program `flux`, the addresses of names.
 *
 * Nothing here takes longer than its deadline. */
#ifndef BERTH_LAUNCHER_HOSTS_ALLOCATION_LOAD_H
#define BERTH_LAUNCHER_HOSTS_ALLOCATION_LOAD_H

#include "launcher/hosts/allocation.h"

/* Read the hosts of A, which allocation_find() made of ENV.  0, or -1 with E. */
int allocation_load(struct allocation *a, char *const *env, struct err *e);

/* A Slurm job: srun's option for all GPUs of the job on each host of A, into OPTION, to
 * be freed, or NULL: there are none.  *OWN_GPUS: each host needs one of its own.  0,
 * or -1 with E. */
int allocation_load_gpus(char **option, bool *own_gpus, const struct allocation *a,
			 char *const *env, struct err *e);

/* Adds the output of `scontrol show config` in ENV to TEXT: nothing if it fails. */
void allocation_load_config(struct str *text, const struct allocation *a,
			    char *const *env);

/* Fill each AT[i] that is SIZE_MAX and whose host has an address of a host of A. */
void allocation_match_addresses(size_t *at, const struct hosts *asked,
				const struct allocation *a, uint64_t deadline_ms);

#endif
