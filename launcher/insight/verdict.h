/* verdict.h - pure: what holds a job back, as far as its record shows.
 *
 * Rules are asked in order.  Each gives nothing, or a finding: the evidence, the gain,
 * and what to change.  A rank's own time is the time in which it does not wait for
 * others.  All ranks of a world take their steps together, so the rank that waits least
 * sets the pace.
 *
 * All thresholds are shares of time, so they hold on any machine. */
#ifndef BERTH_LAUNCHER_INSIGHT_VERDICT_H
#define BERTH_LAUNCHER_INSIGHT_VERDICT_H

#include "launcher/insight/ledger.h"
#include "launcher/insight/record.h"
#include "launcher/request.h"

struct str;

enum { VERDICT_MOST = 5 };

/* A rank, as far as the job knows it beside the record. */
struct ranked {
	const char *host;
	const char *bound; /* its CPUs, or NULL */
	bool gpu;
	uint32_t at; /* record->host[at] is its host */
};

struct look {
	const struct record *record;
	const struct ranked *rank; /* rank[0..record->nranks) */
	const char *const *host;   /* names of host[0..record->nhosts) */
	struct ledger_row fewest;  /* an earlier run with fewer ranks; np 0: none */
	bool crowded; /* some host has more ranks than CPUs, and the user knows */
};

struct finding {
	const char *rule;      /* "SLOW RANK" */
	struct rank_set ranks; /* which it is about; none: all */
	double gain; /* part of the time of a step that would be saved; 0: unknown */
	char *text, *advice;
};

struct verdict {
	struct finding v[VERDICT_MOST];
	size_t n;
	bool looked;   /* there was enough to look at */
	char *missing; /* which samples, as agents lagged; or NULL */
};

void verdict_make(struct verdict *v, const struct look *l);
void verdict_free(struct verdict *v);
/* Append it: a line each, or one that all is well; nothing if there was too little to
 * look at. */
void verdict_text(struct str *out, const struct verdict *v);
/* As a list of JSON. */
void verdict_json(struct str *out, const struct verdict *v);

#endif
