/* agent.h - all that one agent holds, from its machine to the ranks of its job.
 *
 * main.c reads as the steps; placing.c does "job", starting.c does "start". */
#ifndef BERTH_AGENT_AGENT_H
#define BERTH_AGENT_AGENT_H

#include "agent/placement/env.h"
#include "agent/ranks/gpucheck.h"
#include "agent/placement/place.h"
#include "agent/port.h"
#include "agent/ranks/rank.h"
#include "agent/pmi/server.h"
#include "agent/stream.h"

struct agent {
	struct event_base *base;
	struct stream stream;
	const char *xml; /* --place: no machine of ours */
	struct topo topo;
	struct gpus gpus; /* of the machine */
	struct port port;
	int mark;     /* sweep.h */
	int guardian; /* readable when it is dead, -1 for none */
	struct event *guardian_gone, *child, *term;

	const struct wire_job *job; /* the session's */
	const struct wire_app *app;
	size_t napp;
	struct gpus chosen; /* of the job */
	struct placement placement;
	bool placed;
	struct ranks ranks;
	struct server *server; /* while ranks run */
	struct gpucheck check;
	int status;
};

/* The job's ranks get their berths: sends berth for each, then placed; or the error. */
void agent_place(struct agent *a);
/* Exec the ranks that were placed: sends started or ended for each. */
void agent_start(struct agent *a);

struct env_rank agent_env_rank(const struct agent *a, uint32_t local);

/* Claims are taken for this job: it has GPUs, and no resource manager shares them. */
bool agent_claims_gpus(const struct agent *a);

#endif
