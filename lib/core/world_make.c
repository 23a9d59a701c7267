#include "lib/core/world_make.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fields.h"
#include "lib/base/log.h"
#include "lib/boot/boot_caller.h"
#include "lib/boot/retired.h"
#include "lib/core/cores.h"
#include "lib/core/init_wait.h"
#include "lib/core/region.h"
#include "lib/core/trace.h"
#include "lib/core/world.h"

void world_count_cores(struct world *w)
{
	const unsigned n = w->who.local_size;
	uint32_t *pid = calloc(n, sizeof *pid);

	for (unsigned i = 0; pid && i < n; i++)
		pid[i] = w->memory.rank[i].pid;
	if (pid)
		w->cores = cores_of_ranks(pid, n, &w->has_quota);
	free(pid);
}

static berth_result number_locals(struct world *w)
{
	unsigned n = 0;

	w->local = calloc(w->who.size, sizeof *w->local);
	for (unsigned r = 0; w->local && r < w->who.size; r++)
		w->local[r] = r;
	if (!w->local ||
	    members_make(&w->members, w->local, w->who.size, w->who.host, w->who.rank))
		return log_error(BERTH_MEMORY, "", NULL, 0, "out of memory");
	for (unsigned r = 0; r < w->who.size; r++)
		w->local[r] = w->who.host[r] == w->who.host[w->who.rank]
				      ? n++
				      : WORLD_NOT_HERE;
	if (n == w->who.local_size && w->local[w->who.rank] == w->who.local_rank)
		return BERTH_OK;
	return log_error(BERTH_SYSTEM, "", NULL, 0,
			 "rank %u: the launcher says local rank %u of %u, the list of "
			 "ranks says %u of %u",
			 w->who.rank, w->who.local_rank, w->who.local_size,
			 w->local[w->who.rank], n);
}

const struct berth_bootstrap *world_bootstrap(const struct berth_config *config)
{
	return config && config->size >= sizeof *config ? config->bootstrap : NULL;
}

/* With the ranks that are left. */
static berth_result world_follow(struct world *w, char *why)
{
	struct init_wait m;
	const struct boot_patience patience = { init_wait_tick, init_wait_missing, &m };
	berth_result rc;

	init_wait_begin(&m, w, "berth_change");
	rc = w->boot->follow(&w->boot_state, &w->who, &patience, why);
	if (!rc || !m.is_over)
		return rc ? log_error(rc, "", NULL, 0, "%s", why) : BERTH_OK;
	init_wait_text(why, BOOT_WHY_BYTES, &m);
	return log_error(BERTH_TIMEOUT, "", m.late.missing, m.late.nmissing, "%s", why);
}

static berth_result find_others(struct world *w, const struct berth_bootstrap *given,
				bool changes)
{
	char why[BOOT_WHY_BYTES] = "";
	berth_result rc;

	w->boot = given ? &boot_caller : boot_choose(why);
	if (!w->boot)
		return log_error(BERTH_NO_PEERS, "", NULL, 0, "%s", why);
	if (changes && w->boot->follow) {
		rc = world_follow(w, why);
	} else {
		rc = w->boot->join(&w->boot_state, &w->who, given, why);
		if (rc)
			log_error(rc, "", NULL, 0, "%s", why);
	}
	if (rc) {
		w->boot = NULL;
		return rc;
	}
	rc = w->boot->memory(w->boot_state, &w->who,
			     memory_bytes(w->who.size, w->who.local_size,
					  region_bytes_of_all(w->who.local_size)),
			     why);
	return rc ? log_error(rc, "", NULL, 0, "%s", why) : number_locals(w);
}

static void say_ignored(void *ctx, const char *name, const char *why)
{
	(void)ctx;
	log_say(BERTH_LOG_INFO, "%s does nothing here: %s", name, why);
}

static berth_result read_params(struct world *w, const struct berth_config *config,
				struct world_kept *kept, bool changes)
{
	enum { SIZE_MOST = 4096 };
	const struct berth_bootstrap *given = world_bootstrap(config);
	char why[256];

	if (config && (config->size < offsetof(struct berth_config, timeout_ms) ||
		       config->size > SIZE_MOST))
		return log_error(BERTH_INVALID, "", NULL, 0,
				 "size is not that of struct berth_config");
	if (config && fields_are_unknown(config, config->size, sizeof *config))
		return log_error(BERTH_UNSUPPORTED, "", NULL, 0,
				 "the config has fields that this version of libberth "
				 "does not know");
	if (given && fields_are_unknown(given, given->size, sizeof *given))
		return log_error(BERTH_UNSUPPORTED, "", NULL, 0,
				 "the bootstrap has fields that this version of "
				 "libberth does not know");
	if (config && (config->log || !changes))
		log_to(config->log, config->log_ctx);
	if (!params_read(&w->params, why, sizeof why))
		return log_error(BERTH_INVALID, "", NULL, 0, "%s", why);
	w->timeout_ms = w->params.timeout_ms;
	if (!changes)
		kept->timeout_ms = 0;
	if (config && config->timeout_ms)
		kept->timeout_ms = config->timeout_ms;
	if (kept->timeout_ms)
		w->timeout_ms = kept->timeout_ms;
	return BERTH_OK;
}

/* A timeline is of this process, and goes on when its world changes. */
static berth_result begin_timeline(const struct world *w)
{
	const char *path = w->params.timeline, *jobs = getenv("BERTH_RANK_TIMELINE");
	char why[256];
	berth_result rc;

	if (jobs && !timeline_start_job(jobs, w->who.rank, w->who.clock_offset_ns))
		log_say(BERTH_LOG_WARNING, "no timeline of this rank: its agent's file "
					   "cannot be written to");
	if (!path || !*path || timeline_runs & 1 << TIMELINE_CALLER)
		return BERTH_OK;
	rc = timeline_start(path, w->who.rank, w->who.clock_offset_ns, why, sizeof why);
	return rc ? log_error(rc, "", NULL, 0, "HOROVOD_TIMELINE: %s", why) : BERTH_OK;
}

berth_result world_can_follow(const struct berth_config *config)
{
	const struct boot *boot;
	char why[BOOT_WHY_BYTES];

	if (world_bootstrap(config))
		return BERTH_OK;
	boot = boot_choose(why);
	if (!boot)
		return log_error(BERTH_NO_PEERS, "", NULL, 0, "%s", why);
	return boot->fixed
		       ? log_error(BERTH_UNSUPPORTED, "", NULL, 0, "%s", boot->fixed)
		       : BERTH_OK;
}

berth_result world_begin(struct world *w, const struct berth_config *config,
			 struct world_kept *kept, bool changes)
{
	const struct berth_bootstrap *given = world_bootstrap(config);
	berth_result rc;

	memset(w, 0, sizeof *w);
	w->memory.fd = w->who.memory = -1;
	w->next_set = 1;
	w->who.epoch = kept->epoch;
	if (changes)
		w->past = kept->past;
	rc = read_params(w, config, kept, changes);
	if (rc && given)
		boot_caller_decline(given, rc, log_last()->text);
	if (!rc)
		rc = find_others(w, given, changes);
	if (!rc &&
	    memory_map(&w->memory, &w->who, region_bytes_of_all(w->who.local_size)))
		rc = log_error(BERTH_SYSTEM, "", NULL, 0,
			       "the memory that ranks of a host share: %s",
			       strerror(errno));
	w->cores = 1;
	if (!rc)
		world_count_cores(w);
	if (!rc)
		rc = begin_timeline(w);
	if (rc) {
		world_end(w, kept, changes);
		return rc;
	}
	if (w->who.key_in_clear && w->who.hosts > 1 && w->who.rank == 0 &&
	    w->params.guard == NET_GUARD_AEAD)
		log_say(BERTH_LOG_WARNING,
			"BERTH_NET_SECURE=aead does not protect against an observer of "
			"the PMIx server's network: MUNGE does not work on all ranks, "
			"so the job's key went there in clear");
	params_ignored(say_ignored, NULL);
	log_say(BERTH_LOG_DEBUG, "rank %u of %u, by way of %s", w->who.rank,
		w->who.size, w->boot->name);
	return BERTH_OK;
}

void world_end(struct world *w, struct world_kept *kept, bool changes)
{
	char why[256];

	for (int i = 0; i < TIMELINES && !changes; i++)
		if (timeline_runs & 1 << i && timeline_stop(i, why, sizeof why))
			log_say(BERTH_LOG_WARNING, "%s", why);
	members_free(&w->members);
	net_door_close(w->door);
	if (w->memory.at && changes)
		retired_keep(&w->memory);
	else if (w->memory.at)
		memory_unmap(&w->memory);
	if (w->boot)
		w->boot->leave(w->boot_state);
	boot_world_free(&w->who); /* all is zero where there was no world */
	free(w->local);
	if (!changes)
		log_to(NULL, NULL);
	kept->past = w->past;
	memset(w, 0, sizeof *w);
	w->who.memory = -1;
}
