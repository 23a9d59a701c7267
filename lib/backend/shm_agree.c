#include "lib/backend/shm_internal.h"

#include "lib/base/done.h"

void shm_break(struct shm *s, berth_result result)
{
	const uint32_t done = done_count(s->wait.done);
	uint64_t was = atomic_load(&s->region->broken);

	/* If several ranks break the group, the one that is done with fewer operations
	 * counts.  Others may wait for it in an earlier operation. */
	while (!was || done_is_more((uint32_t)(was >> 32), done))
		if (atomic_compare_exchange_strong(&s->region->broken, &was,
						   (uint64_t)done << 32 |
							   (uint32_t)result))
			break;
	for (unsigned r = 0; r < s->n; r++) {
		for (int i = 0; i < 2; i++)
			post_wake(&s->line[i][r].post, s->wait.bells);
		post_wake(&s->staged[r].post, s->wait.bells);
		post_wake(&s->reduced[r].post, s->wait.bells);
		post_wake(&s->done[r].post, s->wait.bells);
	}
	post_wake(&s->region->there.post, s->wait.bells);
	post_wake(&s->region->back.post, s->wait.bells);
}

void shm_say(struct shm *s, uint32_t signature)
{
	post_from(&s->wait, &shm_own_line(s)->post, (uint64_t)signature << 32 | s->seq);
}

static void note_different(struct shm *s, unsigned r)
{
	if (s->ndifferent < DIFFERENT_MOST)
		s->different[s->ndifferent++] = r;
}

berth_result shm_late(struct shm *s, berth_result why)
{
	if (why != BERTH_TIMEOUT)
		return why;
	s->ndifferent = 0;
	for (unsigned r = 0; r < s->n; r++)
		if (!wait_reached(atomic_load(&s->line[s->seq & 1][r].post.value),
				  s->seq))
			note_different(s, r);
	shm_break(s, BERTH_TIMEOUT);
	return why;
}

berth_result shm_read_signatures(struct shm *s, uint32_t signature)
{
	struct line *line = s->line[s->seq & 1];
	berth_result rc;

	for (unsigned r = 0; r < s->n; r++) {
		if (r == s->me)
			continue;
		rc = wait_for(&s->wait, &line[r].post, s->seq);
		if (rc)
			return shm_late(s, rc);
		if (atomic_load_explicit(&line[r].post.value, memory_order_relaxed) >>
			    32 !=
		    signature)
			note_different(s, r);
	}
	/* the line of the next operation (8 bytes between two ranks: 0.16 us, not
	 * 0.22) */
	cache_own(&s->line[~s->seq & 1][s->me], 64);
	return s->ndifferent ? BERTH_MISMATCH : BERTH_OK;
}

berth_result shm_agree(struct shm *s, uint32_t signature)
{
	shm_say(s, signature);
	return shm_read_signatures(s, signature);
}
