/* cpuset.h - sets of processing units by OS index.
 *
 * Plain words of 64 bits, so that no hwloc type leaves topo.c. */
#ifndef BERTH_AGENT_PLACEMENT_CPUSET_H
#define BERTH_AGENT_PLACEMENT_CPUSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A set of processing units by OS index.  {0} is empty.  A set of cpuset_new() has room
 * for NWORDS * 64 indexes. */
struct cpuset {
	uint64_t *w;
	size_t nwords;
};

struct cpuset cpuset_new(size_t nwords);
struct cpuset cpuset_copy(const struct cpuset *s);
void cpuset_free(struct cpuset *s);
void cpuset_add(struct cpuset *s, uint32_t pu); /* ignored beyond its room */
void cpuset_remove(struct cpuset *s, uint32_t pu);
bool cpuset_has(const struct cpuset *s, uint32_t pu);
void cpuset_or(struct cpuset *s, const struct cpuset *with);
void cpuset_and(struct cpuset *s, const struct cpuset *with);
uint32_t cpuset_count(const struct cpuset *s);
bool cpuset_meets(const struct cpuset *a, const struct cpuset *b);
bool cpuset_within(const struct cpuset *a, const struct cpuset *b); /* a subset of b */
/* Add the numbers of a list string, "0-3,8", that S has room for.  False: not a
 * list. */
bool cpuset_parse(struct cpuset *s, const char *list);

#endif
