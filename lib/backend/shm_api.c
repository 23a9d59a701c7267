#include "lib/backend/shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/backend/coll_rows.h"
#include "lib/backend/shm_internal.h"

/* ---- the region ---- */

struct layout {
	size_t line[2], staged, reduced, done, flat, window, bytes;
};

static size_t shm_take(size_t *at, size_t bytes, size_t align)
{
	size_t here = (*at + align - 1) / align * align;

	*at = here + bytes;
	return here;
}

/* If it is summed flat, every rank reads all data of all others.  In two shots it reads
 * about two parts.  The more ranks there are, the sooner that is less. */
static size_t flat_bytes(unsigned n)
{
	size_t bytes = 2 * FLAT_BYTES / n / 64 * 64;

	return bytes > FLAT_BYTES        ? FLAT_BYTES
	       : bytes < FLAT_NEAR_BYTES ? FLAT_NEAR_BYTES
					 : bytes;
}

static struct layout shm_lay_out(unsigned n)
{
	struct layout l;
	size_t at = sizeof(struct region);

	for (int i = 0; i < 2; i++)
		l.line[i] = shm_take(&at, n * sizeof(struct line), LINE_BYTES);
	l.staged = shm_take(&at, n * sizeof(struct flag), LINE_BYTES);
	l.reduced = shm_take(&at, n * sizeof(struct flag), LINE_BYTES);
	l.done = shm_take(&at, n * sizeof(struct flag), LINE_BYTES);
	l.flat = shm_take(&at, (size_t)n * FLAT_SLOTS * flat_bytes(n), 4096);
	l.window = shm_take(&at, (size_t)n * SLOTS * CHUNK_BYTES, 4096);
	l.bytes = (at + 4095) / 4096 * 4096;
	return l;
}

size_t shm_bytes(unsigned n)
{
	return shm_lay_out(n).bytes;
}

static void shm_point(struct shm *s, unsigned char *region)
{
	struct layout l = shm_lay_out(s->n);

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

static void shm_leave(void *group)
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
		shm_leave(s);
		return NULL;
	}
	shm_point(s, config->region);
	s->past = s->found_past = config->staging == SHM_STAGING_PAST;
	s->oversubscribed = s->n > config->cores;
	wait_tune(&s->wait, s->n, config->cores);
	s->wait.broken = &s->region->broken;
	s->wait.done = config->done;
	s->wait.bells = config->bells;
	s->wait.idle = config->idle;
	s->wait.ctx = config->ctx;
	return s;
}

static size_t shm_others(const void *group, unsigned *which, size_t most)
{
	const struct shm *s = group;
	size_t n = s->ndifferent < most ? s->ndifferent : most;

	memcpy(which, s->different, n * sizeof *which);
	return s->ndifferent;
}

/* Rank R's text of this operation.  It stays until the next operation but one.  Only R
 * puts a NUL behind it. */
static unsigned char *text_of(const struct shm *s, unsigned r)
{
	return s->flat +
	       (r * FLAT_SLOTS + FLAT_SLOTS - 2 + (s->seq & 1)) * s->flat_bytes;
}

static berth_result shm_explain(void *group, const char *text, const char **said)
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

/* ---- the back end ---- */

/* Not every operation counts by all flags.  A flag that fell 2^31 behind would seem to
 * be ahead.  Data that are staged next would be read before they are there.  (This
 * would take 6 hours of allreduces in the heap, which never say "staged".) */
static void keep_up(struct shm *s)
{
	if (s->base - s->told < 1u << 30)
		return;
	s->told = s->base;
	post_to(&s->staged[s->me].post, s->base, s->wait.bells);
	post_to(&s->reduced[s->me].post, s->base, s->wait.bells);
}

/* Begins the next operation. */
static berth_result shm_begin(struct shm *s, uint64_t deadline_ns)
{
	const bool broken =
		atomic_load_explicit(&s->region->broken, memory_order_relaxed);
	const berth_result why = broken ? wait_ends(&s->wait) : BERTH_OK;

	if (why)
		return why;
	s->seq++;
	s->ndifferent = 0;
	s->wait.deadline_ns = deadline_ns;
	return BERTH_OK;
}

static berth_result shm_run(void *group, const struct coll *c, uint64_t deadline_ns)
{
	struct shm *s = group;
	berth_result rc = shm_begin(s, deadline_ns);
	size_t bytes;

	if (rc)
		return rc;
	if (c->kind == BERTH_BARRIER)
		return shm_agree(s, c->signature);
	bytes = shm_small_bytes(s, c);
	if (bytes <= INLINE_BYTES || bytes <= shm_small_most(s, c))
		return shm_run_small(s, c, bytes);
	keep_up(s);
	return shm_late(s, shm_run_large(s, c));
}

static berth_result run_rows(void *group, const struct coll *c, uint64_t deadline_ns)
{
	struct shm *s = group;
	struct coll settled;
	berth_result rc;
	bool moved = false;

	if (!shm_rows_fit(s, c->rows))
		return coll_rows_in_steps(&shm_backend, s, c, deadline_ns);
	rc = shm_begin(s, deadline_ns);
	if (rc)
		return rc;
	keep_up(s);
	rc = shm_run_rows(s, c, &settled, &moved);
	if (rc || moved)
		return rc;
	settled.signature++;
	return shm_run(s, &settled, deadline_ns);
}

static void shm_revoke(void *group, berth_result result, unsigned lost)
{
	struct shm *s = group;

	(void)lost; /* for ranks that hear it over a connection */
	shm_break(s, result);
}

static berth_result shm_ended(const void *group)
{
	const struct shm *s = group;

	return wait_ends(&s->wait);
}

static size_t shm_algorithms(const void *group, char *text, size_t bytes)
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

const struct backend shm_backend = { .name = "shm",
				     .begin = shm_run,
				     .begin_rows = run_rows,
				     .others = shm_others,
				     .explain = shm_explain,
				     .revoke = shm_revoke,
				     .ended = shm_ended,
				     .leave = shm_leave,
				     .algorithms = shm_algorithms,
				     .leaves_out = true,
				     .pieces_bytes = 2 * FLAT_BYTES };
