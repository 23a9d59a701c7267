#include "lib/core/world.h"

#include "lib/base/wait.h"
#include "lib/boot/alive.h"

bool world_is_lost(const struct world *w, unsigned rank)
{
	const unsigned local = w->local[rank];

	return memory_is_lost(&w->memory, rank,
			      local == WORLD_NOT_HERE ? -1 : (int)local);
}

int world_changed(const struct world *w)
{
	const struct boot_memory *m = w->memory.head;

	if (atomic_load_explicit(&m->nlost, memory_order_relaxed))
		return BERTH_RANKS_LOST;
	return atomic_load_explicit(&m->wanted, memory_order_relaxed) ? BERTH_RANKS_WAIT
								      : 0;
}

void world_say_elastic(const struct world *w, bool can)
{
	if (w->boot->elastic)
		w->boot->elastic(w->boot_state, can);
	if (can && w->boot->alive && !alive_is_held())
		alive_hold(w->boot->alive(w->boot_state));
	wait_look_often(can);
}
