/* cores.h - how many cores the ranks of this host may use together: by their affinity,
 * and by the CPU quotas of their cgroups (cpu.max; cpu.cfs_quota_us of version 1).
 *
 * A quota holds for a cgroup and all below it, so each level up to the mount counts,
 * which in a container is the container's own cgroup.  Ranks in one cgroup share its
 * quota.  If ranks are in different cgroups, the quotas below the last level that they
 * share are added.  /proc/PID/cgroup tells where another rank is; a rank that this one
 * cannot see there (it has another PID namespace, or has not started) is taken to
 * share this one's cgroup. */
#ifndef BERTH_LIB_CORES_H
#define BERTH_LIB_CORES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The cores that the N ranks of this host may use.  This process is one of the ranks;
 * PID[i] is 0 if it is not known.  At
 * least 1.  *QUOTA: a quota bounds it.  (Reading cgroups takes 0.1 ms; one rank, which
 * shares its cores with none, is not worth it.) */
unsigned cores_of_ranks(const uint32_t *pid, unsigned n, bool *quota);

/* ---- its parts, for tests ---- */

/* Quotas are in thousandths of a core, rounded up. */
#define CORES_NO_QUOTA UINT64_MAX

/* TEXT is that of cpu.max: "150000 100000", or "max 100000". */
uint64_t cores_quota(const char *text);
/* QUOTA and PERIOD are those of cpu.cfs_quota_us and cpu.cfs_period_us. */
uint64_t cores_quota_v1(const char *quota, const char *period);

struct cores_cgroup {
	char path[512]; /* of its directory */
	size_t mount;   /* bytes of PATH that name the mount */
};

/* The cgroup that OWN, the text of a /proc/PID/cgroup, names.  MOUNTS is the text of
 * /proc/self/mountinfo.  False: it cannot be seen here. */
bool cores_find(struct cores_cgroup *c, bool v2, const char *own, const char *mounts);
/* The quota of N ranks together, in cgroups OWN[i]; NULL: not known.  OWN[0] is this
 * process. */
uint64_t cores_quota_of(bool v2, char *const *own, size_t n, const char *mounts);

#endif
