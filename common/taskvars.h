/* taskvars.h - variables by which a launcher tells a process which task it is.
 *
 * runner does not forward them, and an agent does not pass on its own.  With variables
 * of another launcher each rank takes itself for rank 0, Open MPI assumes that srun
 * started it, MPI_Init hangs on an incomplete PMI, and a nested srun binds wrongly.
 * Variables of a whole job (SLURM_JOB_*) and parameters (OMPI_MCA_*) do not belong to
 * them. */
#ifndef BERTH_TASKVARS_H
#define BERTH_TASKVARS_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the LEN bytes at NAME are the name of such a variable. */
bool taskvars_has(const char *name, size_t len);

#endif
