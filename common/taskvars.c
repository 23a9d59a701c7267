#include "common/taskvars.h"

#include <string.h>

/* A name that ends in "*" is a prefix. */
static const char *const names[] = {
	/* of a resource manager, for one task, step or node */
	"SLURM_PROCID",
	"SLURM_LOCALID",
	"SLURM_NODEID",
	"SLURM_NTASKS",
	"SLURM_NPROCS",
	"SLURM_STEP*",
	"SLURM_GTIDS",
	"SLURM_CPU_BIND*",
	"SLURM_MEM_BIND*",
	"SLURM_GPU_BIND*",
	"SLURM_TASK_PID",
	"SLURM_SRUN_COMM_*",
	"SLURM_LAUNCH_NODE_IPADDR",
	"SLURM_TOPOLOGY_ADDR*",
	"SLURM_PMI*",
	"SLURM_RLIMIT_*",
	"SLURM_UMASK",
	"SLURMD_*",
	"PBS_NODENUM",
	"PBS_TASKNUM",
	"PBS_VNODENUM",
	"FLUX_TASK_*",
	"JSM_*",
	"PALS_*",
	"ALPS_APP_PE",

	/* of other launchers */
	"PMI_*",
	"PMIX_*",
	"PRTE_*",
	"HYDI_*",
	"MV2_COMM_WORLD_*",
	"MPI_LOCALRANKID",
	"MPI_LOCALNRANKS",
	"OMPI_COMM_*",
	"OMPI_MCA_orte_*",
	"OMPI_MCA_ess*",
	"OMPI_APP_CTX_NUM_PROCS",
	"OMPI_ARGV",
	"OMPI_COMMAND",
	"OMPI_FILE_LOCATION",
	"OMPI_FIRST_RANKS",
	"OMPI_NUM_APP_CTX",
	"OMPI_UNIVERSE_SIZE",
	"RANK",
	"WORLD_SIZE",
	"LOCAL_RANK",
	"LOCAL_WORLD_SIZE",
	"LOCAL_SIZE",
	"NODE_RANK",
	"CROSS_RANK",
	"CROSS_SIZE",
	"GROUP_RANK",
	"GROUP_WORLD_SIZE",
	"ROLE_RANK",
	"ROLE_WORLD_SIZE",
	"ROLE_NAME",
	"MASTER_ADDR",
	"MASTER_PORT",
	"TORCHELASTIC_*",
	"HOROVOD_RANK",
	"HOROVOD_SIZE",
	"HOROVOD_LOCAL_RANK",
	"HOROVOD_LOCAL_SIZE",
	"HOROVOD_CROSS_RANK",
	"HOROVOD_CROSS_SIZE",
	"HOROVOD_HOSTNAME",
	"HOROVOD_GLOO_RENDEZVOUS_*",
	"HOROVOD_SECRET_KEY",
};

bool taskvars_has(const char *name, size_t len)
{
	static const char tuning[] = "PMIX_MCA_"; /* the user's, for PMIx itself */

	if (len >= sizeof tuning - 1 && !memcmp(name, tuning, sizeof tuning - 1))
		return false;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		size_t n = strcspn(names[i], "*");

		if (n <= len && !memcmp(names[i], name, n) && (names[i][n] || n == len))
			return true;
	}
	return false;
}
