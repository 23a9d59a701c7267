/* roles.h - --tf-config: the role of each program in the cluster of TF_CONFIG.
 *
 * Once one program has a role, each program that names none is a worker.  No I/O.
 * Source: tensorflow/python/distribute/multi_worker_util.py, which allows one chief and
 * one evaluator. */
#ifndef BERTH_LAUNCHER_CLI_ROLES_H
#define BERTH_LAUNCHER_CLI_ROLES_H

#include "launcher/cli/option.h"

/* Setter of the option table. */
int value_tf_config(const struct setting *s, const char *value, struct err *e);

/* All sources are in R: the roles of all programs, which R->env.tf_config sums up.  A
 * warning to NOTES if ENV or -x has a TF_CONFIG, which goes before runner's. */
int roles_settle(struct request *r, struct strv *notes, char *const *env,
		 struct err *e);

#endif
