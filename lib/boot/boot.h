/* boot.h - how a rank finds the others: their numbers and hosts, the memory that the
 * ranks of its host share, the job's key, and one exchange of texts.
 *
 * boot_choose() has a table of bootstraps: the agent's socket (boot_agent.c) and a PMIx
 * server (boot_pmix.c).  It takes the first that is there.  If nothing in the
 * environment says that there are more ranks, the rank is alone.  A bootstrap that the
 * caller gives comes before all of them (boot_caller.c). */
#ifndef BERTH_LIB_BOOT_H
#define BERTH_LIB_BOOT_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/berth.h"
#include "lib/boot/boot.def"

enum { BOOT_WHY_BYTES = 512 };

struct boot_world {
	unsigned rank, size;
	unsigned local_rank, local_size, cross_rank, cross_size;
	unsigned hosts;
	unsigned *host;   /* of each rank, 0 .. hosts-1 */
	char **host_name; /* of each host */
	unsigned char key[BOOT_KEY_BYTES];
	bool key_in_clear; /* KEY went over a network where an observer may read it */
	uint64_t epoch;    /* the same on all ranks */
	int memory;        /* sealed memfd, zero when made, the same on all ranks of the
			      host */
	size_t memory_bytes;
	int64_t clock_offset_ns; /* CLOCK_MONOTONIC here + this = the job's one clock */
};

/* How a rank waits for all others to come. */
struct boot_patience {
	/* Called ten times a second.  BERTH_OK: wait on.  BERTH_BUSY: wait on, and ask
	 * which ranks are missing.  Any error: give up. */
	berth_result (*tick)(void *ctx);
	/* Called with the N ranks of the job that are missing. */
	void (*missing)(void *ctx, const unsigned *rank, size_t n);
	void *ctx;
};

struct boot {
	const char *name;
	/* Does the environment say that this is the bootstrap to take?  NULL: it never
	 * says so. */
	bool (*seen)(void);
	/* Sets all of W but memory (-1) and clock.  *STATE is for the calls that
	 * follow.  W's epoch comes as that of the last world of this process, or 0.
	 * The next world's epoch is the largest of those of its ranks, plus 1, or the
	 * number of the init round.  GIVEN: the caller's bootstrap, for boot_caller
	 * alone.  After an error, WHY, of BOOT_WHY_BYTES, says what went wrong, and
	 * nothing is held. */
	berth_result (*join)(void **state, struct boot_world *w,
			     const struct berth_bootstrap *given, char *why);
	/* join() for a rank that comes from another world.  It waits for all ranks that
	 * are left.  BERTH_PEER_LOST, from this, memory() or fence(): one of them was
	 * lost, and the others have to join anew.  NULL: join() does it. */
	berth_result (*follow)(void **state, struct boot_world *w,
			       const struct boot_patience *patience, char *why);
	/* Sets W's memory, of BYTES, the same on all ranks of the host. */
	berth_result (*memory)(void *state, struct boot_world *w, size_t bytes,
			       char *why);
	/* All ranks call this after memory().  Each gives MINE, of less than
	 * BOOT_TEXT_BYTES, and gets the texts of all.  *ALL: one for each rank, in one
	 * block that the caller frees.  A bootstrap with limits of its own does not ask
	 * PATIENCE. */
	berth_result (*fence)(void *state, struct boot_world *w, const char *mine,
			      const struct boot_patience *patience, char ***all,
			      char *why);
	/* Tells the user that this rank waits for the ranks MISSING, if that is
	 * possible.  TEXT is `60 s in allreduce "grad" of 1024 f32`.  Any thread may
	 * call it.  It does not wait.  NULL: it is not possible. */
	void (*stall)(void *state, const unsigned *missing, size_t n, const char *text);
	/* Finds the ranks of the job, at most MOST, that have not come to this rank's
	 * operation.  The op record of this rank says which operation that is.  Returns
	 * how many; 0: not known.  Any thread may call it.  It waits 1.5 s at most.
	 * NULL: it is not possible. */
	size_t (*missing_ranks)(void *state, unsigned *rank, size_t most);
	/* Tells the launcher whether this rank calls berth_change() when that is due.
	 * It does not wait.  NULL: that changes nothing. */
	void (*elastic)(void *state, bool can);
	/* A descriptor of the memory for alive.h, or -1.  NULL: nobody looks at one. */
	int (*alive)(void *state);
	void (*leave)(void *state);
	/* NULL, or why only the first world can be joined in place: for
	 * berth_change(). */
	const char *fixed;
};

extern const struct boot boot_agent, boot_pmix, boot_caller, boot_alone;

/* The bootstrap to take.  NULL: there are more ranks, but no way to them.  WHY names
 * the launcher that was seen, and what to add. */
const struct boot *boot_choose(char *why);

/* The needs of a rank of runner, for the texts that say that they are missing. */
#define BOOT_AGENT_NEEDS                                                               \
	"keep BERTH_AGENT and BERTH_RANK in its environment, and the network "         \
	"namespace"

/* Frees the memory that join() allocated in W.  Closes W's memory, which becomes -1.
 * All else becomes zero. */
void boot_world_free(struct boot_world *w);

/* The name of RANK's host, as "n1". */
const char *boot_host_name(const struct boot_world *w, unsigned rank);

/* ---- for boot_agent.c, boot_pmix.c, boot_caller.c and boot.c ---- */

/* A sealed memfd of BYTES, all zero, or -1 with WHY. */
int boot_memfd(size_t bytes, char *why);
/* Returns BERTH_MEMORY, and WHY says so. */
berth_result boot_out_of_memory(char *why);

#endif
