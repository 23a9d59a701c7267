/* oom.h - did the kernel's OOM killer kill a process of ours, and over which limit?
 *
 * The kernel counts its OOM kills per cgroup: memory.events (v2), memory.oom_control
 * (v1).  /proc/vmstat counts them for the whole machine, and serves if the cgroup is
 * the root.  A rank that ended by KILL while the count rose was killed by the OOM
 * killer.  The limit is the smallest of the cgroup's own and of those above it:
 * memory.max (v2), memory.limit_in_bytes (v1). */
#ifndef BERTH_AGENT_RANKS_OOM_H
#define BERTH_AGENT_RANKS_OOM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/str.h"

struct oom {
	char path[512];   /* the file that counts */
	size_t mount_len; /* of this, where cgroups are mounted; 0: none counts */
	uint64_t seen;
};

/* Find the counter of this process's cgroup and read it.  ROOT is "" or the folder
 * under which proc and sys are looked up (tests). */
void oom_begin(struct oom *o, const char *root);
/* Has the count risen since the last call that returned true?  Each kill counts
 * once. */
bool oom_risen(struct oom *o);
/* "over the memory limit of 64 MiB of cgroup '/a'", or "out of memory" if only the
 * machine's memory is the limit. */
void oom_why(const struct oom *o, struct str *out);

#endif
