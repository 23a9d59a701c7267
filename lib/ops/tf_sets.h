/* tf_sets.h - process sets by Horovod's numbers, which ops have as an attribute. */
#ifndef BERTH_OPS_TF_SETS_H
#define BERTH_OPS_TF_SETS_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/berth.h"

/* Python says: the set ID is SET from now on, or, if IS_KNOWN is 0, there is none.  0:
 * it is noted; anything else: out of memory, or no such ID. */
int berth_tf_set(int id, berth_set *set, int is_known)
	__attribute__((visibility("default")));

/* The ranks that do an operation. */
struct tf_group {
	berth_set *set; /* NULL: all ranks */
	int rank, ranks;
};

/* GROUP gets the ranks of the set ID; of 0 it is all.  RANK is -1 if this rank is not
 * among them.  False: there are none, and WHY says why. */
bool tf_sets_group(int64_t id, struct tf_group *group, char *why, size_t bytes);

#endif
