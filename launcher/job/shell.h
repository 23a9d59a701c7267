/* shell.h - the simple commands of a shell script, one after the other, as words.
 *
 * Reads, never runs: enough of sh to see which program a batch script starts.  Quotes,
 * "$@", $NAME and ${NAME:-default}, cd, shift, assignments, comments and here-documents
 * are understood; $(...) is empty, except $(dirname ...), which is the script's folder;
 * both branches of every `if` are read.  Source: POSIX.1-2017, Shell Command Language.
 */
#ifndef BERTH_LAUNCHER_JOB_SHELL_H
#define BERTH_LAUNCHER_JOB_SHELL_H

#include <stdbool.h>

#include "common/str.h"

struct shell {
	struct strv *env;  /* variables; assignments change it */
	char *const *args; /* "$@" */
	size_t nargs;
	const char *script; /* $0, or NULL */
	const char *dir;    /* where it runs, NULL: here */
	/* Called with each command's words (n > 0) and its folder; true ends the
	 * reading. */
	bool (*command)(void *ctx, char *const *words, size_t n, const char *dir);
	void *ctx;
};

/* Read TEXT.  True if a command's call was. */
bool shell_read(const struct shell *sh, const char *text);

#endif
