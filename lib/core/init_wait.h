/* init_wait.h - berth_init() waits for all ranks of the job: who is missing is
 * reported as for an operation, and it ends as one would, if later. */
#ifndef BERTH_LIB_INIT_WAIT_H
#define BERTH_LIB_INIT_WAIT_H

#include "lib/core/stall.h"

struct init_wait {
	struct world *world;
	uint64_t begun_ns, reported_ns, deadline_ns; /* 0: none */
	struct stall late; /* who was missing when that was asked last */
	bool is_over;      /* that was behind the deadline */
};

/* From now on. */
void init_wait_begin(struct init_wait *m, struct world *w, const char *call);
/* Those of struct boot_patience, with a struct init_wait. */
berth_result init_wait_tick(void *m);
void init_wait_missing(void *m, const unsigned *rank, size_t n);
/* "rank 2 on 'n1' did not call berth_init() in 60 s", once it is over. */
void init_wait_text(char *text, size_t bytes, const struct init_wait *m);

#endif
