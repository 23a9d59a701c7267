#include "launcher/insight/verdict.h"

#include <stdlib.h>
#include <string.h>

#include "common/str.h"
#include "launcher/insight/format.h"
#include "launcher/insight/past.h"
#include "launcher/output/events.h"

/* A rule speaks only of ranks of which so much is known. */
#define KNOWN_S 2.0
enum { SMALL_BYTES = 64 << 10 /* of an operation */ };
enum { KNOWN_OPS = 10, KNOWN_POINTS = 4, KNOWN_SAMPLES = 4, KNOWN_DIPS = 5 };

#define SLOW_LEAST 0.08 /* of a step, that a slow rank costs */
#define SLOW_BLIND 0.15 /* the same, without samples */
#define SLOW_OFTEN 0.6  /* of its points show it */
#define CAUSE_LEAST 0.5 /* of the difference between ranks */
#define CONTENDED_LEAST 0.15
#define WORK_LEAST 1.1 /* times the CPU time of the others */
#define MOVED_OFTEN 0.3
#define INPUT_LEAST 0.15
#define LOADER_LEAST 0.2 /* of a CPU */
#define READ_LEAST 1e6   /* bytes a second */
#define TALK_LEAST 0.25
#define LINK_LEAST 0.1 /* of the time, in collectives */
#define LINK_TIMES 2   /* as long as the link would take */
#define SLOWED_OFTEN 0.2
#define GPU_BUSY 0.9    /* from here on nothing is said */
#define GPU_IDLE 0.8    /* below, there is something to gain */
#define DIPS_UNLIKE 0.4 /* deviation of the times between them, of their mean */
#define DIPS_OFTEN 20   /* seconds: so close together they need not be alike */
#define BUSY_THREAD 0.9 /* of the time: it does nothing but launch */
#define GPU_FULL 0.97
#define GPU_FILL 0.9
#define GPU_ROOM 0.6
#define GPU_UNLIKE 0.1
#define SCALING_LEAST 0.85 /* of linear */
#define MEMORY_LEAST 0.05  /* of the time some process waits for memory */

/* ---- findings ---- */

/* "rank 3 on 'n2'", "ranks 0-3,7". */
static void verdict_ranks(struct str *out, const struct look *l,
			  const struct finding *f)
{
	const bool one = rank_set_count(&f->ranks) == 1;
	uint32_t first = 0;

	str_add(out, one ? "rank " : "ranks ");
	rank_set_print(out, &f->ranks);
	if (one && rank_set_first(&f->ranks, 0, &first))
		str_addf(out, " on '%s'", l->rank[first].host);
}

static uint32_t first_of(const struct finding *f)
{
	uint32_t first = 0;

	rank_set_first(&f->ranks, 0, &first);
	return first;
}

/* ---- shares ---- */

/* Where the time of a rank's main thread goes; together 1. */
struct shares {
	double main, delay, idle, blocked;
	double threads;  /* CPUs that its other threads use */
	double children; /* and its children */
	double read;     /* bytes a second */
	bool sampled;
};

static double part_of(double x)
{
	return x < 0 ? 0 : x > 1 ? 1 : x;
}

static double smaller_of(double a, double b)
{
	return a < b ? a : b;
}

static bool verdict_knows(const struct sums *s)
{
	return s->ops_s >= KNOWN_S && s->ops >= KNOWN_OPS;
}

static struct shares shares_of(const struct sums *s)
{
	struct shares a = { .blocked = s->ops_s > 0 ? part_of(s->blocked_s / s->ops_s)
						    : 0 };

	if (s->use_s < KNOWN_S)
		return a;
	a.sampled = true;
	a.main = part_of(s->main_s / s->use_s);
	a.delay = part_of(s->delay_s / s->use_s);
	a.idle = part_of(1 - a.main - a.delay - a.blocked);
	a.threads = s->cpu_s > s->main_s ? (s->cpu_s - s->main_s) / s->use_s : 0;
	a.children = s->children_s / s->use_s;
	a.read = s->read_bytes / s->use_s;
	return a;
}

/* The mean of the ranks of L that F is not about. */
static struct shares shares_of_others(const struct look *l, const struct finding *f)
{
	struct shares sum = { 0 };
	double n = 0;

	for (uint32_t i = 0; i < l->record->nranks; i++) {
		const struct sums *s = &l->record->rank[i].sums;
		struct shares a;

		if (rank_set_has(&f->ranks, i) || !verdict_knows(s))
			continue;
		a = shares_of(s);
		sum.main += a.main;
		sum.delay += a.delay;
		sum.idle += a.idle;
		sum.blocked += a.blocked;
		sum.threads += a.threads;
		sum.children += a.children;
		sum.read += a.read;
		n++;
	}
	if (n > 0) {
		sum.main /= n;
		sum.delay /= n;
		sum.idle /= n;
		sum.blocked /= n;
		sum.threads /= n;
		sum.children /= n;
		sum.read /= n;
	}
	return sum;
}

/* ---- a slow rank ---- */

/* A rank's own part of its time. */
struct own {
	uint32_t rank;
	double share;
};

static int more_own(const void *a, const void *b)
{
	const struct own *x = a, *y = b;

	return (x->share < y->share) - (x->share > y->share);
}

/* The part of the points in which each of F's ranks waited less than each other one; 1
 * if there are none to tell. */
static double how_often(const struct look *l, const struct finding *f)
{
	uint32_t points = UINT32_MAX, often = 0, n = 0;

	for (uint32_t i = 0; i < l->record->nranks; i++)
		if (verdict_knows(&l->record->rank[i].sums) &&
		    l->record->rank[i].strip.n < points)
			points = l->record->rank[i].strip.n;
	if (points == UINT32_MAX || points < KNOWN_POINTS)
		return 1;
	for (uint32_t at = 0; at < points; at++) {
		float slow = 0, others = 1;
		bool all = true;

		for (uint32_t i = 0; i < l->record->nranks; i++) {
			const struct rank_record *r = &l->record->rank[i];
			const bool it = rank_set_has(&f->ranks, i);
			const struct point *p;

			if (!verdict_knows(&r->sums))
				continue;
			p = &r->strip.v[at];
			all &= p->ops > 0;
			if (it && p->blocked > slow)
				slow = p->blocked;
			if (!it && p->blocked < others)
				others = p->blocked;
		}
		n += all;
		often += all && slow < others;
	}
	return n ? (double)often / n : 1;
}

/* The ranks above the largest gap between the own times of two neighbours, if they are
 * at most half of all. */
static double find_slow(const struct look *l, struct finding *f)
{
	struct own *own = xcalloc(l->record->nranks, sizeof *own);
	double gap = 0;
	size_t n = 0, slow = 0;

	for (uint32_t i = 0; i < l->record->nranks; i++)
		if (verdict_knows(&l->record->rank[i].sums))
			own[n++] = (struct own){
				i, 1 - shares_of(&l->record->rank[i].sums).blocked
			};
	qsort(own, n, sizeof *own, more_own);
	for (size_t i = 1; i <= n / 2; i++)
		if (own[i - 1].share - own[i].share > gap) {
			gap = own[i - 1].share - own[i].share;
			slow = i;
		}
	for (size_t i = 0; i < slow; i++)
		rank_set_add(&f->ranks, own[i].rank);
	if (slow)
		gap = own[0].share - own[slow].share;
	free(own);
	return gap;
}

/* The part of the time in which a rank that could run had no CPU.  A rank that computes
 * longer waits longer for it, too, so this tells whose CPUs are contended. */
static double slow_contention(const struct shares *a)
{
	return a->main + a->delay > 0 ? a->delay / (a->main + a->delay) : 0;
}

/* Append why the ranks with shares A are slower than the OTHERS; returns what to do.
 * NULL: no cause is as large as the difference, which is one of chance. */
static const char *slow_why(struct str *out, const struct rank_record *rank,
			    const struct shares *a, const struct shares *others)
{
	const double gap = others->blocked - a->blocked;

	if (a->idle - others->idle > CAUSE_LEAST * gap) {
		str_addf(out,
			 "; it waited outside of libberth %.0f %% of the time (others "
			 "%.0f)",
			 100 * a->idle, 100 * others->idle);
		if (a->read > READ_LEAST)
			str_addf(out, ", reading %.0f MB/s", a->read / 1e6);
		if (a->children <= LOADER_LEAST)
			return "look at what it reads: a slow disk, a lock";
		str_addf(out, ", its %u children used %.1f CPUs", rank->children,
			 a->children);
		return "give its data loader more CPUs, or more workers";
	}
	if (slow_contention(a) - slow_contention(others) > CONTENDED_LEAST &&
	    a->delay - others->delay > CAUSE_LEAST * gap) {
		str_addf(out,
			 "; it could run, and had no CPU, %.0f %% of the time (others "
			 "%.0f)",
			 100 * a->delay, 100 * others->delay);
		return rank->moved ? "let the program keep the CPUs of its berth"
				   : "look for other processes on its CPUs, or a CPU "
				     "quota";
	}
	if (a->main < WORK_LEAST * others->main)
		return NULL;
	str_addf(out, "; it computes %.0f %% of the time (others %.0f)", 100 * a->main,
		 100 * others->main);
	if (others->threads > 0.3 && a->threads < others->threads / 2) {
		str_addf(out, ", with %.1f CPUs (others %.1f)", a->main + a->threads,
			 others->main + others->threads);
		return "give it as many threads: OMP_NUM_THREADS";
	}
	return "give it less work, or look for a slow core";
}

/* Append how long others wait for F's ranks, of which RANK is one. */
static void slow_cost(struct str *out, const struct look *l, const struct finding *f,
		      const struct rank_record *rank, double blocked)
{
	const char *it = rank_set_count(&f->ranks) > 1 ? "them" : "it";
	const struct sums *s = &rank->sums;

	verdict_ranks(out, l, f);
	if (s->steps > 0)
		str_addf(out, ": others wait for %s %.1f ms of each step of %.1f ms",
			 it, 1000 * blocked * s->ops_s / s->steps,
			 1000 * s->ops_s / s->steps);
	else
		str_addf(out, ": others wait for %s %.0f %% of the time", it,
			 100 * blocked);
}

static bool rule_slow(struct finding *f, const struct look *l)
{
	const struct rank_record *rank;
	const char *advice = "--monitor shows why";
	struct rank_set slower = { 0 };
	struct shares a, others;
	struct past past;
	struct str text = { 0 };

	f->gain = find_slow(l, f);
	if (f->gain <= 0)
		return false;
	rank = &l->record->rank[first_of(f)];
	a = shares_of(&rank->sums);
	others = shares_of_others(l, f);
	if (f->gain < (a.sampled ? SLOW_LEAST : SLOW_BLIND) ||
	    how_often(l, f) < SLOW_OFTEN)
		return false;
	slow_cost(&text, l, f, rank, others.blocked);
	if (a.sampled)
		advice = slow_why(&text, rank, &a, &others);
	if (!l->crowded && past_find(&past, &slower, l->record) &&
	    rank_set_equal(&slower, &f->ranks)) {
		str_add(&text, "; more than before for the last ");
		format_time(&text, past.since_s);
	}
	rank_set_free(&slower);
	f->text = str_take(&text);
	f->advice = advice ? xstrdup(advice) : NULL;
	return advice;
}

/* A rank is slower than it was itself, and others follow it.  Where that lasts, it is a
 * slow rank, which says so. */
static bool rule_past(struct finding *f, const struct look *l)
{
	struct part_of_step more;
	struct past p;
	struct str text = { 0 };

	if (l->crowded || !past_find(&p, &f->ranks, l->record))
		return false;
	more = (struct part_of_step){ .all = p.now.all - p.then.all,
				      .own = p.now.own - p.then.own,
				      .main = p.now.main - p.then.main,
				      .delay = p.now.delay - p.then.delay };
	f->gain = more.all / p.now.all;
	verdict_ranks(&text, l, f);
	str_add(&text, ": slower than before for the last ");
	format_time(&text, p.since_s);
	str_addf(&text,
		 ": a step takes %.1f ms, it took %.1f; without the wait for others "
		 "%.1f ms, it was %.1f",
		 1000 * p.now.all, 1000 * p.then.all, 1000 * p.now.own,
		 1000 * p.then.own);
	if (more.delay > CAUSE_LEAST * more.own) {
		str_add(&text, "; it has no CPU for what is more");
		f->advice = xstrdup("look for other processes on its CPUs, or a CPU "
				    "quota");
	} else if (more.main > CAUSE_LEAST * more.own) {
		str_add(&text, "; it computes longer");
		f->advice = xstrdup("look for a core with a lower clock, or work that "
				    "grows there alone");
	} else {
		str_add(&text, "; it waits longer outside of libberth");
		f->advice = xstrdup("look at its disk, its GPU's clocks, and locks");
	}
	f->text = str_take(&text);
	return true;
}

/* ---- bindings ---- */

static bool rule_binding(struct finding *f, const struct look *l)
{
	const struct rank_record *first = NULL;
	struct str text = { 0 };

	for (uint32_t i = 0; i < l->record->nranks; i++) {
		const struct rank_record *r = &l->record->rank[i];
		const uint32_t points = r->strip.n * r->strip.samples;

		if (!r->moved || r->points < MOVED_OFTEN * points)
			continue;
		first = first ? first : r;
		rank_set_add(&f->ranks, i);
	}
	if (!first)
		return false;
	verdict_ranks(&text, l, f);
	str_addf(&text, ": the program changed %s CPUs, from %s to %s",
		 rank_set_count(&f->ranks) > 1 ? "their" : "its",
		 l->rank[first_of(f)].bound, first->moved);
	f->text = str_take(&text);
	f->advice = xstrdup("look for taskset, OMP_PROC_BIND, KMP_AFFINITY, "
			    "GOMP_CPU_AFFINITY in the program");
	return true;
}

/* ---- input ---- */

/* All ranks wait outside of libberth, and something shows that they wait for data. */
static bool rule_input(struct finding *f, const struct look *l)
{
	struct str text = { 0 };
	struct shares sum = { 0 };
	double n = 0, idle = 1;
	uint32_t children = 0;

	for (uint32_t i = 0; i < l->record->nranks; i++) {
		const struct sums *s = &l->record->rank[i].sums;
		const struct shares a = shares_of(s);

		if (s->use_s < KNOWN_S || l->record->rank[i].strip.n < KNOWN_POINTS)
			continue;
		n++;
		idle = smaller_of(idle, a.idle);
		sum.children += a.children;
		sum.read += s->disk_bytes / s->use_s;
		children += l->record->rank[i].children;
	}
	if (n < 1 || idle < INPUT_LEAST ||
	    (sum.children / n < LOADER_LEAST && sum.read / n < READ_LEAST))
		return false;
	f->gain = idle;
	str_addf(&text, "each rank waits %.0f %% of the time outside of libberth",
		 100 * idle);
	if (sum.children / n >= LOADER_LEAST)
		str_addf(&text, "; %u loader process%s used %.1f CPUs together",
			 children, children == 1 ? "" : "es", sum.children);
	else
		str_addf(&text, ", and reads %.0f MB/s from a disk",
			 sum.read / n / 1e6);
	f->text = str_take(&text);
	f->advice = xstrdup(sum.children / n >= LOADER_LEAST
				    ? "more workers, or more CPUs for them: --bind-to "
				      "socket"
				    : "a faster disk, or a cache of the data");
	return true;
}

/* ---- collectives ---- */

/* The rank that waits least in collectives: what it waits is no wait for a slow rank,
 * but their own time.  NULL: there are no two of them, or they wait for CPUs. */
static const struct sums *least_talking(double *least, const struct look *l)
{
	const struct sums *s = NULL;
	double n = 0;

	*least = 1;
	if (l->crowded)
		return NULL;
	for (uint32_t i = 0; i < l->record->nranks; i++) {
		const struct shares a = shares_of(&l->record->rank[i].sums);

		if (!verdict_knows(&l->record->rank[i].sums))
			continue;
		if (a.delay > 0.1) /* it waits for a CPU, and others for it */
			return NULL;
		if (!s || a.blocked < *least) {
			s = &l->record->rank[i].sums;
			*least = a.blocked;
		}
		n++;
	}
	return s && n >= 2 && s->steps >= KNOWN_OPS ? s : NULL;
}

/* The hosts of a job, and the slowest of their links. */
struct links {
	uint32_t hosts;
	double mbit; /* 0: unknown */
	const char *slowest;
};

static struct links links_of(const struct look *l)
{
	struct rank_set seen = { 0 };
	struct links a = { 0 };
	bool known = true;

	for (uint32_t i = 0; i < l->record->nranks; i++) {
		const uint32_t at = l->rank[i].at;
		double mbit;

		if (rank_set_has(&seen, at) || at >= l->record->nhosts)
			continue;
		rank_set_add(&seen, at);
		a.hosts++;
		mbit = l->record->host[at].last.link_mbit;
		known &= mbit > 0;
		if (!a.slowest || mbit < a.mbit) {
			a.mbit = mbit;
			a.slowest = l->host[at];
		}
	}
	rank_set_free(&seen);
	a.mbit = known ? a.mbit : 0;
	return a;
}

/* Collectives take longer than the slowest link would: what n hosts reduce passes it
 * 2(n-1)/n times. */
static bool rule_network(struct finding *f, const struct look *l)
{
	const struct links a = links_of(l);
	double least, bits, ideal_s, took_s;
	const struct sums *s = least_talking(&least, l);

	if (!s || a.hosts < 2 || a.mbit <= 0 || least < LINK_LEAST || s->bytes <= 0)
		return false;
	bits = 8 * s->bytes / s->steps * 2 * (a.hosts - 1) / a.hosts;
	took_s = least * s->ops_s / s->steps;
	ideal_s = bits / a.mbit / 1e6;
	if (took_s < LINK_TIMES * ideal_s)
		return false;
	f->gain = least * (1 - ideal_s / took_s);
	f->text = xasprintf(
		"each rank waits at least %.1f ms of each step of %.1f ms in "
		"collectives: %.1f MB and %.0f operations between %u "
		"hosts, at %.2f Gbit/s; the slowest link, of '%s', has %.4g "
		"Gbit/s, and would take %.1f ms",
		1000 * took_s, 1000 * s->ops_s / s->steps, s->bytes / s->steps / 1e6,
		s->ops / s->steps, a.hosts, bits / took_s / 1e9, a.slowest,
		a.mbit / 1000, 1000 * ideal_s);
	f->advice =
		xstrdup(s->bytes < SMALL_BYTES * s->ops
				? "fewer and larger operations"
				: "look at which network is used (--net, --check), and "
				  "for other traffic");
	return true;
}

static bool rule_talk(struct finding *f, const struct look *l)
{
	double least;
	const struct sums *s = least_talking(&least, l);

	if (!s || least < TALK_LEAST)
		return false;
	f->gain = least;
	f->text = xasprintf(
		"each rank waits at least %.0f %% of the time in collectives: "
		"%.1f MB and %.0f operations a step of %.1f ms",
		100 * least, s->bytes / s->steps / 1e6, s->ops / s->steps,
		1000 * s->ops_s / s->steps);
	f->advice = xstrdup("a larger batch, or fewer and larger operations");
	return true;
}

/* ---- GPUs ---- */

/* The clocks of a GPU were lower than they can be, for heat or power. */
static bool rule_clocks(struct finding *f, const struct look *l)
{
	const struct rank_record *worst = NULL;
	struct str text = { 0 };
	double most = 0;

	for (uint32_t i = 0; i < l->record->nranks; i++) {
		const struct rank_record *r = &l->record->rank[i];
		const double n = r->sums.gpu_samples;

		if (n < KNOWN_SAMPLES || r->sums.slowed < SLOWED_OFTEN * n)
			continue;
		rank_set_add(&f->ranks, i);
		if (r->sums.slowed / n > most) {
			most = r->sums.slowed / n;
			worst = r;
		}
	}
	if (!worst)
		return false;
	verdict_ranks(&text, l, f);
	str_addf(
		&text,
		": heat or power lowered the clocks of the GPU %.0f %% of the time, to "
		"%.0f %% of the highest",
		100 * most, 100 * worst->sums.clock / worst->sums.gpu_samples);
	f->text = str_take(&text);
	f->advice = xstrdup("tell the admins: cooling, power supply; use other GPUs "
			    "meanwhile");
	return true;
}

/* Append what the main threads of F's ranks do meanwhile; returns what to do. */
static const char *idle_gpu_why(struct str *out, const struct look *l,
				const struct finding *f)
{
	struct shares sum = { 0 };
	double n = 0;

	for (uint32_t i = 0; rank_set_first(&f->ranks, i, &i); i++) {
		const struct shares a = shares_of(&l->record->rank[i].sums);

		sum.main += a.main;
		sum.blocked += a.blocked;
		sum.children += a.children;
		n++;
	}
	if (sum.main / n >= BUSY_THREAD) {
		str_addf(out, "; the main thread computes %.0f %% of it",
			 100 * sum.main / n);
		return "larger batches, torch.compile or CUDA graphs, so that it "
		       "launches "
		       "less";
	}
	if (sum.blocked / n >= TALK_LEAST) {
		str_addf(out, "; the main thread waits for other ranks %.0f %% of it",
			 100 * sum.blocked / n);
		return "larger batches, or fewer and larger operations";
	}
	if (sum.children / n >= LOADER_LEAST) {
		str_addf(out, "; loader processes use %.1f CPUs a rank",
			 sum.children / n);
		return "more workers, or more CPUs for them: --bind-to socket";
	}
	return "larger batches; look for the input and for what runs on the CPU";
}

/* The seconds from one dip of the GPU of RANK to the next; 0: there are few, or it is
 * not one time. */
static double dips_period(const struct rank_record *rank)
{
	const struct dips *d = &rank->dips;
	double period, variance;

	if (d->n < KNOWN_DIPS)
		return 0;
	period = d->apart_s / (d->n - 1);
	variance = d->squares / (d->n - 1) - period * period;
	return period <= DIPS_OFTEN ||
			       variance <= DIPS_UNLIKE * DIPS_UNLIKE * period * period
		       ? period
		       : 0;
}

/* Append how often the GPU of that of F's ranks that shows it best does little, if it
 * does so regularly. */
static void gpu_dips(struct str *out, const struct look *l, const struct finding *f)
{
	const struct dips *d;
	double period = 0;
	uint32_t worst = 0;

	for (uint32_t i = 0; rank_set_first(&f->ranks, i, &i); i++) {
		const double its = dips_period(&l->record->rank[i]);

		if (its > 0 && (period <= 0 || its < period)) {
			period = its;
			worst = i;
		}
	}
	if (period <= 0)
		return;
	d = &l->record->rank[worst].dips;
	str_add(out, "; below 50 % each ");
	format_time(out, period);
	str_add(out, ", for ");
	format_time(out, d->low_s / d->n);
}

/* GPUs that are busy, but for regular dips: a note. */
static bool rule_dips(struct finding *f, const struct look *l)
{
	struct str text = { 0 };
	double busy = 0, n = 0;

	for (uint32_t i = 0; i < l->record->nranks; i++) {
		const struct rank_record *r = &l->record->rank[i];

		if (r->sums.gpu < GPU_BUSY * r->sums.gpu_samples || !dips_period(r))
			continue;
		rank_set_add(&f->ranks, i);
		busy += r->sums.gpu / r->sums.gpu_samples;
		n++;
	}
	if (n < 1)
		return false;
	verdict_ranks(&text, l, f);
	str_addf(&text, ": the GPU is busy %.0f %% of the time", 100 * busy / n);
	gpu_dips(&text, l, f);
	f->text = str_take(&text);
	f->advice =
		xstrdup("look for what comes as often: a checkpoint, an evaluation, "
			"a log, a pause of the input");
	return true;
}

static bool rule_gpu(struct finding *f, const struct look *l)
{
	struct str text = { 0 };
	double busy = 0, power = 0, n = 0;

	for (uint32_t i = 0; i < l->record->nranks; i++) {
		const struct sums *s = &l->record->rank[i].sums;

		if (s->gpu_samples < KNOWN_SAMPLES ||
		    s->gpu >= GPU_BUSY * s->gpu_samples)
			continue;
		rank_set_add(&f->ranks, i);
		busy += s->gpu / s->gpu_samples;
		power += s->power / s->gpu_samples;
		n++;
	}
	if (n < 1)
		return false;
	verdict_ranks(&text, l, f);
	str_addf(&text,
		 ": the GPU is busy %.0f %% of the time, at %.0f %% of its power",
		 100 * busy / n, 100 * power / n);
	gpu_dips(&text, l, f);
	f->advice = xstrdup(idle_gpu_why(&text, l, f));
	if (busy / n < GPU_IDLE) /* between the two: a note */
		f->gain = 1 - busy / n;
	f->text = str_take(&text);
	return true;
}

/* Memory of GPUs: too full, too empty, or unlike. */
static bool rule_gpu_memory(struct finding *f, const struct look *l)
{
	double least = 1, most = 0;
	uint32_t odd = 0;

	for (uint32_t i = 0; i < l->record->nranks; i++) {
		const struct rank_record *r = &l->record->rank[i];
		double full;

		if (r->sums.gpu_samples < KNOWN_SAMPLES || !r->gpu.total_bytes)
			continue;
		full = (double)r->gpu_peak_bytes / (double)r->gpu.total_bytes;
		odd = full > most ? i : odd;
		most = full > most ? full : most;
		least = smaller_of(least, full);
	}
	if (most <= 0 ||
	    (most >= GPU_ROOM && most <= GPU_FULL && most - least <= GPU_UNLIKE))
		return false;
	if (most <= GPU_FULL && most - least <= GPU_UNLIKE) {
		f->text = xasprintf("the memory of the GPUs was at most %.0f %% full",
				    100 * most);
		f->advice = xasprintf("a batch %.1f times as large", GPU_FILL / most);
		return true;
	}
	rank_set_add(&f->ranks, odd);
	f->text = xasprintf(
		"rank %u on '%s': the memory of its GPU was %.0f %% full; the "
		"emptiest was %.0f %%",
		odd, l->rank[odd].host, 100 * most, 100 * least);
	f->advice = xstrdup(most > GPU_FULL
				    ? "a smaller batch, before one is too large"
				    : "look at what that rank keeps more than others");
	return true;
}

/* ---- memory ---- */

static bool rule_memory(struct finding *f, const struct look *l)
{
	for (size_t i = 0; i < l->record->nhosts; i++) {
		const struct host_record *h = &l->record->host[i];
		const double s = (double)(h->last.clock_ns - h->first.clock_ns) / 1e9;
		const double stalled =
			(double)(h->last.memory_us - h->first.memory_us) / 1e6;

		if (!h->known || s < KNOWN_S || stalled < MEMORY_LEAST * s)
			continue;
		f->gain = part_of(stalled / s);
		f->text = xasprintf("a host waited for memory %.0f %% of the time",
				    100 * stalled / s);
		f->advice =
			xstrdup("fewer ranks or loaders a host, or smaller batches");
		return true;
	}
	return false;
}

/* ---- scaling ---- */

/* With more ranks the same command takes fewer steps a second.  Each rank does the same
 * work a step; where they share it, there are more steps, and nothing is said. */
static bool rule_scaling(struct finding *f, const struct look *l)
{
	enum { RANKS_LEAST = 12 };
	const uint32_t np = l->record->nranks;
	const double steps = ledger_steps(l->record, KNOWN_S);
	const double part = l->fewest.np ? steps / l->fewest.steps : 1;

	if (np < RANKS_LEAST || l->crowded || steps <= 0 || part >= SCALING_LEAST)
		return false;
	f->gain = 1 - part;
	f->text = xasprintf("%u ranks take %.3g steps/s, %u took %.3g: %.1f times the "
			    "work of one rank, %.0f %% of linear; 85 %% is good",
			    np, steps, l->fewest.np, l->fewest.steps, np * part,
			    100 * part);
	f->advice = xstrdup("what is named above; larger batches, or fewer and larger "
			    "operations");
	return true;
}

/* ---- what is missing ---- */

/* Hosts whose agents dropped samples, the worst by name; NULL: there are none. */
static char *verdict_missing(const struct look *l)
{
	const struct host_record *worst = NULL;
	const char *name = "";
	size_t lagged = 0;
	struct str text = { 0 };

	for (size_t i = 0; i < l->record->nhosts; i++) {
		const struct host_record *h = &l->record->host[i];

		if (!h->dropped)
			continue;
		lagged++;
		if (worst && h->dropped <= worst->dropped)
			continue;
		worst = h;
		name = l->host[i];
	}
	if (!worst)
		return NULL;
	str_addf(&text, "host '%s' lagged: %ju samples of %ju are missing", name,
		 (uintmax_t)worst->dropped,
		 (uintmax_t)(worst->dropped + worst->samples));
	if (lagged > 1)
		str_addf(&text, ", and some of %zu more host%s", lagged - 1,
			 str_plural(lagged - 1));
	return str_take(&text);
}

/* ---- the whole ---- */

/* Rules in order.  UNLESS: no finding if that rule has one about the same ranks. */
static const struct {
	const char *name, *unless;
	bool (*rule)(struct finding *f, const struct look *l);
} rules[] = {
	{ "SLOW RANK", "", rule_slow },
	{ "SLOWER RANK", "SLOW RANK", rule_past },
	{ "BINDING", "", rule_binding },
	{ "GPU CLOCKS", "", rule_clocks },
	{ "INPUT", "", rule_input },
	{ "GPU", "", rule_gpu },
	{ "GPU DIPS", "", rule_dips },
	{ "NETWORK", "", rule_network },
	{ "COLLECTIVES", "NETWORK", rule_talk },
	{ "SCALING", "", rule_scaling },
	{ "MEMORY", "", rule_memory },
	{ "GPU MEMORY", "", rule_gpu_memory },
};

static void finding_free(struct finding *f)
{
	rank_set_free(&f->ranks);
	free(f->text);
	free(f->advice);
}

/* Names of hosts, and lists of CPUs, may have any length. */
static void verdict_cut(char **text)
{
	struct str cut = { 0 };

	format_cut(&cut, *text);
	free(*text);
	*text = str_take(&cut);
}

void verdict_make(struct verdict *v, const struct look *l)
{
	*v = (struct verdict){ .missing = verdict_missing(l) };
	for (uint32_t i = 0; i < l->record->nranks; i++) {
		const struct sums *s = &l->record->rank[i].sums;

		v->looked |= s->use_s >= KNOWN_S || verdict_knows(s);
	}
	for (size_t i = 0;
	     v->looked && v->n < VERDICT_MOST && i < sizeof rules / sizeof *rules;
	     i++) {
		struct finding f = { .rule = rules[i].name };
		bool found = rules[i].rule(&f, l);

		for (size_t k = 0; k < v->n; k++)
			found &= strcmp(v->v[k].rule, rules[i].unless) != 0 ||
				 !rank_set_equal(&f.ranks, &v->v[k].ranks);
		if (found) {
			verdict_cut(&f.text);
			verdict_cut(&f.advice);
			v->v[v->n++] = f;
		} else
			finding_free(&f);
	}
}

void verdict_free(struct verdict *v)
{
	for (size_t i = 0; i < v->n; i++)
		finding_free(&v->v[i]);
	v->n = 0;
	free(v->missing);
	v->missing = NULL;
}

void verdict_text(struct str *out, const struct verdict *v)
{
	if (v->missing)
		str_addf(out, "\n  %s", v->missing);
	if (!v->looked)
		return;
	if (!v->n)
		str_add(out, "\n  verdict: nothing to improve was found");
	for (size_t i = 0; i < v->n; i++) {
		const struct finding *f = &v->v[i];

		str_addf(out, "\n  %s: %s", f->rule, f->text);
		if (f->gain > 0)
			str_addf(out, " (a step would take %.0f %% less)",
				 100 * f->gain);
		str_addf(out, ". Try: %s", f->advice);
	}
}

void verdict_json(struct str *out, const struct verdict *v)
{
	str_add(out, "[");
	for (size_t i = 0; i < v->n; i++) {
		const struct finding *f = &v->v[i];

		str_addf(out, "%s{\"gain\": %.3f, \"ranks\": [", i ? ", " : "",
			 f->gain);
		for (uint32_t r = 0; rank_set_first(&f->ranks, r, &r); r++)
			str_addf(out, "%s%u", r > first_of(f) ? ", " : "", r);
		str_add(out, "]");
		json_text(out, "rule", f->rule);
		json_text(out, "text", f->text);
		json_text(out, "try", f->advice);
		str_add(out, "}");
	}
	str_add(out, "]");
}
