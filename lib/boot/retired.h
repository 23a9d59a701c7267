/* retired.h - what callers still hold of the heaps of worlds that this process has
 * left: berth_alloc()'s memory, and what operations made for it.
 *
 * Of such a heap only the pages from the first such block to the last stay mapped, and
 * only until the last is freed.  Thread-safe. */
#ifndef BERTH_LIB_RETIRED_H
#define BERTH_LIB_RETIRED_H

#include "lib/boot/memory.h"

/* As memory_unmap(), but what callers hold of M stays. */
void retired_keep(struct memory *m);
/* The block P is freed, if it is one of these; else, if it is of a world that is just
 * being left, retired_keep() will not keep it. */
void retired_free(void *p);
/* The same, but false where P is none of these, and then nothing is done. */
bool retired_try(void *p);
/* Whatever callers hold is unmapped. */
void retired_forget(void);
/* After fork(2) in the child: it holds nothing of what its parent does. */
void retired_in_child(void);

#endif
