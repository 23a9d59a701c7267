/* srun_command.h - pure: the srun that starts agents, as text.
 *
 * Source: srun(1) of Slurm 22.05, and what was measured with it. */
#ifndef BERTH_LAUNCHER_TRANSPORT_SRUN_COMMAND_H
#define BERTH_LAUNCHER_TRANSPORT_SRUN_COMMAND_H

#include "common/str.h"

/* One step of one agent on each of these hosts. */
struct srun_step {
	const char *const *hosts; /* as Slurm names them */
	size_t n;
	int het_group;     /* of a job with several components; -1: it has one */
	const char *gpus;  /* srun's option for all GPUs of the job there, or NULL */
	const char *agent; /* its path */
	bool any_owner;    /* --launch-agent: the user chose that path */
	const char *copy;  /* on the hosts: srun sends AGENT there; NULL: it is there */
	const char *how;   /* HOW of the agent's --connect=HOW (agent/call.h) */
};

void srun_argv(struct strv *argv, const struct srun_step *step);

/* The environment of srun, of OWN: srun sends all of it to the hosts in clear.  A
 * plugin of ours knows by BERTH_STEP_OF_RUNNER that ranks are not srun's tasks. */
void srun_environment(struct strv *env, char *const *own);

/* The host of a line ":berth: again HOST" that LINE is, or NULL. */
const char *srun_again(const char *line);

/* SrunPortRange of the text of a slurm.conf, the last one.  False: there is none, and
 * FIRST and LAST are as they were. */
bool srun_port_range(const char *conf, unsigned *first, unsigned *last);

/* How Slurm's programs prove who they are, by the text of a slurm.conf or of `scontrol
 * show config`: its AuthType. */
enum srun_auth {
	SRUN_AUTH_UNKNOWN, /* it is not in the text */
	SRUN_AUTH_OWN,     /* auth/slurm, auth/none: there may be no MUNGE */
	SRUN_AUTH_MUNGE    /* auth/munge, or a type that we do not know */
};
enum srun_auth srun_auth_type(const char *conf);

/* The socket of munged that AuthInfo names there; to be freed.  NULL: the usual one. */
char *srun_munge_socket(const char *conf);

/* A line of what srun and its tasks said that is of use in a message, the last one, or
 * NULL.  To be freed. */
char *srun_words(const char *said);

#endif
