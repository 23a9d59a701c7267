/* frameworks.h - --check-build: TensorFlow and Keras of the python3 in PATH.
 *
 * Their packages say their versions, and Python tries whether libberth_tf.so loads
 * (lib/python/berth/frameworks.py).  Ranks may have another Python: --check shows what
 * that one has. */
#ifndef BERTH_LAUNCHER_CLI_FRAMEWORKS_H
#define BERTH_LAUNCHER_CLI_FRAMEWORKS_H

#include "common/package.h"

/* Append what P finds to OUT, or a line that says why nothing is known. */
void frameworks_print(struct str *out, const struct package *p);

#endif
