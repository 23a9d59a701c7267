/* coalesce.h - equal lines of several ranks, as one.
 *
 * Pure.  A line waits for COALESCE_MS at most for other ranks to write the same to the
 * same stream, and not at all once all ranks have.  The lines of each rank leave in
 * their order: before a line leaves for several ranks, those leave that stand before it
 * in one of them.
 *
 * COALESCE_LINES lines and COALESCE_BYTES bytes wait at most; then the oldest leaves
 * early.  The term is that of dshbak(1). */
#ifndef BERTH_LAUNCHER_OUTPUT_COALESCE_H
#define BERTH_LAUNCHER_OUTPUT_COALESCE_H

#include "launcher/request.h"

enum {
	COALESCE_MS = 500,
	COALESCE_LINES = 65536,
	COALESCE_BYTES = 4 << 20,
	COALESCE_STAMP_BYTES = 40
};

#define COALESCE_ALL UINT64_MAX /* as a time: each line has waited long enough */

struct coalesce;

/* A line that leaves. */
struct coalesced {
	struct rank_set ranks; /* that wrote it */
	uint32_t index;        /* its stream, of the first of them */
	char stamp[COALESCE_STAMP_BYTES];
	size_t stamp_bytes; /* when that one did */
	char *text;         /* with its '\n' */
	size_t n;
};

void coalesced_free(struct coalesced *l);

struct coalesce *coalesce_open(uint32_t np);
void coalesce_free(struct coalesce *c); /* takes NULL */

/* The N bytes at TEXT are a whole line of stream INDEX. */
void coalesce_add(struct coalesce *c, uint32_t index, const char *text, size_t n,
		  const char *stamp, size_t stamp_bytes, uint64_t now_ms);
/* The next line that need not wait any longer at NOW_MS leaves, into L; false: none. */
bool coalesce_take(struct coalesce *c, uint64_t now_ms, struct coalesced *l);
/* The next one that has to leave before all lines of RANK have; false: they have. */
bool coalesce_take_of(struct coalesce *c, uint32_t rank, struct coalesced *l);
/* When the oldest has waited long enough; 0: none waits. */
uint64_t coalesce_due_ms(const struct coalesce *c);

#endif
