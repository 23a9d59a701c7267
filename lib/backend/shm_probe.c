#include "lib/backend/shm_internal.h"
#include "lib/base/clock.h"

#include <string.h>

/* How to store data that other ranks read.  After ordinary stores they fetch the data
 * from this rank's cache.  After stores past the caches they fetch them from memory.
 *
 * The faster way depends on the cores.  On Zen 5, ordinary stores are faster within one
 * L3 (1.5 to 1.7 times).  Stores past the caches are faster from one CCD to another
 * (2.1 to 2.5 times; 16 MiB between two ranks: 2.6 and 1.0 ms).  On Sapphire Rapids and
 * later, ordinary stores are faster everywhere on the mesh (1.3 to 1.8 times).  No
 * table says on which cores a rank runs, or that a virtual machine's cores have moved.
 * So it is tried: rank 0 stores and the last rank reads, each way. */

enum {
	PERIOD_MS = 100,
	TURNS = 4, /* each way; the first finds the lines as the other way left them */
	WORTH_PERCENT = 115
};

void shm_probe_say(struct shm *s, struct line *mine)
{
	const bool finds = s->config.staging == SHM_STAGING_FOUND && s->n > 1 &&
			   !s->oversubscribed;
	const uint64_t now = finds ? clock_ns() : 0;

	mine->u.far.past = s->found_past;
	mine->u.far.probe =
		now && (!s->probed_ns || now - s->probed_ns >= PERIOD_MS * 1000000u);
	if (mine->u.far.probe)
		s->probed_ns = now;
}

/* Rank 0's side.  NS becomes the time of the fastest turn: its stores and the other's
 * loads. */
static berth_result probe_store(struct shm *s, bool past, uint32_t *turn, uint64_t *ns)
{
	unsigned char *at = s->region->probe;
	uint64_t begin, took;
	berth_result rc;

	*ns = UINT64_MAX;
	for (unsigned i = 0; i < TURNS; i++) {
		begin = clock_ns();
		kern_copy(at, s->window, PROBE_BYTES, past);
		kern_fence();
		took = clock_ns() - begin;
		post_from(&s->wait, &s->region->there.post, ++*turn);
		rc = wait_for(&s->wait, &s->region->back.post, *turn);
		if (rc)
			return rc;
		took += atomic_load(&s->region->back.post.value) >> 32;
		if (i && took < *ns)
			*ns = took;
	}
	return BERTH_OK;
}

static berth_result probe_load(struct shm *s, uint32_t turn)
{
	_Alignas(64) unsigned char piece[4096];
	berth_result rc = wait_for(&s->wait, &s->region->there.post, turn);
	uint64_t begin = clock_ns();

	for (size_t i = 0; !rc && i < PROBE_BYTES; i += sizeof piece)
		kern_copy(piece, s->region->probe + i, sizeof piece, false);
	__asm__ volatile("" : : "r"(piece) : "memory");
	post_from(&s->wait, &s->region->back.post, (clock_ns() - begin) << 32 | turn);
	return rc;
}

berth_result shm_probe_hear(struct shm *s)
{
	const struct line *first = s->line[s->seq & 1];
	uint32_t turn = (uint32_t)atomic_load(&s->region->back.post.value);
	uint64_t near_ns, past_ns;
	berth_result rc = BERTH_OK;

	s->past = first->u.far.past;
	if (!first->u.far.probe)
		return BERTH_OK;
	if (s->me == 0) {
		rc = probe_store(s, false, &turn, &near_ns);
		if (!rc)
			rc = probe_store(s, true, &turn, &past_ns);
		if (!rc)
			s->found_past = past_ns * WORTH_PERCENT < near_ns * 100;
	} else if (s->me == s->n - 1) {
		for (unsigned i = 0; !rc && i < 2 * TURNS; i++)
			rc = probe_load(s, ++turn);
	}
	return rc;
}
