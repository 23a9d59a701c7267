/* pmi1_names.h - pure: what PMI-1 publishes and looks up (MPI_Publish_name), to the
 * messages about names of wire.def and back.
 *
 * The names are not those of PMIx, whose values are of another kind.  A service is any
 * text of one line.  A port has no space and no backslash: MPICH reads an answer up to
 * a space, and some of its releases take backslashes away. */
#ifndef BERTH_AGENT_PMI_PMI1_NAMES_H
#define BERTH_AGENT_PMI_PMI1_NAMES_H

#include <stdbool.h>

#include "agent/pmi/pmi1_line.h"
#include "common/wire.h"

/* Asks the launcher what L, a line of rank RANK, says: the answer to request ID is a
 * `found`.  False: there is no such service or port, and nothing was asked. */
bool pmi1_name_ask(struct buf *out, uint32_t epoch, uint32_t rank, uint32_t id,
		   const struct pmi1_line *l);
/* The line that answers COMMAND, to be freed.  M NULL: nothing was asked. */
char *pmi1_name_answer(enum pmi1_command command, const struct wire_found *m);

#endif
