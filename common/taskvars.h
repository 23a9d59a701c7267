/* taskvars.h - the variables that say of a process which task of which launcher it is.
 *
 * With another launcher's each rank takes itself for rank 0, Open MPI believes that
 * srun started it, half a PMI makes MPI_Init hang, a nested srun binds wrongly.  So
 * neither runner forwards them nor does an agent hand on its own.  What describes the
 * whole job of a resource manager (SLURM_JOB_*, ...) and tuning (OMPI_MCA_*) is not
 * among them. */
#ifndef BERTH_TASKVARS_H
#define BERTH_TASKVARS_H

#include <stdbool.h>
#include <stddef.h>

/* Is the variable whose name is the LEN bytes at NAME one of them? */
bool taskvars_has(const char *name, size_t len);

#endif
