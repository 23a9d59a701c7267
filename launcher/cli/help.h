/* help.h - everything the option table is printed as.
 *
 * Text to a string, no I/O.  `runner --print=FORM` (hidden; the Makefile calls it)
 * gives the parts of man/runner.1 and the shell completion: man          the items of
 * OPTIONS, by topic environment  the items of ENVIRONMENT: BERTH_* and the option each
 * stands for compat       the items of COMPATIBILITY: options of other launchers and
 * what becomes of them exits        the items of EXIT STATUS, from common/exits.h
 *   errors       the items of DIAGNOSTICS, from common/errors.def
 *   completion   for bash
 *   variables    the names of the BERTH_* variables, one a line */
#ifndef BERTH_LAUNCHER_CLI_HELP_H
#define BERTH_LAUNCHER_CLI_HELP_H

#include "common/str.h"

/* What --help (TOPIC NULL), --help all, --help TOPIC or --help --option prints.  0, or
 * -1 with E_HELP. */
int help_print(struct str *out, const char *topic, struct err *e);

/* What --print=FORM prints.  0, or -1 with E (E_CHOICE). */
int help_generate(struct str *out, const char *form, struct err *e);

#endif
