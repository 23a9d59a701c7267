/* world_make.h - how a world begins, and how it ends. */
#ifndef BERTH_LIB_WORLD_MAKE_H
#define BERTH_LIB_WORLD_MAKE_H

#include "lib/core/world.h"

/* 0 .. BERTH_SYSTEM, with the thread's last error.  Not thread-safe.  CHANGES: it
 * follows another one: what CONFIG does not give is as it was. */
berth_result world_begin(struct world *w, const struct berth_config *config,
			 struct world_kept *kept, bool changes);
/* BERTH_UNSUPPORTED or BERTH_NO_PEERS, with the thread's last error: there is no way to
 * another world by CONFIG. */
berth_result world_can_follow(const struct berth_config *config);
/* NULL, also in CONFIG of a version that did not have it. */
const struct berth_bootstrap *world_bootstrap(const struct berth_config *config);
/* Counts W's cores anew, when all ranks have come: cores.h looks at their cgroups. */
void world_count_cores(struct world *w);
/* When all its sets are freed, and no other thread looks at W any more.  CHANGES:
 * another one follows. */
void world_end(struct world *w, struct world_kept *kept, bool changes);

#endif
