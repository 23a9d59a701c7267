/* env.h - the environment of a rank: the values of its variables (common/given.def),
 * and which value wins.
 *
 * Pure: environments, the rank's place in the job and its berth in, a list out.
 * Layers, each over the one before: this host's own environment (HOME, XDG, CUDA
 * paths stay, the variables of another launcher's task do not), what runner
 * forwarded, the table.  What the user gave with -x wins over all of the table but
 * the rank's identity.  Sources of the contract: what torchrun, horovodrun, Open MPI
 * and hydra set, and what PyTorch, Lightning, accelerate, DeepSpeed, TensorFlow and
 * Horovod read. */
#ifndef BERTH_AGENT_PLACEMENT_ENV_H
#define BERTH_AGENT_PLACEMENT_ENV_H

#include "agent/placement/place.h"
#include "common/str.h"

/* Entries "NAME=VALUE". */
struct env_list {
	const char *const *v;
	size_t n;
};

/* TF_CONFIG of a rank. */
struct env_tf {
	const char *cluster; /* JSON; "": not known yet; NULL: no TF_CONFIG */
	const char *role;    /* of TF_ROLE_NAMES */
	uint32_t task;       /* its number among the ranks of its role */
};

/* Files that this agent makes for a rank. */
struct env_paths {
	/* a folder for memory that ranks share, or ""; NULL: not known yet */
	const char *shared_memory;
	/* for NCCL's log: "", not known yet; "-", none; NULL: the job does not ask */
	const char *nccl_log;
	const char *timeline; /* as BERTH_RANK_TIMELINE has it; or NULL */
	const char *stack;    /* as BERTH_RANK_STACK has it; or NULL */
	const char *hook;     /* for PYTHONPATH: what makes use of that; or NULL */
};

/* All that a rank's environment is made of.  Borrows everything. */
struct env_rank {
	const struct gpus *gpus;
	const struct placement *placement;
	enum gpu_visible gpu_visible;
	enum gpu_id gpu_id;
	uint32_t rank, size, local_rank, local_size;
	uint32_t node, nodes;
	uint32_t cross_rank, cross_size; /* among the hosts with this local rank */
	uint32_t restarts, max_restarts; /* so far, at most */
	uint32_t master_port;            /* 0: no master */
	uint32_t pmi_fd;                 /* 0: no PMI-1 */
	bool has_pmix, oversubscribed;   /* more ranks than CPUs here */
	struct env_paths paths;
	const char *master_addr; /* "": no master */
	struct env_tf tf;
	const char *host;      /* as the user typed it */
	const char *host_list; /* of the job, "n[1-3]"; "": unknown */
	const char *job_id, *wdir;
	const char *agent_socket;               /* for libberth, or NULL */
	const char *horovod, *python, *library; /* of common/package.h; or NULL */
	const char *folder;                     /* of berth.run(); or NULL */
	bool managed;                           /* inside a resource manager's job */
	bool own_few; /* of this host's environment only PATH and HOME */
	struct env_list forwarded, given; /* by runner; with -x for this app */
	struct env_list pmix; /* what PMIx says to this rank: no option changes it */
	bool (*dir_exists)(const char *path); /* for TMPDIR */
};

/* Append the value of TF_CONFIG to S. */
void env_add_tf_config(struct str *s, const struct env_tf *tf);

/* The value of CUDA_VISIBLE_DEVICES (or the AMD variable) for R's local rank under the
 * job's gpu_visible mode, "" if it stays as it is.  Appends to S. */
void env_visible(struct str *s, const struct env_rank *r);

/* The part of the environment that all ranks of one app have in common.  It is made
 * once, since it is most of it.  Borrows the strings of R and of OWN. */
struct env_base {
	const char **v;
	size_t n;
	bool set[96];         /* row of the table: a rank gets it */
	const char *rest[96]; /* what follows that value, or NULL */
};

/* R is any rank of the app.  OWN is the agent's own environment. */
void env_base(struct env_base *b, const struct env_rank *r, char *const *own);
/* The environment of R as one block for free().  Borrows the strings of B. */
char **env_build(const struct env_base *b, const struct env_rank *r);
/* The part of env_build() that every rank of the app has, in each life of the job: for
 * a process from which ranks are forked. */
char **env_build_common(const struct env_base *b, const struct env_rank *r);
/* The names of the rest, NULL at the end. */
const char *const *env_own_names(void);
/* The value that B gives NAME, or NULL; not for names in the table. */
const char *env_get(const struct env_base *b, const char *name);
void env_base_free(struct env_base *b);

/* The environment of R, for a task of another launcher: "NAME=VALUE" into SET for each
 * variable, into DEFAULTS for those that are set if they have no value, and into UNSET
 * the names that are taken away.  Slurm's variables, PMI's, and those by which Berth's
 * own agent and its ranks find each other are left as they are. */
void env_task(struct strv *set, struct strv *defaults, struct strv *unset,
	      const struct env_rank *r);

#endif
