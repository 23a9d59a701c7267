/* berth.h - what the user wants of a placement, and the berths that it gives: data. */
#ifndef BERTH_AGENT_PLACEMENT_BERTH_H
#define BERTH_AGENT_PLACEMENT_BERTH_H

#include "agent/placement/topo.h"
#include "common/job.h"

struct place_options {
	enum bind_to bind_to;
	unsigned bind_count; /* objects of core:N, hwthread:N, ...; 0 means 1 */
	enum share share;
	bool no_gpu_sharing;
};

struct berth {
	int gpu;            /* index into gpus.v, -1: none */
	struct cpuset cpus; /* the mask to bind to; the allowed set when unbound */
	bool bound;         /* false for --bind-to none */
	uint32_t ncores;    /* its part of these cores (OMP_NUM_THREADS), at least 1 */
	char *why;          /* one line */
	char *numa;         /* NUMA nodes of cpus, list string, "" for none */
};

struct placement {
	struct berth *v; /* v[0..n) by local rank */
	size_t n;
	bool gpus_shared;  /* more ranks than GPUs */
	char *idle;        /* PUs that no rank got, list string; "" for none */
	char *certificate; /* "0 cores outside their GPU's socket, ..." */
};

#endif
