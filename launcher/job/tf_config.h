/* tf_config.h - pure: the cluster that TF_CONFIG names, and the place of each rank.
 *
 * Source: tensorflow/python/distribute/cluster_resolver/tfconfig_cluster_resolver.py
 * for the form, multi_worker_util.py beside it for the roles: one chief and one
 * evaluator at most, and the evaluator is not in the cluster. */
#ifndef BERTH_LAUNCHER_JOB_TF_CONFIG_H
#define BERTH_LAUNCHER_JOB_TF_CONFIG_H

#include "common/job.h"
#include "common/str.h"

struct tf_rank {
	enum tf_role role;
	const char *address; /* a number; of IPv6 without brackets */
	uint32_t port;
	uint32_t task; /* its number among the ranks of its role: is filled in */
};

/* Append the value of "cluster" for the ranks RANK[0..NP), as JSON, to OUT.  0, or -1
 * with E: E_TF_ROLES, E_TF_LONG. */
int tf_config_cluster(struct str *out, struct tf_rank *rank, uint32_t np,
		      struct err *e);

#endif
