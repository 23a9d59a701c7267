/* world.h - this process as a rank of the job, from berth_init() to
 * berth_shutdown(). */
#ifndef BERTH_LIB_WORLD_H
#define BERTH_LIB_WORLD_H

#include <pthread.h>

#include "lib/base/members.h"
#include "lib/boot/boot.h"
#include "lib/boot/memory.h"
#include "lib/core/params.h"
#include "lib/net/net.h"

/* A process takes this from one world to the next. */
struct world_kept {
	uint64_t epoch;     /* of the last one; 0: there was none */
	int64_t timeout_ms; /* as the caller gave it; 0: not */
	bool is_elastic;    /* berth_elastic() */
	struct berth_metrics past;
};

#define WORLD_NOT_HERE (~0u)

struct messages;

struct world {
	struct params params;
	int64_t timeout_ms; /* of an operation that gives none; 0: none */
	const struct boot *boot;
	void *boot_state;
	struct boot_world who;
	struct memory memory;
	unsigned cores;         /* that the ranks of this host may use together */
	bool has_quota;         /* which bounds them */
	unsigned *local;        /* of each rank of the job, its number on this host; or
			       WORLD_NOT_HERE */
	struct berth_set *sets; /* all that are complete (set.c) */
	struct region *regions; /* of sets that this rank has left */
	struct berth_metrics past; /* of those that are gone */
	_Atomic uint32_t next_set; /* of those that this rank makes; from 1 */
	struct net_door *door;     /* NULL: all ranks are on this host */
	struct members members;    /* all ranks */
	struct messages *messages; /* of all sets */
	int bell_fd; /* the socket of this rank's bell; -1: all are on this host */
};

/* Has RANK ended without having left the job? */
bool world_is_lost(const struct world *w, unsigned rank);
/* 0, or enum berth_changed: what the next world waits for. */
int world_changed(const struct world *w);
/* The launcher hears whether this rank calls berth_change() when that is due. */
void world_say_elastic(const struct world *w, bool can);

#endif
