#include "lib/core/world.h"

bool world_is_lost(const struct world *w, unsigned rank)
{
	const unsigned local = w->local[rank];

	return memory_is_lost(&w->memory, rank,
			      local == WORLD_NOT_HERE ? -1 : (int)local);
}

bool world_has_lost(const struct world *w)
{
	return atomic_load_explicit(&w->memory.head->nlost, memory_order_relaxed);
}
