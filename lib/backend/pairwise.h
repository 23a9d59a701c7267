/* pairwise.h - the order in which the arrays of N hosts are combined, the same for
 * every algorithm.  S(i, m) stands for the hosts i, i + m, i + 2m, ...
 *     S(i, m) = S(i, 2m) op S(i + m, 2m)
 * S(0, 1) is all hosts.  For four hosts it is (0 + 2) + (1 + 3).  This is the order of
 * recursive doubling and halving, whose steps combine hosts that are a power of two
 * apart. */
#ifndef BERTH_LIB_PAIRWISE_H
#define BERTH_LIB_PAIRWISE_H

#include "lib/backend/coll.h"

/* DST becomes the result of C's type, op and scales, from N >= 2 arrays SRC of COUNT
 * elements each.  All SRC have the form IN.  DST may be one of SRC if C's type has no
 * other accumulator. */
void pairwise_reduce(const struct coll *c, void *dst, const void *const *src,
		     unsigned n, uint64_t count, enum kern_form in);

#endif
