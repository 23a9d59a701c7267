/* dump_text.h - pure: what all ranks do, as text: those that are alike are one line.
 *
 * Ranks are alike if they are in the same operation, at the same place of their
 * programs and, where that is no plain sleep or work, in the same state.  The fewest
 * come first.  What is said of them below is what the lines hold, never a guess. */
#ifndef BERTH_LAUNCHER_JOB_DUMP_TEXT_H
#define BERTH_LAUNCHER_JOB_DUMP_TEXT_H

#include "launcher/request.h"

enum { DUMP_BYTES = 1 << 20 /* of the text, at most */ };

/* One rank, as far as it is known. */
struct dump_rank {
	const char *host;
	bool lives; /* its process runs */
	bool known; /* its agent has answered: */
	char state;
	const char *wchan, *stack, *why; /* as `dumped` of wire.def has them */
	const char *op;                  /* as `rank_op` has it; "": none */
	uint32_t set, seq; /* of the operation in which it is, or of its last one */
	bool runs;         /* it is in that one */
	bool ordered;      /* all ranks do the operations of SET in one order */
	uint32_t behind;   /* ranks that wait for it */
	const char *last;  /* what it wrote on stderr last: one line, or "" */
	long quiet_ms;     /* since its last output; -1: there was none */
	bool was;          /* it was in the dump before this one, */
	bool moved;        /* and has begun or ended an operation since */
};

struct dump_facts {
	const char *job;
	const struct dump_rank *v;
	uint32_t np;
	uint64_t before_ms; /* since the dump before; 0: there was none */
};

void dump_text(struct str *out, const struct dump_facts *f);

#endif
