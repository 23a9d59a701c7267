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

/* SET gets that of ID; of 0 it is NULL, all ranks.  False: there is none. */
bool tf_sets_find(int64_t id, berth_set **set);

#endif
