/* adasum.h - sums that do not overshoot: two gradients a, b become
 *     (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
 * pair by pair, of neighbours first ("Scaling Distributed Training with Adaptive
 * Summation", Maleki et al., 2020).  Each rank combines one part of all ranks' arrays:
 * only dot products, three a pair, are summed over the ranks at each of log2 p levels.
 * They are f64; arrays are in the type's accumulator from the first level on. */
#ifndef BERTH_LIB_ADASUM_H
#define BERTH_LIB_ADASUM_H

#include "lib/core/set.h"

/* An allreduce of floats; every rank gets the same bits. */
berth_result adasum_run(struct comm *c, const struct coll *whole, uint64_t deadline_ns);

#endif
