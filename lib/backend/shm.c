#include "lib/backend/shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/backend/shm_internal.h"

/* ---- the region ---- */

struct layout {
	size_t line[2], staged, reduced, done, flat, window, bytes;
};

static size_t take(size_t *at, size_t bytes, size_t align)
{
	size_t here = (*at + align - 1) / align * align;

	*at = here + bytes;
	return here;
}

/* Every rank reads what all others give, where in two shots it reads about two parts:
 * the more ranks, the sooner that is less. */
static size_t flat_bytes(unsigned n)
{
	size_t bytes = 2 * FLAT_BYTES / n / 64 * 64;

	return bytes > FLAT_BYTES        ? FLAT_BYTES
	       : bytes < FLAT_NEAR_BYTES ? FLAT_NEAR_BYTES
					 : bytes;
}

static struct layout lay_out(unsigned n)
{
	struct layout l;
	size_t at = sizeof(struct region);

	for (int i = 0; i < 2; i++)
		l.line[i] = take(&at, n * sizeof(struct line), LINE_BYTES);
	l.staged = take(&at, n * sizeof(struct flag), LINE_BYTES);
	l.reduced = take(&at, n * sizeof(struct flag), LINE_BYTES);
	l.done = take(&at, n * sizeof(struct flag), LINE_BYTES);
	l.flat = take(&at, (size_t)n * FLAT_SLOTS * flat_bytes(n), 4096);
	l.window = take(&at, (size_t)n * SLOTS * CHUNK_BYTES, 4096);
	l.bytes = (at + 4095) / 4096 * 4096;
	return l;
}

size_t shm_bytes(unsigned n)
{
	return lay_out(n).bytes;
}

static void point(struct shm *s, unsigned char *region)
{
	struct layout l = lay_out(s->n);

	s->region = (struct region *)region;
	for (int i = 0; i < 2; i++)
		s->line[i] = (struct line *)(region + l.line[i]);
	s->flat = region + l.flat;
	s->flat_bytes = flat_bytes(s->n);
	s->staged = (struct flag *)(region + l.staged);
	s->reduced = (struct flag *)(region + l.reduced);
	s->done = (struct flag *)(region + l.done);
	s->window = region + l.window;
}

static void leave(void *group)
{
	struct shm *s = group;

	if (!s)
		return;
	free(s->src);
	free(s->dst);
	free(s->place);
	free(s->texts);
	free(s->different);
	free(s);
}

struct shm *shm_join(const struct shm_config *config)
{
	struct shm *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->config = *config;
	s->n = config->n;
	s->me = config->me;
	if (!s->config.cache_bytes)
		s->config.cache_bytes = 32 << 20;
	s->chunk_bytes = CHUNK_BYTES;
	if (config->chunk_bytes)
		s->chunk_bytes = least((config->chunk_bytes / (PART_BYTES * s->n) + 1) *
					       PART_BYTES * s->n,
				       CHUNK_BYTES);
	s->src = calloc(s->n, sizeof *s->src);
	s->dst = calloc(s->n + 1, sizeof *s->dst);
	s->place = calloc(s->n, sizeof *s->place);
	s->different = calloc(DIFFERENT_MOST, sizeof *s->different);
	if (!s->src || !s->dst || !s->place || !s->different) {
		leave(s);
		return NULL;
	}
	point(s, config->region);
	s->past = s->found_past = config->staging == SHM_STAGING_PAST;
	s->oversubscribed = s->n > config->cores;
	wait_tune(&s->wait, s->n, config->cores);
	s->wait.broken = &s->region->broken;
	s->wait.idle = config->idle;
	s->wait.ctx = config->ctx;
	return s;
}

/* Rank R's room for BYTES in operation SEQ.
 *
 * Two ranks swap theirs: what one has read it writes next, when its lines are with it
 * already, and each line changes sides once an operation instead of twice: 32 KiB 4.2
 * us, and 5.3 with rooms of their own.
 *
 * More ranks have two each, which are best for what comes from the nearest cache, or
 * more, so as to find one sooner whose lines the others have let go of: 16 KiB took 2.9
 * us with 2 slots, 2.2 with 16.  Odd operations have odd slots, however many there are:
 * never the slot that others may still read. */
static unsigned char *flat(const struct shm *s, unsigned r, uint32_t seq, size_t bytes)
{
	unsigned slots = bytes <= FLAT_NEAR_BYTES ? 2 : FLAT_SLOTS, slot = seq % slots;

	if (shm_is_pair(s)) {
		r ^= seq & 1;
		slot = 0;
	}
	return s->flat + ((size_t)r * FLAT_SLOTS + slot) * s->flat_bytes;
}

static size_t others(const void *group, unsigned *which, size_t most)
{
	const struct shm *s = group;
	size_t n = s->ndifferent < most ? s->ndifferent : most;

	memcpy(which, s->different, n * sizeof *which);
	return s->ndifferent;
}

/* What rank R says of this operation: it stays until the next but one, and no rank but
 * R says that it ends. */
static unsigned char *text_of(const struct shm *s, unsigned r)
{
	return s->flat +
	       (r * FLAT_SLOTS + FLAT_SLOTS - 2 + (s->seq & 1)) * s->flat_bytes;
}

static berth_result explain(void *group, const char *text, const char **said)
{
	enum { EXPLANATION = 0x45585031 };
	struct shm *s = group;
	size_t n = strnlen(text, BACKEND_TEXT_BYTES - 1);
	unsigned char *mine;
	berth_result rc;

	if (!s->texts)
		s->texts = malloc((size_t)s->n * BACKEND_TEXT_BYTES);
	if (!s->texts) {
		shm_break(s, BERTH_MEMORY);
		return BERTH_MEMORY;
	}
	s->seq++;
	s->ndifferent = 0;
	mine = text_of(s, s->me);
	memcpy(mine, text, n);
	mine[n] = '\0';
	rc = shm_agree(s, EXPLANATION);
	for (unsigned r = 0; r < s->n; r++) {
		char *copy = s->texts + (size_t)r * BACKEND_TEXT_BYTES;

		memcpy(copy, text_of(s, r), BACKEND_TEXT_BYTES - 1);
		copy[BACKEND_TEXT_BYTES - 1] = '\0';
		said[r] = copy;
	}
	return rc;
}

/* ---- what fits beside the line ---- */

/* N is at most INLINE_BYTES. */
static inline void copy_small(void *to, const void *from, size_t n)
{
	unsigned char *t = to;
	const unsigned char *f = from;

	if (n >= 16) {
		for (size_t i = 0; i + 16 < n; i += 16)
			memcpy(t + i, f + i, 16);
		memcpy(t + n - 16, f + n - 16, 16);
	} else if (n >= 8) {
		memcpy(t, f, 8);
		memcpy(t + n - 8, f + n - 8, 8);
	} else if (n >= 4) {
		memcpy(t, f, 4);
		memcpy(t + n - 4, f + n - 4, 4);
	} else {
		for (size_t i = 0; i < n; i++)
			t[i] = f[i];
	}
}

/* As many elements as there are vectors for are reduced, of which only the first bytes
 * mean something: the rest is zero, lest it be slow numbers. */
static berth_result run_inline(struct shm *s, const struct coll *c, size_t bytes)
{
	enum { WIDEST = 4 /* f32 of one byte */ };
	struct line *line = s->line[s->seq & 1];
	_Alignas(64) unsigned char mine[64] = { 0 }, out[64 * WIDEST];
	struct kern kern;
	berth_result rc;

	copy_small(mine, c->in, bytes);
	memset(shm_own_line(s)->u.data, 0, INLINE_BYTES);
	copy_small(shm_own_line(s)->u.data, c->in, bytes);
	shm_say(s, c->signature);
	coll_kern(&kern, c, c->in_form, c->out_form);
	rc = shm_read_signatures(s, c->signature);
	if (rc)
		return rc;
	for (unsigned r = 0; r < s->n; r++)
		s->src[r] = r == s->me ? mine : line[r].u.data;
	kern_reduce(&kern, &(void *){ out }, 1, s->src, s->n,
		    sizeof mine / kern.in_bytes, false);
	if (c->out_form == KERN_PARTIAL)
		memcpy(c->out, out, c->count * kern.out_bytes);
	else
		copy_small(c->out, out, bytes);
	return BERTH_OK;
}

static berth_result run_flat(struct shm *s, const struct coll *c, size_t bytes)
{
	unsigned char *mine = flat(s, s->me, s->seq, bytes);
	unsigned char *next = flat(s, s->me, s->seq + 1, bytes);
	struct kern kern;
	berth_result rc;

	if (s->past && bytes > FLAT_NEAR_BYTES) {
		kern_copy(mine, c->in, bytes, true);
		kern_fence();
	} else {
		memcpy(mine, c->in, bytes);
	}
	if (bytes <= GIVE_BYTES)
		cache_give(mine, bytes);
	shm_say(s, c->signature);
	if (bytes > FLAT_NEAR_BYTES && !shm_is_pair(s))
		cache_own(next, bytes);
	coll_kern(&kern, c, c->in_form, c->out_form);
	rc = shm_read_signatures(s, c->signature);
	if (rc)
		return rc;
	if (bytes <= FLAT_NEAR_BYTES && !shm_is_pair(s))
		cache_own(next, bytes);
	for (unsigned r = 0; r < s->n; r++)
		s->src[r] = r == s->me ? c->in : flat(s, r, s->seq, bytes);
	kern_reduce(&kern, &(void *){ c->out }, 1, s->src, s->n, c->count, false);
	return BERTH_OK;
}

/* Not every operation counts by all flags.  One that fell 2^31 behind would seem to be
 * ahead: 6 hours of allreduces in the heap, of which none says "staged", and what is
 * staged next would be read before it is there. */
static void keep_up(struct shm *s)
{
	if (s->base - s->told < 1u << 30)
		return;
	s->told = s->base;
	post(&s->staged[s->me].post, s->base);
	post(&s->reduced[s->me].post, s->base);
}

static berth_result run(void *group, const struct coll *c, uint64_t deadline_ns)
{
	struct shm *s = group;
	size_t bytes = c->count * kern_size(c->type);

	if (atomic_load_explicit(&s->region->broken, memory_order_relaxed))
		return wait_why(atomic_load(&s->region->broken));
	s->seq++;
	s->ndifferent = 0;
	s->wait.deadline_ns = deadline_ns;
	if (c->kind == BERTH_BARRIER)
		return shm_agree(s, c->signature);
	if (c->kind == BERTH_ALLREDUCE && bytes <= INLINE_BYTES)
		return run_inline(s, c, bytes);
	if (c->kind == BERTH_ALLREDUCE && bytes <= s->flat_bytes)
		return run_flat(s, c, bytes);
	keep_up(s);
	return shm_late(s, shm_run_large(s, c));
}

static void end(void *group, berth_result result, unsigned lost)
{
	struct shm *s = group;

	(void)lost; /* for who hears it over a connection */
	shm_break(s, result);
}

static size_t algorithms(const void *group, char *text, size_t bytes)
{
	const struct shm *s = group;
	bool pair = shm_is_pair(s);
	size_t most = pair ? least(PAIR_BYTES, s->chunk_bytes) : s->chunk_bytes;
	int n = snprintf(text, bytes,
			 "%u ranks of one host, through memory that all map\n"
			 "%12u bytes  beside the operation\n"
			 "%12zu        flat: each rank reads what all others give\n"
			 "%12s        %s, chunks of %zu KiB at most, staged %s,\n"
			 "%22sresults past the caches from %zu bytes on,\n"
			 "%22sarrays of berth_alloc() where they lie\n",
			 s->n, (unsigned)INLINE_BYTES, s->flat_bytes, "above",
			 pair ? "flat, written where it was read" : "two shots",
			 most >> 10, s->past ? "past the caches" : "in the caches", "",
			 shm_stream_bytes(s), "");

	return (size_t)n;
}

const struct backend shm_backend = { "shm", run,        others, explain,       end,
				     leave, algorithms, true,   2 * FLAT_BYTES };
