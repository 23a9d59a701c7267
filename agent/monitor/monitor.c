#include "agent/monitor/monitor.h"

#include <event2/event.h>

#include "agent/monitor/host_use.h"
#include "agent/monitor/proc_use.h"
#include "common/loop.h"

enum { LAG_BYTES = 256 << 10 };

static void sample_rank(const struct monitor *m, size_t local)
{
	const struct ranks *r = m->ranks;
	const pid_t joined = server_tell_ops(r->server, local);
	struct wire_rank_use w = { .epoch = r->job->epoch, .rank = r->v[local].rank };
	struct proc_use u;
	pid_t pid = 0;

	if (joined && proc_use_read(&u, "", joined))
		pid = joined;
	if (!pid)
		pid = proc_use_worker(&u, "", r->v[local].pid);
	if (!pid)
		return;
	w.pid = (uint32_t)pid;
	w.clock_ns = clock_ns();
	w.main_us = u.main_us;
	w.cpu_us = u.cpu_us;
	w.delay_us = u.delay_us;
	w.resident_bytes = u.resident_bytes;
	w.read_bytes = u.read_bytes;
	w.written_bytes = u.written_bytes;
	w.disk_bytes = u.disk_bytes;
	w.sleeps = u.sleeps;
	w.preempted = u.preempted;
	w.threads = u.threads;
	w.children = u.children;
	w.children_us = u.children_us;
	w.state = u.state;
	w.cpus = u.cpus;
	wire_pack_rank_use(m->out, &w);
}

void monitor_sample(struct monitor *m)
{
	struct wire_host_use w = { .epoch = m->ranks->job->epoch,
				   .clock_ns = clock_ns(),
				   .dropped = m->dropped,
				   .link_mbit = m->link_mbit };

	if (m->out->len > LAG_BYTES) {
		m->dropped++;
		return;
	}
	m->dropped = 0;
	for (size_t i = 0; i < m->ranks->n; i++)
		if (m->ranks->v[i].state == RANK_RUNNING)
			sample_rank(m, i);
	host_use_read(&w, "");
	wire_pack_host_use(m->out, &w);
}

static void monitor_on_timer(evutil_socket_t fd, short what, void *ctx)
{
	struct monitor *m = ctx;

	(void)fd;
	(void)what;
	monitor_sample(m);
	loop_after_ms(m->timer, m->period_ms);
}

void monitor_begin(struct monitor *m, struct event_base *base, struct buf *out,
		   const struct ranks *r, const struct gpus *g,
		   const struct placement *p)
{
	if (!r->job->monitor_ms || m->timer)
		return;
	*m = (struct monitor){ .out = out,
			       .ranks = r,
			       .period_ms = r->job->monitor_ms,
			       .link_mbit = host_link_mbit("") };
	m->timer = event_new(base, -1, 0, monitor_on_timer, m);
	loop_after_ms(m->timer, m->period_ms);
	gpu_use_begin(&m->gpus, base, out, r->job, g, p);
}

void monitor_end(struct monitor *m)
{
	if (m->timer)
		event_free(m->timer);
	gpu_use_end(&m->gpus);
	*m = (struct monitor){ 0 };
}
