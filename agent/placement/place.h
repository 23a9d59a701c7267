/* place.h - pure: topology, GPUs, local ranks and options to one berth per rank.
 *
 * First the GPUs are shared evenly, in PCI order.  Then the tree is filled bottom-up,
 * from each GPU outward.  From outside a subtree the fill takes exactly as many cores
 * as it must (demand minus supply), for all subtrees at once.  So the placement is
 * optimal for each monotone distance.  It is certified by recomputation.  All orders
 * are total: the result is a function of the arguments.
 *
 * By default each rank gets an equal share of its GPU's socket, the nearest cores
 * first.  With --bind-to OBJECT:N it gets the N nearest such objects.  Cores and
 * hardware threads are its own while there are enough of them; ranks that are
 * equally near share sockets, NUMA nodes and L3 caches.  Without GPUs the ranks
 * divide all allowed cores evenly, in hwloc's order. */
#ifndef BERTH_AGENT_PLACEMENT_PLACE_H
#define BERTH_AGENT_PLACEMENT_PLACE_H

#include "agent/placement/berth.h"
#include "agent/placement/gpu.h"

/* Place N ranks.  GPUs are given out in the order of G, those with a holder last.
 * 0, or -1 with E: E_GPU_SHARING with no_gpu_sharing; E_BIND_OBJECTS if the host
 * lacks what bind_to asks for; E_PLACE if the certificate does not hold, which is a
 * bug of Berth. */
int place_ranks(struct placement *p, const struct topo *t, const struct gpus *g,
		size_t n, const struct place_options *o, struct err *e);
/* A GPU for each of N ranks into GPU[0..n), an index into G or -1.  Ranks share GPUs
 * evenly; of all such assignments this one has the fewest steps upwards from the homes
 * of GPUs to objects that cover their ranks' MASKS.  Without masks, the first GPUs are
 * taken.  Unless MAY is NULL, rank R uses a GPU I with MAY[R * g->n + I] or none. */
void place_fit(int *gpu, const struct topo *t, const struct gpus *g, size_t n,
	       const struct cpuset *masks, const bool *may);
/* As place_ranks(), for N ranks that another launcher has bound to MASKS: these stay,
 * and the GPUs fit them.  No berth is bound. */
void place_fixed(struct placement *p, const struct topo *t, const struct gpus *g,
		 size_t n, const struct cpuset *masks, const bool *may);
void placement_free(struct placement *p);

#endif
