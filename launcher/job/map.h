/* map.h - pure: make the plan, rank -> host, from a request and its hosts.
 *
 * By slot fills each host before the next one.  By node deals one rank to each host in
 * turn.  The ranks of an MPMD job are numbered app by app.
 *
 * An app with -H or -ppn of its own takes slots of its own.  The lists of several apps
 * add up in map_host.slots, except in an allocation: there they share its slots, and
 * apps with a list of their own come first. */
#ifndef BERTH_LAUNCHER_JOB_MAP_H
#define BERTH_LAUNCHER_JOB_MAP_H

#include "common/str.h"
#include "launcher/hosts.h"
#include "launcher/request.h"

struct map_host {
	const char *name;
	int slots;     /* SLOTS_GPUS is replaced by the number of GPUs */
	int max_slots; /* 0: no limit */
	bool lost;     /* takes no rank */
	int sockets, numas;
	/* NULL, or what the list of hosts of each app says.  [0] is that of all apps
	 * without -H of their own. */
	struct host_in_list *list;
};

struct plan_rank {
	uint32_t host;  /* index into the hosts given to map_ranks() */
	uint32_t local; /* index on its host */
	uint32_t app;
	uint32_t cross_rank; /* used hosts before its own that have this local rank */
	uint32_t cross_size; /* used hosts that have this local rank */
};

struct plan {
	struct plan_rank *rank; /* rank[0..np) */
	uint32_t np;
	uint32_t *node; /* node[host] = index among the hosts in use, or PLAN_UNUSED */
	uint32_t *local_size;   /* local_size[host] */
	uint32_t **ranks;       /* ranks[host][local] */
	uint32_t nhosts, nodes; /* all hosts; hosts in use */
};

#define PLAN_UNUSED 0xffffffffu

/* Map the ranks of R to HOSTS.  SLOTS_FROM says where the slots came from, for
 * messages.  Returns 0, or -1 with E (E_SLOTS and others: exit 2). */
int map_ranks(struct plan *plan, const struct request *r, const struct map_host *hosts,
	      size_t nhosts, const char *slots_from, struct err *e);
void plan_free(struct plan *plan);

/* While the ranks run: HOST is lost, and its ranks are on no host. */
void plan_leave(struct plan *plan, uint32_t host);
/* RANK is on a host, though it may have ended. */
bool plan_has(const struct plan *plan, uint32_t rank);
/* HOST, which has none, gets the ranks RANK[0..n): such as are on no host, and new ones
 * from plan->np on, one after the other.  The hosts in use
 * are numbered anew. */
void plan_come(struct plan *plan, uint32_t host, const uint32_t *rank, uint32_t n);

#endif
