/* trace_source.h - one trace file of several: its events on one clock, and what it is
 * called.
 *
 * Three kinds of files have a clock that is known: those of libberth (HOROVOD_TIMELINE
 * and --timeline), by what they say of themselves; those of Kineto, which
 * torch.profiler writes, by baseTimeNanoseconds, or if their times count from 1970; and
 * Horovod's, by the time of their start. */
#ifndef BERTH_LAUNCHER_TRACE_SOURCE_H
#define BERTH_LAUNCHER_TRACE_SOURCE_H

#include "launcher/trace/trace_put.h"

enum { TRACE_PIDS = 64 };

/* A file to merge, and facts about it that are not in it. */
struct trace_input {
	const char *path; /* or a name for messages, with PULL */
	trace_pull *pull; /* where its bytes come from; NULL: the file PATH */
	void *ctx;
	uint32_t epoch;   /* of the job; 0: not known */
	const char *host; /* of a rank; NULL: as the file says */
	/* At END_NS of the job's clock that was END_OFFSET_NS ahead of the host's, give
	 * or take ERROR_NS.  END_NS 0: not known. */
	int64_t end_ns, error_ns;
	uint64_t end_offset_ns;
};

enum trace_kind { TRACE_OTHER, TRACE_BERTH, TRACE_KINETO, TRACE_HOROVOD };
enum trace_clock {
	TRACE_CLOCK_NONE, /* it begins with the first of the others */
	TRACE_CLOCK_WALL, /* CLOCK_REALTIME of its host */
	TRACE_CLOCK_JOB   /* that of all ranks of a job */
};

struct trace_source {
	const struct trace_input *in;
	struct trace_reader *reader;
	enum trace_kind kind;
	enum trace_clock clock;
	struct trace_event ev; /* the next one, if HAS */
	bool has;
	int64_t at_ns;            /* its time */
	int64_t wall_ns;          /* to be added to the file's times */
	int64_t begun_ns;         /* of Berth: when its clock was compared, */
	uint64_t offset_ns;       /* and the result */
	long rank;                /* -1: not known */
	char *job, *host;         /* of Berth; or NULL */
	char *label;              /* sound within quotes of JSON */
	uint32_t pid[TRACE_PIDS]; /* of the merged file, for RAW */
	int64_t raw[TRACE_PIDS];
	size_t pids;
	uint64_t slices;
};

/* Up to its first event with a time, which is in S then; NAMED gets the others.  0, or
 * -1 with E. */
typedef void trace_named(void *ctx, struct trace_source *s,
			 const struct trace_event *ev);
int trace_source_open(struct trace_source *s, const struct trace_input *in, size_t most,
		      struct err *e);
int trace_source_begin(struct trace_source *s, trace_named *named, void *ctx,
		       struct err *e);
/* The event after that in S, and its time.  NAMED gets those without a time. */
int trace_source_next(struct trace_source *s, trace_named *named, void *ctx,
		      struct err *e);
/* AT_NS of the file as a time of the merged one. */
int64_t trace_source_time(const struct trace_source *s, int64_t at_ns);
void trace_source_free(struct trace_source *s);

#endif
