/* summary.h - --summary: the end of a job in a few lines, or in one of JSON.
 *
 * Nothing is measured for it.  CPU time and peak memory are those that agents tell when
 * ranks end: wait4(2)'s of each rank, or those of the job's cgroup on that host, if
 * there is one.  wait4(2) counts processes that were waited for, and its peak is that
 * of the largest process. */
#ifndef BERTH_LAUNCHER_JOB_SUMMARY_H
#define BERTH_LAUNCHER_JOB_SUMMARY_H

#include <stdbool.h>

#include "common/str.h"
#include "launcher/insight/ledger.h"
#include "launcher/insight/verdict.h"
#include "launcher/output/nccl_pairs.h"

/* The resources that the ranks of one host used, in all epochs. */
struct usage {
	uint32_t ranks; /* that were started there together */
	/* The number is its cgroup's, which may count CPU time alone. */
	bool cpu_cgroup, peak_cgroup;
	uint64_t cpu_us;   /* of epochs that are over */
	uint64_t ranks_us; /* of the ranks of this epoch that have ended, by wait4(2) */
	uint64_t peak_bytes; /* 0: unknown */
	/* When the first and the last rank ended, by our clock; 0: none has. */
	uint64_t first_end_ns, last_end_ns;
};

/* monitor.h: what the terminal shows while the job runs */
struct live_view {
	struct keys *keys; /* NULL: none are read */
	uint64_t drawn_ms;
	bool table, closed; /* the table of --top; nothing is shown any more */
};

enum { LOSSES_FIRST = 10, LOSSES_LAST = 10, LOSSES_KEPT = LOSSES_FIRST + LOSSES_LAST };

/* Each time that ranks started again, or others went on without them. */
struct losses {
	struct loss {
		uint64_t at_ns; /* of our clock */
		char *text;
	} v[LOSSES_KEPT]; /* behind the first ones: a ring */
	size_t n;         /* all of them */
};

/* Notes of a job while it runs. */
struct account {
	uint64_t begin_ns;
	struct usage *usage;  /* one for each host */
	struct record record; /* what ranks and hosts used, over time */
	struct live_view view;
	struct ledger_row fewest;   /* of this command, with the fewest ranks */
	struct report_file *report; /* --report; NULL: none */
	struct timeline *timeline;  /* --timeline; NULL: none */
	struct losses losses;
	struct dump *dump;        /* --dump, Ctrl-\ twice; NULL: no rank is to run */
	struct dump_socket *door; /* --dump; NULL: none */
	char *cause; /* the first failure of a rank in this epoch; or NULL */
	struct {
		uint32_t all;
		uint64_t
			*at_ms; /* of the last ones, as --restarts N/TIME counts them */
		size_t n;
	} restarts;
};

/* CAUSE, which is copied; NULL: none, in a new epoch. */
void account_cause(struct account *a, const char *cause);
/* One loss more, with its cause. */
void account_loss(struct account *a, uint64_t at_ns, const char *text);
/* The cause of the last one, or NULL. */
const char *account_last_loss(const struct account *a);
void account_free(struct account *a);

/* One rank ended at END_NS. */
void usage_rank(struct usage *u, uint64_t end_ns, uint64_t cpu_us, uint64_t peak_bytes);
/* An epoch is over on this host, with what its cgroup says, or 0. */
void usage_epoch(struct usage *u, uint64_t cpu_us, uint64_t peak_bytes);

struct summary {
	const char *job;
	int status;
	const char *cause; /* NULL: none */
	uint64_t begin_ns, end_ns;
	uint32_t restarts;
	const struct losses *losses;
	const char *logs; /* a folder, or NULL */
	const struct verdict *verdict;
	const char *const *host; /* names of hosts[0..n) */
	const struct usage *usage;
	size_t n;
	const struct nccl_pairs *nccl; /* --nccl-transports, or NULL */
};

/* Pure: append S to OUT.  Hosts on which no rank was started are left out. */
void summary_text(struct str *out, const struct summary *s);
/* As summary_text(), as one JSON object without a newline.  Sizes are in bytes, times
 * in seconds since the begin of the job. */
void summary_json(struct str *out, const struct summary *s);

#endif
