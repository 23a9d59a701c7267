/* check_lines.h - pure: what --check found out on each host, to lines for the user.
 *
 * A line has a verdict, a row, hosts and a text: "FAIL  program  n[2-3]: there is no
 * program 'x'".  Hosts with equal texts share a line. */
#ifndef BERTH_LAUNCHER_JOB_CHECK_LINES_H
#define BERTH_LAUNCHER_JOB_CHECK_LINES_H

#include "common/job.h"
#include "common/str.h"

struct check_item {
	enum check_row row;
	enum check_verdict verdict;
	size_t host;
	char *text, *hint; /* may be empty */
};

/* {0} is empty.  It owns its texts. */
struct check_items {
	struct check_item *v;
	size_t n, room;
	bool failed; /* one of them is said as failed */
};

/* TEXT and HINT are copied, as text that can be shown. */
void check_lines_add(struct check_items *l, size_t host, enum check_row row,
		     enum check_verdict verdict, const char *text, const char *hint);
void check_lines_free(struct check_items *l);

/* GPUs that are not the same on all hosts fail; of NCCL that is a warning.  A note says
 * what NCCL does not protect, if several hosts have it. */
void check_lines_compare(struct check_items *l);

/* Append the lines, by rows, to OUT; NAMES[host] are the names of the hosts.  If
 * FAILED_ONLY, only those that failed.  Returns how many lines failed. */
size_t check_lines_print(struct str *out, const struct check_items *l,
			 const char *const *names, bool failed_only);

#endif
