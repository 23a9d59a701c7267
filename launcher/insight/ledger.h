/* ledger.h - pure: how fast earlier runs of a command were, for each number of ranks.
 *
 * Text: a line for each command and number of ranks, the latest last: the hash of the
 * command, the ranks, their steps a second.  It never has the command itself, and it
 * is bounded. */
#ifndef BERTH_LAUNCHER_INSIGHT_LEDGER_H
#define BERTH_LAUNCHER_INSIGHT_LEDGER_H

#include "launcher/insight/record.h"

struct str;
struct strv;

enum { LEDGER_MOST = 1000, LEDGER_BYTES = 64 << 10 };

struct ledger_row {
	uint64_t command;
	uint32_t np;  /* 0: none */
	double steps; /* a second */
};

struct ledger {
	struct ledger_row row[LEDGER_MOST];
	size_t n;
};

/* Go on with HASH, which is 0 at first: ARGV, without secrets. */
uint64_t ledger_hash(uint64_t hash, const struct strv *argv);
/* The steps a second of R's ranks; 0 if they took steps for less than LEAST_S. */
double ledger_steps(const struct record *r, double least_s);

/* Lines of TEXT that are no rows are left out. */
void ledger_read(struct ledger *l, const char *text);
void ledger_write(struct str *out, const struct ledger *l);
/* ROW takes the place of an earlier one; the oldest leaves a full ledger. */
void ledger_add(struct ledger *l, const struct ledger_row *row);
/* The row of COMMAND with the fewest ranks, if those are fewer than NP; np 0: none. */
struct ledger_row ledger_fewest(const struct ledger *l, uint64_t command, uint32_t np);

#endif
