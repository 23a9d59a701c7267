/* retired.h - the blocks that callers still hold in the heaps of worlds that this
 * process has left.  These are berth_alloc()'s memory, and memory that operations made
 * for the caller.
 *
 * In such a heap, only the pages from the first such block to the last stay mapped.
 * They stay until the last block is freed.  Thread-safe. */
#ifndef BERTH_LIB_RETIRED_H
#define BERTH_LIB_RETIRED_H

#include "lib/boot/memory.h"

/* memory_unmap(), but the blocks of M that callers hold stay. */
void retired_keep(struct memory *m);
/* Frees the block P if it is one of these.  If it is of a world that is just being
 * left, retired_keep() will not keep it. */
void retired_free(void *p);
/* Frees the block P if it is one of these.  If it is not, it does nothing and returns
 * false. */
bool retired_try(void *p);
/* Unmaps all blocks that callers hold. */
void retired_forget(void);
/* After fork(2) in the child, which holds nothing that its parent holds. */
void retired_in_child(void);

#endif
