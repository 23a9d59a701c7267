/* place_internal.h - between the parts of place: place.c decides which GPU and how many
 * cores each rank gets, place_fill.c which CPUs.  place_check.c certifies, place_why.c
 * says why. */
#ifndef BERTH_AGENT_PLACEMENT_PLACE_INTERNAL_H
#define BERTH_AGENT_PLACEMENT_PLACE_INTERNAL_H

#include "agent/placement/berth.h"
#include "agent/placement/gpu_list.h"

/* How the CPUs of a placement were found. */
enum place_mode {
	PLACE_UNBOUND,
	PLACE_FILL,   /* units of its own for every rank, bottom-up: certified */
	PLACE_WALK,   /* units shared, each rank outward from its home */
	PLACE_DIVIDE, /* no GPU: all units in order, evenly */
};

/* A thing of which a rank gets a number: a core, a PU, a socket. */
struct unit {
	int node;     /* its topo_node; for a NUMA node the object it belongs to */
	int core, pu; /* index of the core; of the PU in the core, -1: all of them */
	struct cpuset cpus; /* sockets, NUMA nodes, L3 caches: their PUs; else {0} */
};

struct seat {
	int gpu;       /* index into gpus.v, -1: none */
	int home;      /* topo_node */
	uint32_t want; /* units */
};

struct place_work {
	const struct topo *t;
	const struct gpus *g;
	const struct place_options *o;
	struct placement *p;
	struct seat *seat; /* p->n of them */
	enum place_mode mode;
	struct unit *unit; /* logical order */
	size_t nunit;
	uint32_t *first; /* units of cores and PUs: first[c] is the first of core c,
			  * first[ncore] their number; else NULL */
};

/* Make the units of kind BIND (BIND_AUTO: cores). */
void place_units(struct place_work *w, enum bind_to bind);
void place_units_free(struct place_work *w);

/* Fill the berths' cpus.  A unit goes to one rank: the sum of want is <= nunit. */
void place_fill(struct place_work *w);
/* As place_fill(), if ranks have to share units: at most CAP ranks on each, if
 * possible. */
void place_walk(struct place_work *w, size_t cap);
void place_divide(struct place_work *w);

/* Check the properties that each placement must have, recomputed from its masks. */
int place_check(const struct place_work *w, struct err *e);

/* why, numa, ncores, idle, certificate. */
void place_tell(struct place_work *w);

#endif
