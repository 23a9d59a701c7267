/* place_request.h - the ranks of one host: a berth for each, and its environment.
 *
 * A job of runner's (job_place.c) and a step of Slurm's (step.c) both are a request.  A
 * new variable of ranks gets its value in env_rank_of() alone. */
#ifndef BERTH_AGENT_PLACE_REQUEST_H
#define BERTH_AGENT_PLACE_REQUEST_H

#include "agent/placement/env.h"
#include "agent/pmi/server.h"
#include "common/package.h"

/* Borrows everything. */
struct place_request {
	const struct wire_job *job; /* runner's frame, or what a step makes like it */
	const struct wire_app *app; /* the job's, in a row; NULL: a step has none */
	const struct wire_tf_config *tf_config; /* of the job; NULL: none, or not yet */
	const struct topo *topo;                /* of the machine */
	const struct gpus *gpus;                /* of the job */
	struct placement *placement;            /* which place_job() fills */
	const struct package *package;
	bool has_folder;          /* job->folder has a package, too */
	struct server *server;    /* of the ranks; or NULL */
	uint32_t mpi;             /* what ranks get: enum mpi_given */
	uint32_t pmi_fd;          /* 0: no PMI-1 */
	const char *memory;       /* a folder for memory that ranks share; or NULL */
	const struct cpuset *has; /* the ranks are bound to these masks; or NULL */
	const bool *may;          /* beside HAS, as of place_fixed() */
};

/* The host has more ranks than CPUs. */
static inline bool place_oversubscribes(const struct place_request *q)
{
	return q->job->ranks.n > q->topo->npu;
}

/* A berth for each rank.  0, or -1 with E, as place_ranks(), or E_GPU_NODE. */
int place_job(const struct place_request *q, struct err *e);
/* All that the environment of local rank LOCAL is made of.  The rank was placed. */
struct env_rank env_rank_of(const struct place_request *q, uint32_t local);

#endif
