/* slurm.h - what contrib/slurm/berth_spank.c uses of Slurm's header of that name. */
#ifndef BERTH_STANDIN_SLURM_H
#define BERTH_STANDIN_SLURM_H

#include <stdint.h>
#include <sys/types.h>

#define SLURM_MAX_NORMAL_STEP_ID 0xfffffff0U

#endif
