/* growing.h - --min-np and --max-np: a number of ranks that follows the hosts.
 *
 * What is not given follows from what is.  No I/O.  Source: horovodrun's options of the
 * same names, torchrun's --nnodes MIN:MAX. */
#ifndef BERTH_LAUNCHER_CLI_GROWING_H
#define BERTH_LAUNCHER_CLI_GROWING_H

#include "launcher/request.h"

/* All sources are in R.  Afterwards growing.min_np is 0 if the number is fixed.  0, or
 * -1 with E. */
int growing_settle(struct request *r, struct err *e);

#endif
