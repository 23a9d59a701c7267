/* record.h - what the ranks and hosts of a job used, over time: the one record that the
 * verdict, the live line, the table and the page read.
 *
 * Agents send counters (wire.def: rank_use, rank_ops, large_ops, gpu_use, host_use).
 * The record keeps the sums of each rank over all of its lives and worlds, and a
 * strip: its rates over time, in at most STRIP_MOST points.  A strip that is full
 * halves their number, so it is bounded for a job of any length.  Times are of the
 * agents' clocks: only differences are used. */
#ifndef BERTH_LAUNCHER_INSIGHT_RECORD_H
#define BERTH_LAUNCHER_INSIGHT_RECORD_H

#include "common/wire.h"
#include "launcher/insight/large.h"

enum { STRIP_MOST = 512, STRIP_LEAST = 32 };

/* Rates of one rank over SPAN_S seconds: parts of that time (1: all of it; CPU and
 * children: of one CPU), or numbers a second. */
struct point {
	float span_s;
	float main, cpu; /* CPU of its main thread, of all threads */
	float delay;     /* its main thread had no CPU */
	float blocked;   /* its main thread waited for other ranks in libberth */
	float children;  /* CPU of its children */
	float resident_gib;
	float read_mb; /* a second */
	float steps, ops, reduced_mb;
	float gpu;   /* the GPU was busy; less than 0: unknown */
	float power; /* of what it may take */
	float gpu_gib;
};

/* A rank had no process, from one life to the next. */
struct gap {
	double at_s; /* the strip covers so much of the time before it */
	double s;
};

enum { GAPS_MOST = 32 };

struct strip {
	struct point *v;
	uint32_t n, most;
	uint32_t samples; /* of which a point is made */
	uint32_t pending; /* in the next one */
	struct point next;
	double covers_s;           /* without gaps */
	struct gap gap[GAPS_MOST]; /* the first ones */
	uint32_t gaps;
};

/* Sums of a rank.  Those of libberth begin when its first operation has ended. */
struct sums {
	double use_s; /* the time of which main to children are known */
	double main_s, cpu_s, delay_s, children_s;
	double read_bytes, disk_bytes;
	double ops_s; /* the time of which blocked to bytes are known */
	double blocked_s, ops, steps, bytes;
	double gpu_samples;       /* of which its busy time is known */
	double gpu, power, clock; /* sums of parts */
	double slowed;            /* samples with lower clocks, for heat or power */
};

/* The times when a rank's GPU did little, from its first busy sample on. */
struct dips {
	bool begun, low; /* it was busy once; it is in one now */
	uint32_t n;
	uint64_t last_ns; /* the last one began */
	double low_s;     /* all of them */
	/* sums of the times from one to the next, and of their squares */
	double apart_s, squares;
};

struct rank_record {
	struct sums sums;
	struct strip strip;
	int64_t seen_ns;     /* its last sample, by our clock */
	uint64_t peak_bytes; /* of its memory, as sampled */
	uint32_t threads, children, pid;
	char state;      /* of its main thread at the last sample; 0: none yet */
	char *moved;     /* its CPUs, if they are not those it was bound to; or NULL */
	uint32_t points; /* in which it was moved */
	/* the last counters */
	struct wire_rank_use use;
	struct wire_gpu_use gpu; /* total_bytes 0: none yet */
	uint64_t gpu_peak_bytes;
	struct dips dips;
	struct wire_rank_ops done;
	/* of `done`, at the last sample */
	struct wire_rank_ops sampled;
	struct large large; /* what it has done in libberth, by kind and size */
};

struct host_record {
	struct wire_host_use first, last;
	bool known;
	uint64_t samples; /* that came */
	uint64_t dropped; /* that did not, as the agent had earlier ones to send */
};

struct record {
	struct rank_record *rank;
	uint32_t nranks;
	struct host_record *host;
	size_t nhosts;
	uint32_t period_ms; /* --monitor; 0: off */
};

/* For ranks and hosts of these numbers.  PERIOD_MS as in `job`. */
void record_open(struct record *r, uint32_t nranks, size_t nhosts, uint32_t period_ms);
/* There are more of them now. */
void record_grow(struct record *r, uint32_t nranks, size_t nhosts);
void record_free(struct record *r); /* takes {0} */

/* A message of an agent.  BOUND: the CPUs of the rank as read back at its start, or
 * NULL.  NOW_NS: when it was sampled, by our clock: a rank may come to another host.
 * record_use() returns what is new; its span_s is 0 if that is unknown. */
struct point record_use(struct record *r, const struct wire_rank_use *m,
			const char *bound, int64_t now_ns);
void record_ops(struct record *r, const struct wire_rank_ops *m);
void record_gpu(struct record *r, const struct wire_gpu_use *m);
void record_host(struct record *r, size_t host, const struct wire_host_use *m);

/* The last point of RANK, or NULL. */
const struct point *record_now(const struct record *r, uint32_t rank);

#endif
