/* adasum.h - sums that do not overshoot: two gradients a, b become
 *     (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
 * pair by pair, in log2 p exchanges of whole arrays ("Scaling Distributed Training with
 * Adaptive Summation", Maleki et al., 2020).  Dot products are made in double. */
#ifndef BERTH_LIB_ADASUM_H
#define BERTH_LIB_ADASUM_H

#include "lib/core/comm.h"

/* An allreduce of floats; every rank gets the same bits. */
berth_result adasum_run(struct comm *c, const struct coll *whole, uint64_t deadline_ns);

#endif
