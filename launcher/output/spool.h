/* spool.h - what ranks wrote, kept in a file until the job ends, and read back in the
 * order of the ranks (--sort-output).
 *
 * The file is in TMPDIR, else in /tmp, and has no name, so that nothing is left of it.
 * In memory are 16 bytes for each rank.  Each piece of output has a head with the place
 * of its rank's next piece. */
#ifndef BERTH_LAUNCHER_OUTPUT_SPOOL_H
#define BERTH_LAUNCHER_OUTPUT_SPOOL_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct spool;

/* Some of what a rank wrote to stream 1 or 2. */
struct spool_piece {
	uint64_t time_ns; /* CLOCK_REALTIME, as it came */
	uint32_t rank, stream, n;
};

/* For NP ranks: 0, or -1 with E_SORT_FILE. */
int spool_open(struct spool **s, uint32_t np, struct err *e);
void spool_free(struct spool *s); /* takes NULL */

/* The bytes of P behind those before.  0, or an errno: P is not in the file. */
int spool_add(struct spool *s, const struct spool_piece *p, const void *bytes);

/* The next piece, of the first rank that has one left, or NULL at the end.
 * spool_read() reads up to MOST bytes of it: 0, or an errno. */
const struct spool_piece *spool_next(struct spool *s);
int spool_read(struct spool *s, void *bytes, size_t most, size_t *n);
/* Bytes that have not been read yet. */
size_t spool_left(const struct spool *s);
/* The file is empty again. */
void spool_empty(struct spool *s);

#endif
