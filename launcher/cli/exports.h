/* exports.h - the variables that -x and --export name.
 *
 * --export is read as srun reads it: commas separate its entries, which are ALL, NONE,
 * NIL (in any case), NAME and NAME=VALUE.  A comma inside '...' or "..." separates
 * nothing, and quotes around a whole entry go.  Empty entries do not count, nor does
 * what follows NONE or NIL.  'PREFIX*' may be an entry, as with -x.  No I/O.
 * Source: the manual of srun, Slurm 22.05. */
#ifndef BERTH_LAUNCHER_CLI_EXPORTS_H
#define BERTH_LAUNCHER_CLI_EXPORTS_H

#include "launcher/cli/option.h"

/* Setters of the option table: -x, --export. */
int value_export(const struct setting *s, const char *value, struct err *e);
int value_forward(const struct setting *s, const char *value, struct err *e);

/* E_EXPORT.  No value in WORD is printed.  Always -1. */
int exports_refuse(const char *word, struct err *e);

/* All sources are in R: give a variable of --export ALL that ENV has its value there,
 * and add to NOTES a warning for each name that has no value, or another one than the
 * user gave. */
void exports_settle(struct request *r, struct strv *notes, char *const *env);

#endif
