/* env.h - the environment of a rank: one table of what it gets, who reads it, and who
 * wins.
 *
 * Pure: environments, the rank's place in the job and its berth in, a list out. Layers,
 * each over the one before: this host's own (HOME, XDG, CUDA paths survive; what
 * another launcher said to its task does not), what runner forwarded, the table.  What
 * the user gave with -x (app.env) wins over all of the table but the rank's identity.
 * Sources of the contract: what torchrun, horovodrun, Open MPI and hydra set, and what
 * PyTorch, Lightning, accelerate, DeepSpeed, TensorFlow and Horovod read. */
#ifndef BERTH_AGENT_PLACEMENT_ENV_H
#define BERTH_AGENT_PLACEMENT_ENV_H

#include "agent/placement/place.h"
#include "common/wire.h"

struct env_rank {
	const struct wire_job *job;
	const struct wire_app *app;
	uint32_t local; /* local rank */
	const struct gpus *gpus;
	const struct placement *placement;
	bool (*dir_exists)(const char *path); /* for TMPDIR */
	const char *agent;                    /* the socket for libberth, or NULL */
};

/* The value of CUDA_VISIBLE_DEVICES (or the AMD variable) for local rank R->local under
 * the job's gpu_visible mode; "" where it stays as it is.  Appends to S. */
void env_visible(struct str *s, const struct env_rank *r);

/* What all ranks of one app have in common: made once, since most of it is.  Borrows
 * the job's, the app's and OWN's strings. */
struct env_base {
	const char **v;
	size_t n;
	bool set[96]; /* row of the table: a rank gets it */
};

/* R->local does not matter here.  OWN is the agent's own environment. */
void env_base(struct env_base *b, const struct env_rank *r, char *const *own);
/* The environment of R as one block for free(); borrows the strings of B. */
char **env_build(const struct env_base *b, const struct env_rank *r);
/* The value that B gives NAME, or NULL; not for names in the table. */
const char *env_get(const struct env_base *b, const char *name);
void env_base_free(struct env_base *b);

/* Row ROW of the table (documentation, tests): its name, who reads it; NULL past the
 * end. */
const char *env_row(size_t row, const char **readers);

#endif
