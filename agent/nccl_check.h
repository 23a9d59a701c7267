/* nccl_check.h - the NCCL that libberth would find in a rank of this host, for --check.
 *
 * The library has hundreds of MB, and may end or hold up a process that loads it.  So
 * another process loads it, `berth-agent --nccl FILE`, with the environment of a rank.
 * It answers as trial.h says. */
#ifndef BERTH_AGENT_NCCL_CHECK_H
#define BERTH_AGENT_NCCL_CHECK_H

#include "agent/trial.h"
#include "common/job.h"
#include "common/str.h"

/* That process.  FILE: the library that the program loads itself; "": it loads none. */
void nccl_check_main(const char *file) __attribute__((noreturn));

/* Pure: what its END and its TEXT say, to OUT and HINT. */
enum check_verdict nccl_check_read(struct str *out, const char **hint,
				   enum trial_end end, const char *text);

#endif
