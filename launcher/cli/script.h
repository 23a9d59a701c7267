/* script.h - a Python script as the program: `runner train.py`, as with torchrun.
 *
 * A file NAME.py that nothing can execute as it is gets python3 in front: it is not
 * executable, has no "#!" in its first line, or was named without a '/' and no folder
 * of PATH has it.  It is looked for on this machine, in the --wdir of its app; one that
 * is not here is left as it is, and the hosts look for it. */
#ifndef BERTH_LAUNCHER_CLI_SCRIPT_H
#define BERTH_LAUNCHER_CLI_SCRIPT_H

#include "launcher/request.h"

/* For each app of R.  PATH is that of the environment, or NULL. */
void script_prefix(struct request *r, const char *path);

#endif
