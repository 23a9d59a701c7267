/* build.h - --check-build: what this build has, in the table of horovodrun, and what
 * Python finds of TensorFlow.
 *
 * Looks for the Python package and libberth of this installation (common/package.h). */
#ifndef BERTH_LAUNCHER_CLI_BUILD_H
#define BERTH_LAUNCHER_CLI_BUILD_H

#include "common/str.h"

/* Append the table to OUT. */
void build_print(struct str *out);

#endif
