#include "agent/monitor/gpu_use.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "agent/placement/nvml.h"
#include "common/loop.h"

enum { DEVICES_MOST = 64, PCIE_MS = 10000, LAG_BYTES = 256 << 10 };

/* ---- the child ---- */

/* A rank's GPU. */
struct watched {
	const struct nvml_device *device;
	uint32_t rank;
	uint64_t pcie_bytes;
};

static void pack_gpu(struct buf *out, struct nvml *nvml, uint32_t epoch,
		     const struct watched *w)
{
	struct nvml_state s;
	struct wire_gpu_use m = { .epoch = epoch, .rank = w->rank };

	nvml_state(nvml, w->device, &s);
	m.clock_ns = clock_ns();
	m.busy = s.busy;
	m.used_bytes = s.used_bytes;
	m.total_bytes = s.total_bytes;
	m.power_mw = s.power_mw;
	m.cap_mw = s.cap_mw;
	m.sm_mhz = s.sm_mhz;
	m.sm_most_mhz = s.sm_most_mhz;
	m.celsius = s.celsius;
	m.slowed = s.slowed;
	m.ecc_errors = s.ecc_errors;
	m.pcie_bytes = w->pcie_bytes;
	wire_pack_gpu_use(out, &m);
}

/* Frames of W[0..N) to stdout, until nobody reads it. */
static void __attribute__((noreturn))
gpu_use_child(const struct wire_job *job, struct watched *w, size_t n,
	      struct nvml *nvml)
{
	const struct timespec period = { job->monitor_ms / 1000,
					 (long)(job->monitor_ms % 1000) * 1000000 };
	uint64_t pcie_ms = 0;
	struct buf out = { 0 };

	for (;;) {
		const bool pcie = clock_ms() >= pcie_ms;

		if (pcie)
			pcie_ms = clock_ms() + PCIE_MS;
		for (size_t i = 0; i < n; i++) {
			if (pcie)
				w[i].pcie_bytes = nvml_pcie_bytes(nvml, w[i].device);
			pack_gpu(&out, nvml, job->epoch, &w[i]);
		}
		while (out.len) {
			const ssize_t sent =
				write(STDOUT_FILENO, buf_head(&out), out.len);

			if (sent < 0 && errno != EINTR)
				_exit(0);
			buf_drop(&out, sent > 0 ? (size_t)sent : 0);
		}
		nanosleep(&period, NULL);
	}
}

static void __attribute__((noreturn))
gpu_use_ask(int fd, const struct wire_job *job, const struct gpus *g,
	    const struct placement *p)
{
	static struct nvml_device d[DEVICES_MOST];
	struct watched *w = xcalloc(p->n, sizeof *w);
	struct nvml *nvml;
	char why[256];
	size_t n, watched = 0;

	prctl(PR_SET_PDEATHSIG, (long)SIGKILL, 0L, 0L, 0L);
	signal(SIGPIPE, SIG_DFL);
	/* the end of a stream of the agent must not wait for this process */
	dup2(fd, STDOUT_FILENO);
	dup2(STDERR_FILENO, STDIN_FILENO);
	closefrom(STDERR_FILENO + 1);
	nvml = nvml_open(why, sizeof why);
	n = nvml ? nvml_devices(nvml, d, DEVICES_MOST) : 0;
	for (size_t i = 0; i < p->n; i++) {
		const int gpu = p->v[i].gpu;

		w[watched].rank = job->ranks.v[i];
		w[watched].device = NULL;
		for (size_t k = 0; gpu >= 0 && k < n; k++)
			if (!g->v[gpu].mig && nvml_is_gpu(&d[k], &g->v[gpu]))
				w[watched].device = &d[k];
		watched += w[watched].device != NULL; /* NVML tells nothing of MIG */
	}
	if (!watched)
		_exit(0);
	gpu_use_child(job, w, watched, nvml);
}

/* ---- the agent ---- */

void gpu_use_end(struct gpu_use *u)
{
	if (!u->readable)
		return;
	event_free(u->readable);
	close(u->fd);
	buf_free(&u->in);
	*u = (struct gpu_use){ 0 };
}

/* Whole frames alone: the agent's own come in between. */
static void gpu_use_on_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct gpu_use *u = ctx;
	char bytes[4096];
	const ssize_t n = read(fd, bytes, sizeof bytes);
	struct wire_frame f;
	struct err e;
	long whole;

	(void)what;
	if (n < 0 && errno == EINTR)
		return;
	if (n <= 0) {
		gpu_use_end(u);
		return;
	}
	buf_add(&u->in, bytes, (size_t)n);
	while ((whole = wire_next_from(WIRE_AGENT, &f, buf_head(&u->in), u->in.len,
				       &e)) > 0) {
		if (u->out->len <= LAG_BYTES)
			buf_add(u->out, buf_head(&u->in), (size_t)whole);
		buf_drop(&u->in, (size_t)whole);
	}
}

void gpu_use_begin(struct gpu_use *u, struct event_base *base, struct buf *out,
		   const struct wire_job *job, const struct gpus *g,
		   const struct placement *p)
{
	bool nvidia = false;
	int fd[2];
	pid_t pid;

	for (size_t i = 0; i < g->n; i++)
		nvidia |= g->v[i].vendor == GPU_NVIDIA;
	if (!nvidia || u->readable || pipe2(fd, O_CLOEXEC))
		return;
	pid = fork();
	if (!pid)
		gpu_use_ask(fd[1], job, g, p);
	close(fd[1]);
	if (pid < 0) {
		close(fd[0]);
		return;
	}
	*u = (struct gpu_use){ .out = out, .fd = fd[0] };
	u->readable =
		event_new(base, fd[0], EV_READ | EV_PERSIST, gpu_use_on_readable, u);
	loop_watch(u->readable);
}
