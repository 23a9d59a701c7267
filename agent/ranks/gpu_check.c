#include "agent/ranks/gpu_check.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/placement/nvml.h"
#include "agent/ranks/procs.h"
#include "common/loop.h"

/* Pauses grow, or looks at 2000 processes would cost 0.3 % of a core as long as no rank
 * uses a GPU (6 to 9 us for each process). */
enum { FIRST_LOOK_S = 5, LAST_LOOK_S = 80, SETTLE_S = 30 };
enum { DEVICES_MAX = 64, PROCESSES_MAX = 512, DEPTH_MAX = 64 };

/* ---- the findings ---- */

struct use {
	struct nvml *nvml;
	const struct gpus *g;
	const struct ranks *ranks;
	struct procs procs;
	bool *uses;    /* uses[rank * g->n + gpu] */
	size_t listed; /* processes that NVML listed */
	size_t ours;   /* those of them that belong to ranks */
	bool busy;     /* a GPU has memory in use */
};

/* The local rank that PID belongs to, or -1. */
static long check_rank_of(const struct use *u, pid_t pid)
{
	const struct proc *p;

	for (int depth = 0; pid > 1 && depth < DEPTH_MAX; depth++) {
		for (size_t r = 0; r < u->ranks->n; r++)
			if (u->ranks->v[r].pid == pid &&
			    u->ranks->v[r].state == RANK_RUNNING)
				return (long)r;
		p = procs_find(&u->procs, pid);
		pid = p ? p->ppid : 0;
	}
	return -1;
}

static void look_at(struct use *u, const struct nvml_device *d)
{
	struct nvml_process p[PROCESSES_MAX];
	long n = nvml_processes(u->nvml, d, p, PROCESSES_MAX);

	if (nvml_used_bytes(u->nvml, d) > (long long)1 << 30)
		u->busy = true;
	for (long i = 0; i < n; i++) {
		long rank = check_rank_of(u, p[i].pid);
		size_t gpu = 0;

		u->listed++;
		if (rank < 0)
			continue;
		u->ours++;
		while (gpu < u->g->n &&
		       (!nvml_is_gpu(d, &u->g->v[gpu]) ||
			(u->g->v[gpu].mig && u->g->v[gpu].gi != p[i].gi)))
			gpu++;
		if (gpu < u->g->n)
			u->uses[(size_t)rank * u->g->n + gpu] = true;
	}
}

static void check_add_gpu(struct str *s, const struct use *u, size_t gpu)
{
	const struct gpu *g = &u->g->v[gpu];

	str_addf(s, "GPU %d (%s)", g->index, g->mig ? g->uuid : g->pci);
}

/* Local rank R uses GPU, which is not its own. */
static char *check_describe(const struct use *u, const struct placement *p, size_t r,
			    size_t gpu)
{
	int own = p->v[r].gpu;
	bool on_own = own >= 0 && u->uses[r * u->g->n + (size_t)own];
	struct str s = { 0 };

	str_addf(&s, "rank %u %s ", u->ranks->v[r].rank,
		 on_own ? "also holds memory on" : "runs on");
	check_add_gpu(&s, u, gpu);
	for (size_t i = 0; i < u->ranks->n; i++)
		if (p->v[i].gpu == (int)gpu) {
			str_addf(&s, ", which is rank %u's", u->ranks->v[i].rank);
			break;
		}
	if (own < 0) {
		str_addf(&s, "; it was given none");
	} else {
		str_addf(&s, "%s", on_own ? "; its own is " : ", not on its own, ");
		check_add_gpu(&s, u, (size_t)own);
	}
	return str_take(&s);
}

int gpu_check_findings(struct strv *found, const struct gpu_check *c)
{
	const struct gpus *g = c->gpus;
	struct use u = { .g = g, .ranks = c->ranks };
	struct nvml_device v[DEVICES_MAX];
	bool nvidia = false;
	char why[256];
	size_t n;

	for (size_t i = 0; i < g->n; i++)
		nvidia |= g->v[i].vendor == GPU_NVIDIA;
	if (!nvidia || !c->ranks->running)
		return 0;
	u.nvml = nvml_open(why, sizeof why);
	if (!u.nvml) {
		strv_take(found,
			  xasprintf("cannot verify which GPU each rank uses: %s", why));
		return -1;
	}
	procs_load(&u.procs);
	u.uses = xcalloc(c->ranks->n * g->n, sizeof *u.uses);
	n = nvml_devices(u.nvml, v, DEVICES_MAX);
	for (size_t i = 0; i < n; i++)
		look_at(&u, &v[i]);
	for (size_t r = 0; r < c->ranks->n; r++)
		for (size_t i = 0; i < g->n; i++)
			if (u.uses[r * g->n + i] && (int)i != c->placement->v[r].gpu)
				strv_take(found,
					  check_describe(&u, c->placement, r, i));
	free(u.uses);
	procs_free(&u.procs);
	nvml_close(u.nvml);
	if (u.ours || (!u.listed && !u.busy))
		return 0;
	strv_add(found,
		 "cannot verify which GPU each rank uses: NVML shows no process of "
		 "this job, as is usual in a container");
	return -1;
}

/* ---- the first use ---- */

/* /dev/nvidia0, but neither /dev/nvidiactl nor /dev/nvidia-uvm; /dev/kfd. */
static bool is_gpu_file(const char *path)
{
	const char *name = strrchr(path, '/');

	if (!name || !strstr(path, "/dev/"))
		return false;
	name++;
	return !strcmp(name, "kfd") ||
	       (!strncmp(name, "nvidia", 6) && name[6] >= '0' && name[6] <= '9');
}

bool gpu_check_any_use(void)
{
	struct procs p;
	bool found = false;

	procs_load_below(&p);
	for (size_t i = 0; i < p.n && !found; i++)
		found = proc_has_open(p.v[i].pid, is_gpu_file);
	procs_free(&p);
	return found;
}

/* ---- when ---- */

/* The child: it answers with a line for each finding. */
static void __attribute__((noreturn)) check_ask(const struct gpu_check *c, int fd)
{
	struct strv found = { 0 };
	struct str lines = { 0 };

	prctl(PR_SET_PDEATHSIG, (long)SIGKILL, 0L, 0L, 0L);
	gpu_check_findings(&found, c);
	for (size_t i = 0; i < found.n; i++)
		str_addf(&lines, "%s\n", found.v[i]);
	_exit(write(fd, str_text(&lines), lines.len) < 0);
}

static void close_answer(struct gpu_check *c)
{
	if (!c->answer)
		return;
	event_free(c->answer);
	close(c->fd);
	c->answer = NULL;
}

static void on_answer(evutil_socket_t fd, short what, void *arg)
{
	struct gpu_check *c = arg;
	struct wire_log m = { .level = LOG_WARNING };
	char part[1024], *rest = c->lines.s;
	ssize_t n = read(fd, part, sizeof part);

	(void)what;
	if (n > 0) {
		str_addn(&c->lines, part, (size_t)n);
		return;
	}
	if (n < 0 && errno == EINTR)
		return;
	while ((m.text = strsep(&rest, "\n")))
		if (*m.text)
			wire_pack_log(c->out, &m);
	close_answer(c);
}

static void check_on_timer(evutil_socket_t none, short what, void *arg)
{
	struct gpu_check *c = arg;
	int fd[2];
	pid_t pid;

	(void)none;
	(void)what;
	if (!c->used) {
		c->used = gpu_check_any_use();
		if (c->pause_s < LAST_LOOK_S)
			c->pause_s *= 2;
		loop_after_ms(c->timer,
			      1000u * (unsigned)(c->used ? SETTLE_S : c->pause_s));
		return;
	}
	if (pipe2(fd, O_CLOEXEC))
		return;
	pid = fork();
	if (!pid)
		check_ask(c, fd[1]);
	close(fd[1]);
	if (pid < 0) {
		close(fd[0]);
		return;
	}
	c->fd = fd[0];
	c->answer = event_new(c->base, c->fd, EV_READ | EV_PERSIST, on_answer, c);
	loop_watch(c->answer);
}

void gpu_check_begin(struct gpu_check *c, struct event_base *base, struct buf *out,
		     const struct gpus *g, const struct placement *p,
		     const struct ranks *r)
{
	*c = (struct gpu_check){ .base = base,
				 .out = out,
				 .gpus = g,
				 .placement = p,
				 .ranks = r,
				 .pause_s = FIRST_LOOK_S };
	c->timer = event_new(base, -1, 0, check_on_timer, c);
	loop_after_ms(c->timer, 1000u * (unsigned)c->pause_s);
}

void gpu_check_end(struct gpu_check *c)
{
	close_answer(c);
	if (c->timer)
		event_free(c->timer);
	str_free(&c->lines);
	*c = (struct gpu_check){ 0 };
}
