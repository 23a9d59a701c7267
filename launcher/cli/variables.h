/* variables.h - the variables BERTH_* that mean something, for names that are mistyped.
 *
 * They come from four tables: option_table.c, variables.def, common/given.def and
 * lib/core/params.def. */
#ifndef BERTH_LAUNCHER_CLI_VARIABLES_H
#define BERTH_LAUNCHER_CLI_VARIABLES_H

#include "common/str.h"

/* A warning to NOTES for each variable BERTH_* in ENV that has a value and looks
 * mistyped: its name is not in these tables, and is near to one that a user may set.  A
 * name that is not near to any is the user's own.  A variable without this prefix costs
 * one comparison. */
void variables_warn(struct strv *notes, char *const *env);

#endif
