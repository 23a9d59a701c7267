/* lint.h - --lint: mistakes in training scripts, by lint.py of Berth's Python package.
 *
 * Looks for the package of this installation (common/package.h), and runs the python3
 * in PATH in its isolated mode: no module of the current folder is imported. */
#ifndef BERTH_LAUNCHER_CLI_LINT_H
#define BERTH_LAUNCHER_CLI_LINT_H

#include "common/err.h"
#include "common/str.h"

/* Become the program that checks FILES.  Returns only on failure: -1 with E. */
int lint_exec(const struct strv *files, struct err *e);

#endif
