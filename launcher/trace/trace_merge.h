/* trace_merge.h - the trace files of several ranks as one, on one clock.
 *
 * Each rank is a process there.  A process in front of them has the critical rank of
 * each step, which is the one for which others waited longest, the rank that came last
 * to each collective, and what is known about the clocks.  Arrows join the slices of a
 * collective.
 *
 * The files are read at the same pace, by the times of their events.  Memory: 4 to 64
 * KiB for each file, one event of each, 26 MiB for collectives (trace_match.h), and 12
 * MiB for tracks and names. */
#ifndef BERTH_LAUNCHER_TRACE_MERGE_H
#define BERTH_LAUNCHER_TRACE_MERGE_H

#include "common/str.h"
#include "launcher/trace/trace_source.h"

enum { TRACE_FILES_MOST = 4096 };

/* The outcome. */
struct trace_report {
	uint64_t slices, joined; /* collectives with all their ranks */
	uint64_t partial;        /* that lack some: elsewhere, or too far away */
	uint64_t left_out;       /* events that have no place in the form */
	uint32_t cut;            /* files without their end */
	uint32_t unaligned;      /* files whose clock is not known */
	int64_t error_ns; /* how wrong times of two ranks can be; -1: not known */
};

/* The N files of IN into the file OUT: JSON if its name ends in ".json" or ".json.gz",
 * else Perfetto's protobuf.  0 with REPORT, or -1 with E. */
int trace_merge(const char *out, const struct trace_input *in, size_t n,
		struct trace_report *report, struct err *e);

/* --trace-merge: FILES are OUT and the files.  Prints what became of them. */
int trace_merge_files(const struct strv *files, struct err *e);

/* One line about REPORT, without '\n'. */
void trace_report_print(struct str *line, const struct trace_report *report);

#endif
