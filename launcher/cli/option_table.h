/* option_table.h - every option of runner, one row each: the one table.
 *
 * The parser (options.c), --help (help.c), the sections OPTIONS and ENVIRONMENT of the
 * man page (man/splice.awk), the shell completion (man/completion.awk), the BERTH_*
 * variables and the keys of config files (config.c) follow from it.  The options of
 * other launchers are in compat.c.  Idea: git's struct option, curl's one file per
 * option. */
#ifndef BERTH_LAUNCHER_CLI_OPTION_TABLE_H
#define BERTH_LAUNCHER_CLI_OPTION_TABLE_H

#include "launcher/cli/option.h"

extern const struct option option_table[];
extern const size_t option_count;

/* The row of the option NAME, or NULL.  Dashes in front do not count, and '_' is the
 * same as '-'.  *NO: NAME is the opposite of a switch, --no-x. */
const struct option *option_find(const char *name, bool *no);

/* The row of "-np16" and the begin of the value in WORD, or NULL. */
const struct option *option_find_glued(const char *word, const char **value);

/* The row of a config key ('_' is the same as '-'), or NULL. */
const struct option *option_find_key(const char *key);

/* Whether NAME, as option_find() takes it, is in LIST, whose names spaces separate. */
bool option_named(const char *list, const char *name);

/* The next name of such a list into NAME, and the list behind it.  Returns the length
 * of the name, 0 at the end. */
size_t option_next_name(const char **list, const char **name);

/* The BERTH_* variables that options read.  The ranks do not get them. */
const char *const *options_env_names(size_t *n);

#endif
