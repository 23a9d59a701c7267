/* warm.h - --warm: what an agent needs to start a warm process of a Python program,
 * from which ranks are forked (agent/ranks/warm.h).  warm.py is what that runs. */
#ifndef BERTH_LAUNCHER_JOB_WARM_H
#define BERTH_LAUNCHER_JOB_WARM_H

#include "common/str.h"

/* The words that start the warm process of the program ARGV, which reads warm_text()
 * from its stdin, into OUT.  WDIR as in python_command().  False: there can be none. */
bool warm_command(struct strv *out, const struct strv *argv, const char *wdir);
/* warm.py. */
const char *warm_text(void);

#endif
