/* facts.h - pure: what the report of a job tells, as data.
 *
 * launcher/job/report_file.c fills it.  report_json.h and page.h write it.  Texts may
 * have any bytes, also those of a hostile host; both cut and escape them. */
#ifndef BERTH_LAUNCHER_INSIGHT_FACTS_H
#define BERTH_LAUNCHER_INSIGHT_FACTS_H

#include "launcher/insight/columns.h"
#include "launcher/insight/verdict.h"
#include "launcher/output/event_log.h"

/* One program of the job. */
struct facts_app {
	uint32_t np;
	const struct strv *argv; /* secrets are not hidden yet */
	const struct strv *env;  /* NAME=VALUE: what -x and its like add; the same */
};

struct facts_host {
	const char *name;
	uint32_t cpus, gpus;
	bool lost;
	const char *idle, *certificate; /* CPUs without a rank; or "" */
	double cpu_s;
	uint64_t peak_bytes; /* 0: unknown */
};

enum { FACTS_NO_HOST = UINT32_MAX };

struct facts_rank {
	uint32_t host, local; /* host: FACTS_NO_HOST if it has none any more */
	/* Its berth; "" if there is none.  cpus: as read back. */
	const char *gpu, *gpu_name, *cpus, *numa, *visible, *why;
	uint32_t gpu_index, pid, lives;
	char ended[40]; /* "exited with status 1", "SIGKILL"; "": it has not */
	bool failed;    /* and nobody ended it */
	double end_s;   /* of the job; below 0: unknown */
	double strip_end_s;
};

struct facts {
	const char *job, *version, *cause, *logs; /* cause, logs: or NULL */
	int status;
	double begin; /* seconds since 1970 */
	double wall_s;
	uint32_t restarts;

	const struct facts_app *app;
	size_t napp;
	const struct strv *env; /* of all ranks */
	const struct facts_host *host;
	size_t nhosts;
	const struct facts_rank *rank; /* rank[0..record->nranks) */
	const struct record *record;
	const struct verdict *verdict;
	const struct event_log *events;
};

/* Bytes that a report is made of, in order. */
typedef void facts_put(void *ctx, const char *bytes, size_t n);

/* A finding is about RANK, or it failed. */
bool facts_odd(const struct facts *f, uint32_t rank);
/* Append the rule of each finding about RANK: "SLOW RANK, BINDING". */
void facts_findings(struct str *out, const struct facts *f, uint32_t rank);
/* As many columns for a strip as a report of so many ranks has room for. */
struct columns facts_columns(const struct facts *f);

#endif
