/* forward.h - pure: which environment variables of runner travel to the ranks.
 *
 * All of them, but for what describes another launcher's task, what belongs to the
 * launch host or its login session (each host keeps its own), and runner's own options.
 * What -x or
 * --env-file names travels whatever its name is: add these lists after env_forward().
 * The table of names, with the harm each one does, is in forward.c. */
#ifndef BERTH_LAUNCHER_JOB_ENV_FORWARD_H
#define BERTH_LAUNCHER_JOB_ENV_FORWARD_H

#include <stdbool.h>

#include "common/str.h"

/* Add to OUT what travels of OWN (as environ).  MANAGED: in the job of a resource
 * manager; else what tells the shape of a Slurm allocation stays here, because the
 * hosts are not its. OPTION_NAMES: the BERTH_* variables that are options of runner. */
void env_forward(struct strv *out, char *const *own, bool managed,
		 const char *const *option_names, size_t noptions);

/* Set in OUT what the -x words X name: NAME (value from OWN_ENV), NAME=VALUE,
 * 'PREFIX*'. A prefix that nothing has is no error. */
int env_forward_export(struct strv *out, const struct strv *x,
		       const struct strv *own_env, struct err *e);

/* Set in OUT what the file PATH says: lines NAME=VALUE, "export " before it allowed,
 * empty lines, comments after '#'; values quoted as for sh, but nothing is expanded, so
 * that a '$' outside '...' is an error.  Errors say "file:line". */
int env_forward_file(struct strv *out, const char *path, struct err *e);

/* NAME is like *TOKEN*, *SECRET*, *KEY*, *PASS* or *CRED*, in any case. */
bool env_forward_is_secret(const char *name);

/* Append VALUE as we may print it: as it is, or "<redacted, 40 bytes>" for a secret
 * name or a URL that holds a password. */
void env_forward_redact(struct str *s, const char *name, const char *value);

#endif
