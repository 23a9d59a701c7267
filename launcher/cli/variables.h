/* variables.h - the variables BERTH_* that mean something, for names that are mistyped.
 *
 * They come from four tables: option_table.c, variables.def, common/given.def and
 * lib/core/params.def. */
#ifndef BERTH_LAUNCHER_CLI_VARIABLES_H
#define BERTH_LAUNCHER_CLI_VARIABLES_H

#include "common/str.h"

/* A warning to NOTES for each variable BERTH_* in ENV that has a value, and whose name
 * is none of these but near to one that a user may set.  A name that is near to none is
 * the user's own.  A variable of another name costs one comparison. */
void variables_warn(struct strv *notes, char *const *env);

#endif
