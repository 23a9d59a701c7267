/* place.h - pure: topology, GPUs, local ranks and options to one berth per rank.
 *
 * GPU first, then CPUs outward from it: even sharing of GPUs in PCI order, then a
 * bottom-up fill of the tree that takes from outside a subtree exactly as many cores as
 * must be taken (demand minus supply), at every subtree at once; so the placement is
 * optimal for every monotone distance and certified by recomputation.  Total orders
 * only: the result is a function of its arguments.
 *
 * By default every rank gets an equal share of its GPU's socket, the nearest cores
 * first.  With
 * --bind-to OBJECT:N it gets the N nearest such objects: cores and hardware threads of
 * its own while there are enough, sockets, NUMA nodes and L3 caches together with
 * whoever is as near. Without GPUs the ranks divide all allowed cores in hwloc's order,
 * evenly. */
#ifndef BERTH_AGENT_PLACEMENT_PLACE_H
#define BERTH_AGENT_PLACEMENT_PLACE_H

#include "agent/placement/gpu.h"
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

/* Place N ranks.  GPUs are handed out in the order of G, those with a holder last.  0,
 * or -1 with E: E_GPU_SHARING with no_gpu_sharing; E_BIND_OBJECTS where the host lacks
 * what bind_to asks for; E_PLACE should the certificate not hold, which is a bug and
 * never a result. */
int place_ranks(struct placement *p, const struct topo *t, const struct gpus *g,
		size_t n, const struct place_options *o, struct err *e);
void placement_free(struct placement *p);

#endif
