#include "launcher/insight/record.h"

#include <stdlib.h>

#include "common/str.h"

enum { STRIPS_BYTES = 48 << 20 /* of all ranks together */ };

void record_open(struct record *r, uint32_t nranks, size_t nhosts, uint32_t period_ms)
{
	*r = (struct record){ .period_ms = period_ms };
	record_grow(r, nranks, nhosts);
}

void record_grow(struct record *r, uint32_t nranks, size_t nhosts)
{
	const size_t room = STRIPS_BYTES / sizeof(struct point) / (nranks + 1) & ~1u;

	if (nranks > r->nranks) {
		r->rank = xreallocarray(r->rank, nranks, sizeof *r->rank);
		memset(r->rank + r->nranks, 0, (nranks - r->nranks) * sizeof *r->rank);
		for (uint32_t i = r->nranks; i < nranks; i++)
			r->rank[i].strip.most = room > STRIP_MOST    ? STRIP_MOST
						: room < STRIP_LEAST ? STRIP_LEAST
								     : (uint32_t)room;
		r->nranks = nranks;
	}
	if (nhosts > r->nhosts) {
		r->host = xreallocarray(r->host, nhosts, sizeof *r->host);
		memset(r->host + r->nhosts, 0, (nhosts - r->nhosts) * sizeof *r->host);
		r->nhosts = nhosts;
	}
}

void record_free(struct record *r)
{
	for (uint32_t i = 0; i < r->nranks; i++) {
		free(r->rank[i].strip.v);
		free(r->rank[i].moved);
		large_free(&r->rank[i].large);
	}
	free(r->rank);
	free(r->host);
	*r = (struct record){ 0 };
}

/* ---- strips ---- */

/* A and B, one after the other, as one. */
static struct point point_join(const struct point *a, const struct point *b)
{
	const float all_s = a->span_s + b->span_s;
	struct point p = { .span_s = all_s,
			   .resident_gib = a->resident_gib > b->resident_gib
						   ? a->resident_gib
						   : b->resident_gib };

	if (all_s <= 0)
		return p;
#define MEAN(field) p.field = (a->field * a->span_s + b->field * b->span_s) / all_s
	MEAN(main);
	MEAN(cpu);
	MEAN(delay);
	MEAN(blocked);
	MEAN(children);
	MEAN(read_mb);
	MEAN(steps);
	MEAN(ops);
	MEAN(reduced_mb);
	MEAN(gpu);
	MEAN(power);
	MEAN(gpu_gib);
#undef MEAN
	return p;
}

static void strip_add(struct strip *s, const struct point *p)
{
	if (!s->v) {
		s->v = xcalloc(s->most, sizeof *s->v);
		s->samples = 1;
	}
	s->next = s->pending ? point_join(&s->next, p) : *p;
	if (++s->pending < s->samples)
		return;
	s->pending = 0;
	if (s->n == s->most) {
		for (uint32_t i = 0; i < s->n / 2; i++)
			s->v[i] = point_join(&s->v[2 * i], &s->v[2 * i + 1]);
		s->n /= 2;
		s->samples *= 2;
	}
	s->v[s->n++] = s->next;
}

/* ---- samples ---- */

static double record_passed(uint64_t now, uint64_t then)
{
	return now > then ? (double)(now - then) : 0;
}

/* The rates from the last sample to M. */
static struct point point_of(const struct rank_record *rank,
			     const struct wire_rank_use *m)
{
	const struct wire_rank_use *old = &rank->use;
	const struct wire_rank_ops *done = &rank->done, *before = &rank->sampled;
	const double s = record_passed(m->clock_ns, old->clock_ns) / 1e9;
	const bool same = done->init_round == before->init_round;
	struct point p = { .span_s = (float)s,
			   .resident_gib = (float)m->resident_bytes / (1 << 30) };

	p.gpu = rank->gpu.total_bytes && rank->gpu.busy <= 100
			? (float)rank->gpu.busy / 100
			: -1;
	p.power = rank->gpu.cap_mw ? (float)rank->gpu.power_mw / (float)rank->gpu.cap_mw
				   : 0;
	p.gpu_gib = (float)rank->gpu.used_bytes / (1 << 30);
	if (s <= 0)
		return p;
	p.main = (float)(record_passed(m->main_us, old->main_us) / 1e6 / s);
	p.cpu = (float)(record_passed(m->cpu_us, old->cpu_us) / 1e6 / s);
	p.delay = (float)(record_passed(m->delay_us, old->delay_us) / 1e6 / s);
	p.children = (float)(record_passed(m->children_us, old->children_us) / 1e6 / s);
	p.read_mb = (float)(record_passed(m->read_bytes, old->read_bytes) / 1e6 / s);
	if (!same)
		return p;
	p.blocked =
		(float)(record_passed(done->blocked_us, before->blocked_us) / 1e6 / s);
	p.steps = (float)(record_passed(done->steps, before->steps) / s);
	p.ops = (float)(record_passed(done->ops, before->ops) / s);
	p.reduced_mb = (float)(record_passed(done->bytes, before->bytes) / 1e6 / s);
	return p;
}

struct point record_use(struct record *r, const struct wire_rank_use *m,
			const char *bound, int64_t now_ns)
{
	struct rank_record *rank = &r->rank[m->rank];
	const bool known = bound && *bound && *m->cpus;
	const bool moved = known && strcmp(bound, m->cpus);
	struct sums *s = &rank->sums;
	struct point p = { 0 };

	if (rank->use.pid == m->pid && m->clock_ns > rank->use.clock_ns) {
		p = point_of(rank, m);
		strip_add(&rank->strip, &p);
		rank->strip.covers_s += (double)p.span_s;
		s->use_s += (double)p.span_s;
		s->main_s += (double)p.main * (double)p.span_s;
		s->cpu_s += (double)p.cpu * (double)p.span_s;
		s->delay_s += (double)p.delay * (double)p.span_s;
		s->children_s += (double)p.children * (double)p.span_s;
		s->read_bytes += record_passed(m->read_bytes, rank->use.read_bytes);
		s->disk_bytes += record_passed(m->disk_bytes, rank->use.disk_bytes);
	}
	if (rank->use.pid && rank->use.pid != m->pid && now_ns > rank->seen_ns &&
	    rank->strip.gaps < GAPS_MOST)
		rank->strip.gap[rank->strip.gaps++] =
			(struct gap){ .at_s = rank->strip.covers_s,
				      .s = (double)(now_ns - rank->seen_ns) / 1e9 };
	rank->seen_ns = now_ns;
	rank->points += moved;
	if (!moved || !rank->moved || strcmp(rank->moved, m->cpus)) {
		free(rank->moved);
		rank->moved = moved ? xstrdup(m->cpus) : NULL;
	}
	if (m->resident_bytes > rank->peak_bytes)
		rank->peak_bytes = m->resident_bytes;
	rank->threads = m->threads;
	rank->children = m->children;
	rank->pid = m->pid;
	rank->state = *m->state;
	rank->use = *m;
	rank->use.state = rank->use.cpus = ""; /* the frame's */
	rank->sampled = rank->done;
	return p;
}

void record_ops(struct record *r, const struct wire_rank_ops *m)
{
	struct rank_record *rank = &r->rank[m->rank];
	const struct wire_rank_ops none = { .last_ns = m->first_ns },
				   *old = rank->done.init_round == m->init_round &&
							  rank->done.epoch ==
								  m->epoch &&
							  rank->done.ops <= m->ops
						  ? &rank->done
						  : &none;
	struct sums *s = &rank->sums;

	s->ops_s += record_passed(m->last_ns, old->last_ns) / 1e9;
	s->blocked_s += record_passed(m->blocked_us, old->blocked_us) / 1e6;
	s->ops += record_passed(m->ops, old->ops);
	s->steps += record_passed(m->steps, old->steps);
	s->bytes += record_passed(m->bytes, old->bytes);
	rank->done = *m;
}

/* The GPU of RANK, whose last sample was OLD, is so busy now. */
static void dips_add(struct dips *d, const struct wire_gpu_use *old,
		     const struct wire_gpu_use *m)
{
	enum { LOW = 50 };
	const bool low = m->busy < LOW;

	d->begun |= !low;
	if (!d->begun)
		return;
	if (d->low)
		d->low_s += record_passed(m->clock_ns, old->clock_ns) / 1e9;
	if (low && !d->low) {
		const double apart_s =
			d->n ? record_passed(m->clock_ns, d->last_ns) / 1e9 : 0;

		d->apart_s += apart_s;
		d->squares += apart_s * apart_s;
		d->last_ns = m->clock_ns;
		d->n++;
	}
	d->low = low;
}

void record_gpu(struct record *r, const struct wire_gpu_use *m)
{
	/* NVML's nvmlClocksEventReason: HwSlowdown, SwThermalSlowdown,
	 * HwThermalSlowdown, HwPowerBrakeSlowdown.  SwPowerCap is usual. */
	enum { SLOWED = 0x08 | 0x20 | 0x40 | 0x80 };
	struct rank_record *rank = &r->rank[m->rank];
	struct sums *s = &rank->sums;

	if (m->busy <= 100)
		dips_add(&rank->dips, &rank->gpu, m);
	rank->gpu = *m;
	if (m->used_bytes > rank->gpu_peak_bytes)
		rank->gpu_peak_bytes = m->used_bytes;
	if (m->busy > 100)
		return;
	s->gpu_samples++;
	s->gpu += (double)m->busy / 100;
	s->power += m->cap_mw ? (double)m->power_mw / m->cap_mw : 0;
	s->clock += m->sm_most_mhz ? (double)m->sm_mhz / m->sm_most_mhz : 1;
	s->slowed += (m->slowed & SLOWED) != 0;
}

void record_host(struct record *r, size_t host, const struct wire_host_use *m)
{
	struct host_record *h = &r->host[host];

	if (!h->known)
		h->first = *m;
	h->known = true;
	h->last = *m;
	h->samples++;
	h->dropped += m->dropped;
}

const struct point *record_now(const struct record *r, uint32_t rank)
{
	const struct strip *s = &r->rank[rank].strip;

	return s->pending ? &s->next : s->n ? &s->v[s->n - 1] : NULL;
}
