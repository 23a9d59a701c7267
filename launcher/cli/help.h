/* help.h - the option table as help for users, and as rows for the tools that make man
 * page and shell completion.
 *
 * Text to a string, no I/O. */
#ifndef BERTH_LAUNCHER_CLI_HELP_H
#define BERTH_LAUNCHER_CLI_HELP_H

#include "common/str.h"

/* The text of --help (TOPIC NULL), --help all, --help TOPIC or --help --option; of
 * another word all that mentions it.  0, or -1 with E_HELP. */
int help_print(struct str *out, const char *topic, struct err *e);

/* The text of `runner --print=tables` (hidden) for man/splice.awk and
 * man/completion.awk: one row on a line, a tab between two cells, no hidden options.
 *     topic   HEADING    the options of this topic follow
 *     option  NAMES ARG FORM KEY VARIABLE VALUES TEXT HELP
 *             Spaces separate NAMES, and VALUES.  FORM of the value: word (the next
 *             word or behind "="), tied (only behind "="), maybe, or empty.  VALUES
 *             may be -f (a file) or -d (a directory).  HELP is one line for a menu
 *     advice  HEADING WHAT TEXT    what helps if a job is slow or hangs
 *     compat  NAMES LAUNCHER FATE TEXT    options of other launchers
 *     exit    STATUS MEANING    from common/exits.h
 *     error   STATUS SENTENCE HINT    from common/errors.def */
void help_tables(struct str *out);

#endif
