/* env_forward.h - pure: the environment variables that travel from runner to the ranks.
 *
 * All variables travel but those of another launcher's task, those of the launch host
 * or its login session (each host has its own), and the options of runner.  A variable
 * that -x or --env-file names travels in any case: add these lists after
 * env_forward().  The tables of names are in env_forward.c and common/taskvars.h. */
#ifndef BERTH_LAUNCHER_JOB_ENV_FORWARD_H
#define BERTH_LAUNCHER_JOB_ENV_FORWARD_H

#include <stdbool.h>

#include "common/str.h"
#include "launcher/request.h"

/* Add to OUT the variables of OWN (as environ) that travel.  MANAGED: in the job of a
 * resource manager; else the variables that tell the shape of a Slurm allocation stay
 * here, because these hosts are not the allocation's.  OPTION_NAMES: the BERTH_*
 * variables that are options of runner. */
void env_forward(struct strv *out, char *const *own, bool managed,
		 const char *const *option_names, size_t noptions);

/* Set in OUT the variables that the -x words X name: NAME (its value is in OWN_ENV),
 * NAME=VALUE, 'PREFIX*'.  A name without a value there, and a prefix that matches
 * nothing, are not errors. */
int env_forward_export(struct strv *out, const struct strv *x,
		       const struct strv *own_env, struct err *e);

/* Take the list of GPUs out of ENV, which -x set: of CUDA_VISIBLE_DEVICES or its like.
 * A value that hides all GPUs ("", "-1") stays.  NAME gets the variable; the caller
 * frees the value, which is NULL if there is none.  Two lists that differ: E. */
int env_forward_gpus(char **list, const char **name, struct strv *env, struct err *e);

/* Set in OUT the variables of the file PATH.  A line is NAME=VALUE, with or without
 * "export " before it, or empty, or a comment after '#'.  Values are quoted as for sh.
 * Nothing is expanded: a '$' outside '...' is an error.  Errors name "file:line". */
int env_forward_file(struct strv *out, const char *path, struct err *e);

/* Set in OUT what all apps have of X: what --export names, the variables of --env-file,
 * what -x names. */
int env_forward_asked(struct strv *out, const struct asked_env *x,
		      const struct strv *own_env, struct err *e);

#endif
