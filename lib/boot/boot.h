/* boot.h - how a rank finds the others: who they are, memory that those of its host
 * share, the job's key, and one exchange of texts.
 *
 * A table in boot_choose(): the agent's socket (boot_agent.c), a PMIx server
 * (boot_pmix.c); alone, if nothing in the environment says that there are more ranks.
 * It takes the first that is there.  A bootstrap that the caller gives comes before all
 * of them (boot_caller.c). */
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

/* Of a rank that waits for all others to come. */
struct boot_patience {
	/* Ten times a second: BERTH_OK, to wait on; BERTH_BUSY, and to ask who is
	 * missing; or an error, to give up. */
	berth_result (*tick)(void *ctx);
	/* These N ranks of the job are. */
	void (*missing)(void *ctx, const unsigned *rank, size_t n);
	void *ctx;
};

struct boot {
	const char *name;
	/* The environment says that this is the way.  NULL: it says nothing of it. */
	bool (*seen)(void);
	/* All of W but memory (-1) and clock.  *STATE: for the calls that follow.
	 * W's epoch is that of the last world of this process, or 0; the next world's
	 * is the largest of those of its ranks, plus 1, or the number of the init
	 * round.
	 * GIVEN: the caller's bootstrap, for boot_caller alone.  WHY, of
	 * BOOT_WHY_BYTES, says what went wrong; nothing is held then. */
	berth_result (*join)(void **state, struct boot_world *w,
			     const struct berth_bootstrap *given, char *why);
	/* As join(), for a rank that comes from another world: it waits for all that
	 * are left.  BERTH_PEER_LOST, of this, memory() and fence(): one of them was
	 * lost, and the others are to join anew.  NULL: join() is the same. */
	berth_result (*follow)(void **state, struct boot_world *w,
			       const struct boot_patience *patience, char *why);
	/* W's memory, of BYTES, the same on all ranks of the host. */
	berth_result (*memory)(void *state, struct boot_world *w, size_t bytes,
			       char *why);
	/* All ranks, after memory(): MINE, of less than BOOT_TEXT_BYTES, for those of
	 * all.  *ALL: one for each rank, in one block that the caller frees.  PATIENCE
	 * is not asked by a way that has limits of its own. */
	berth_result (*fence)(void *state, struct boot_world *w, const char *mine,
			      const struct boot_patience *patience, char ***all,
			      char *why);
	/* Tell the user that this rank waits for those, where that is possible: TEXT
	 * is `60 s in allreduce "grad" of 1024 f32`.  Any thread; does not wait.  NULL:
	 * it isn't possible. */
	void (*stall)(void *state, const unsigned *missing, size_t n, const char *text);
	/* Ranks of the job, MOST at most, that have not come to what this rank is in,
	 * which its op record says; how many, 0: not known.  Any thread; waits, 1.5 s
	 * at most.  NULL: nobody can tell. */
	size_t (*missing_ranks)(void *state, unsigned *rank, size_t most);
	void (*leave)(void *state);
	/* NULL, or why no world but the first can be joined in place: for
	 * berth_change(). */
	const char *fixed;
};

extern const struct boot boot_agent, boot_pmix, boot_caller, boot_alone;

/* The way to take.  NULL, with WHY: there are more ranks, and no way to them; names the
 * launcher that was seen, and what to add. */
const struct boot *boot_choose(char *why);

/* What a rank of runner has to have, for the texts that miss it. */
#define BOOT_AGENT_NEEDS                                                               \
	"keep BERTH_AGENT and BERTH_RANK in its environment, and the network "         \
	"namespace"

/* Frees what join() allocated in W and closes its memory, which is -1 then; all else is
 * zero. */
void boot_world_free(struct boot_world *w);

/* "n1", of RANK's host. */
const char *boot_host_name(const struct boot_world *w, unsigned rank);

/* ---- for boot_agent.c, boot_pmix.c, boot_caller.c and boot.c ---- */

/* A sealed memfd of BYTES, all zero, or -1 with WHY. */
int boot_memfd(size_t bytes, char *why);
/* BERTH_MEMORY, and WHY says so. */
berth_result boot_out_of_memory(char *why);

#endif
