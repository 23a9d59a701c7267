/* job.h - the words of a job that both programs know: policies, flags, their names.
 *
 * The names are those of the command line (--bind-to, --share, --gpu-visible, ...). */
#ifndef BERTH_JOB_H
#define BERTH_JOB_H

enum bind_to {
	BIND_AUTO,
	BIND_NONE,
	BIND_SOCKET,
	BIND_NUMA,
	BIND_L3,
	BIND_CORE,
	BIND_HWTHREAD
};
enum share { SHARE_SOCKET, SHARE_HOME, SHARE_MACHINE };
enum gpu_visible { VISIBLE_AUTO, VISIBLE_ONE, VISIBLE_NODE, VISIBLE_INHERIT };
enum gpu_id { GPU_ID_INDEX, GPU_ID_UUID };
enum replace { REPLACE_AUTO, REPLACE_ALONE, REPLACE_ALL };
enum mpi { MPI_AUTO, MPI_PMIX, MPI_PMI1, MPI_NONE };
enum horovod { HOROVOD_INSTALLED, HOROVOD_BERTH };
/* Roles of ranks in the cluster of TF_CONFIG.  OUT: of those that are not in it. */
enum tf_role { TF_UNSAID, TF_OUT, TF_WORKER, TF_CHIEF, TF_PS, TF_EVALUATOR, TF_ROLES };

/* Bits: what an agent found out about its programs and its host. */
enum mpi_found {
	MPI_WANTED = 1, /* a program here may use MPI */
	MPI_NO_PMIX = 2 /* and there can be no PMIx server */
};

/* How a request about names ended. */
enum found_status {
	FOUND_ALL,
	FOUND_SOME,
	FOUND_NONE,
	FOUND_DUPLICATE, /* a name to be published is known already */
	FOUND_NO_ROOM
};

/* Bits: what ranks get. */
enum mpi_given { MPI_GIVE_PMI1 = 1, MPI_GIVE_PMIX = 2 };

#define BIND_TO_NAMES "auto", "none", "socket", "numa", "l3", "core", "hwthread"
#define SHARE_NAMES "socket", "home", "machine"
#define GPU_VISIBLE_NAMES "auto", "one", "node", "inherit"
#define GPU_ID_NAMES "index", "uuid"
#define REPLACE_NAMES "auto", "alone", "all"
#define MPI_NAMES "auto", "pmix", "pmi1", "none"
#define HOROVOD_NAMES "installed", "berth"
/* from TF_OUT on */
#define TF_ROLE_NAMES "none", "worker", "chief", "ps", "evaluator"

/* Bits of job.flags. */
enum job_flag {
	JOB_PLAN = 1,           /* place and answer, start nothing */
	JOB_PTY = 2,            /* stdout of each rank is a raw pty */
	JOB_LOCAL = 4,          /* this host is the launcher's own machine */
	JOB_NO_GPU_SHARING = 8, /* refuse more ranks than GPUs */
	JOB_MANAGED = 16,       /* inside a resource manager's job: no GPU claims */
	JOB_OWN_ENV = 32, /* of the host's environment ranks get PATH and HOME alone */
	JOB_LISTEN = 64,  /* rank 0's agent listens at MASTER_PORT, for --check */
	JOB_PMI1 = 128,   /* ranks may get PMI-1 */
	JOB_PMIX = 256,   /* ranks may get PMIx */
	JOB_MPI = 512,    /* each program wants what ranks may get */
	JOB_HOROVOD = 1024,   /* `import horovod` gives ranks berth */
	JOB_TF_CONFIG = 2048, /* each rank has a port; tf_config comes before start */
	JOB_NCCL_LOG = 4096,  /* NCCL logs its transports, into stream 3 */
	JOB_DRAW = 8192,      /* with JOB_PLAN: placed has a drawing */
	JOB_GROWS = 16384, /* hosts may go: SIGTERM of the agent is said by terminate */
};

/* The findings of --check, in the order of its lines. */
enum check_row {
	CHECK_SSH,
	CHECK_AGENT,
	CHECK_WDIR,
	CHECK_PROGRAM,
	CHECK_IMPORTS,
	CHECK_WARM,
	CHECK_MPI,
	CHECK_GPUS,
	CHECK_NCCL,
	CHECK_CLOCK,
	CHECK_NAMES,
	CHECK_MASTER,
	CHECK_NOFILE,
	CHECK_MEMLOCK,
	CHECK_SHM,
	CHECK_ROWS
};
enum check_verdict { CHECK_OK, CHECK_FAILED, CHECK_SKIPPED, CHECK_WARNED, CHECK_NOTED };

#define CHECK_ROW_NAMES                                                                \
	"ssh", "agent", "wdir", "program", "imports", "warm", "mpi", "gpus", "nccl",   \
		"clock", "names", "master", "nofile", "memlock", "shm"

/* How a failure turns into an exit.  The agent waits by these, the launcher judges by
 * them which failure came first. */
enum {
	/* Most that passes from the begin of an exit until the agent has reaped it. */
	EXIT_LASTS_MS = 400,
	/* Most that passes from an error on stderr to the exit that follows from it. */
	ERROR_TO_EXIT_MS = 2000,
};

#endif
