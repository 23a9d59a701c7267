/* Each message of the launcher has a function here. */
#include <limits.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/health.h"
#include "agent/pmi/pmix_folder.h"
#include "agent/ranks/dump.h"
#include "agent/ranks/hung.h"
#include "agent/ranks/procs.h"
#include "common/job.h"

/* ---- app and job ---- */

/* F into M, from a copy that stays until the job is forgotten. */
static int unpack_copy(struct agent *a, const struct wire_frame *f, void *m,
		       struct err *e)
{
	char *copy;

	a->frames_bytes += f->n;
	if (a->frames_bytes > WIRE_JOB_BYTES_MAX) {
		err_set(e, E_WIRE, "job larger than its limit");
		return -1;
	}
	copy = xmalloc(f->n + 1);
	memcpy(copy, f->payload, f->n);
	strv_take(&a->frames, copy);
	return wire_unpack(f->type, m, copy, f->n, e);
}

static int on_app(struct agent *a, const struct wire_frame *f, struct err *e)
{
	struct wire_app m;

	if (a->job)
		return err_set(e, E_WIRE, "'app' message during a job");
	if (unpack_copy(a, f, &m, e))
		return -1;
	a->app = xreallocarray(a->app, a->napp + 1, sizeof *a->app);
	a->app[a->napp++] = m;
	if (m.index != a->napp - 1)
		return err_set(e, E_WIRE, "malformed 'app' message");
	return 0;
}

/* Every list of the job is as long as its ranks, every choice exists, and every app is
 * here. */
static bool job_is_sound(const struct agent *a, const struct wire_job *j)
{
	size_t n = j->ranks.n;

	if (!n || n > j->np || n > WIRE_HOST_MAX || j->np > WIRE_RANKS_MAX ||
	    j->apps.n != n || j->cross_ranks.n != n || j->cross_sizes.n != n ||
	    !*j->job_id || j->epoch <= a->epoch || j->key.n != WIRE_KEY_BYTES)
		return false;
	if (j->bind_to > BIND_HWTHREAD || j->share > SHARE_MACHINE ||
	    j->gpu_visible > VISIBLE_INHERIT || j->gpu_id > GPU_ID_UUID)
		return false;
	for (size_t i = 0; i < n; i++)
		if (j->apps.v[i] >= a->napp || j->ranks.v[i] >= j->np)
			return false;
	for (size_t i = 0; i < a->napp; i++)
		if (!a->app[i].argv.n && !(j->flags & JOB_PLAN))
			return false; /* only a plan needs no program */
	return true;
}

/* The job may have more ranks and hosts than before: all of them are told. */
static int on_host_map(struct agent *a, const struct wire_frame *f, struct err *e)
{
	struct wire_host_map m;
	int rc = wire_unpack_host_map(&m, f->payload, f->n, e);

	if (rc)
		return -1;
	if (a->job && m.epoch == a->job->epoch && m.hosts.n >= a->job->np &&
	    m.hosts.n <= WIRE_RANKS_MAX && m.names.n) {
		a->job->np = (uint32_t)m.hosts.n;
		a->job->nodes = (uint32_t)m.names.n;
	}
	wire_free_host_map(&m);
	return 0;
}

static int on_job(struct agent *a, const struct wire_frame *f, struct err *e)
{
	struct wire_job m;

	if (a->job)
		return err_set(e, E_WIRE, "'job' message during a job");
	if (unpack_copy(a, f, &m, e))
		return -1;
	if (!job_is_sound(a, &m)) {
		wire_free_job(&m);
		return err_set(e, E_WIRE, "malformed 'job' message");
	}
	health_end(a);
	a->job = xmalloc(sizeof *a->job);
	*a->job = m;
	a->epoch = m.epoch;
	a->stream.patience_ms = m.host_timeout_ms;
	if (m.master_port != a->port.number)
		port_release(&a->port);
	if (!a->xml && !(m.flags & JOB_PLAN))
		a->job_socket = procs_job_socket(m.job_id);
	ranks_begin(&a->ranks, a->base, &a->stream.out, a->job);
	ranks_window(&a->ranks, &a->window);
	agent_place(a);
	if (a->state != START_NONE && a->guarded.cgroup && !(m.flags & JOB_PLAN)) {
		/* while the launcher reads the answer */
		stream_send(&a->stream);
		ranks_enclose(&a->ranks, a->guarded.cgroup);
	}
	return 0;
}

static int on_tf_config(struct agent *a, const struct wire_frame *f, struct err *e)
{
	struct wire_tf_config m;
	bool sound;

	if (!a->job)
		return 0;
	if (unpack_copy(a, f, &m, e))
		return -1;
	sound = !a->tf_config && m.epoch == a->epoch && m.roles.n == a->job->ranks.n &&
		m.tasks.n == m.roles.n;
	for (size_t i = 0; sound && i < m.roles.n; i++)
		sound = m.roles.v[i] >= TF_OUT && m.roles.v[i] < TF_ROLES;
	if (!sound) {
		wire_free_tf_config(&m);
		return err_set(e, E_WIRE, "malformed 'tf_config' message");
	}
	a->tf_config = xmalloc(sizeof *a->tf_config);
	*a->tf_config = m;
	return 0;
}

void agent_forget_job(struct agent *a)
{
	agent_check_free(a);
	gpu_check_end(&a->check);
	monitor_end(&a->monitor);
	server_free(a->ranks.server);
	ranks_free(&a->ranks);
	placement_free(&a->placement);
	free(a->drawing);
	a->drawing = NULL;
	gpu_free(&a->chosen); /* and its claims */
	package_free(&a->packages.package);
	str_free(&a->packages.no_package);
	str_free(&a->packages.no_folder);
	if (a->job_socket >= 0)
		close(a->job_socket);
	a->job_socket = -1;
	a->state = START_NONE;
	for (size_t i = 0; i < a->napp; i++) {
		if (a->start) {
			env_base_free(&a->start[i].env);
			program_free(&a->start[i].program);
		}
		wire_free_app(&a->app[i]);
	}
	free(a->start);
	a->start = NULL;
	free(a->app);
	a->app = NULL;
	a->napp = 0;
	if (a->tf_config)
		wire_free_tf_config(a->tf_config);
	free(a->tf_config);
	a->tf_config = NULL;
	if (a->job)
		wire_free_job(a->job);
	free(a->job);
	a->job = NULL;
	strv_free(&a->frames);
	a->frames_bytes = 0;
}

/* ---- all of them ---- */

static int on_sweep(struct agent *a, const char *job_id, struct err *e)
{
	if (a->job)
		return err_set(e, E_WIRE, "'sweep' message during a job");
	if (!*job_id)
		return err_set(e, E_WIRE, "malformed 'sweep' message");
	procs_sweep_job(job_id);
	pmix_folders_sweep(); /* of the job's PMIx server, if it was killed first */
	wire_pack_cleared(&a->stream.out, &(struct wire_cleared){ .which = "" });
	return 0;
}

static int on_window(struct agent *a, const struct wire_window *m, struct err *e)
{
	if (m->rows > USHRT_MAX || m->columns > USHRT_MAX)
		return err_set(e, E_WIRE, "malformed 'window' message");
	a->window = (struct winsize){ .ws_row = (unsigned short)m->rows,
				      .ws_col = (unsigned short)m->columns };
	if (a->job)
		ranks_window(&a->ranks, &a->window);
	return 0;
}

/* The launcher sees by this that a rank hangs. */
static void say_looked(struct agent *a)
{
	const size_t n = a->ranks.n;
	struct hung_use *use = xcalloc(n + 1, sizeof *use);
	uint32_t *v = xcalloc(7 * n + 1, sizeof *v);
	const struct wire_looked m = { .epoch = a->epoch,
				       .states = { v, n },
				       .cpu_ms = { v + n, n },
				       .kib = { v + 2 * n, n },
				       .numbers = { v + 3 * n, n },
				       .pending = { v + 4 * n, n },
				       .lives = { v + 5 * n, n },
				       .late_ms = { v + 6 * n, n } };

	hung_look(&a->ranks, use);
	for (size_t i = 0; i < n; i++) {
		v[i] = (unsigned char)use[i].state;
		v[n + i] = (uint32_t)use[i].cpu_ms;
		v[2 * n + i] = (uint32_t)(use[i].bytes / 1024);
		server_progress(a->ranks.server, i, &v[3 * n + i], &v[4 * n + i]);
		v[5 * n + i] = a->ranks.v[i].life;
		v[6 * n + i] = (uint32_t)use[i].late_ms;
	}
	wire_pack_looked(&a->stream.out, &m);
	free(use);
	free(v);
}

/* A message of another epoch came too late. */
#define TAKE_JOB(name, call) WIRE_TAKE(name, if (a->job && m.epoch == a->epoch) call)

int agent_take(struct agent *a, const struct wire_frame *f, struct err *e)
{
	struct ranks *r = &a->ranks;
	struct wire_heartbeat beat = { .clock_ns = clock_ns() };
	int rc = 0;

	switch (f->type) {
	case WIRE_app:
		return on_app(a, f, e);
	case WIRE_job:
		return on_job(a, f, e);
	case WIRE_tf_config:
		return on_tf_config(a, f, e);
	case WIRE_host_map:
		if (on_host_map(a, f, e))
			return -1;
		/* fall through */
	case WIRE_exchange_data:
	case WIRE_exchange_failed:
	case WIRE_modex_request:
	case WIRE_modex_data:
	case WIRE_found:
	case WIRE_event:
	case WIRE_world:
	case WIRE_wanted:
	case WIRE_lost:
	case WIRE_missing:
		return a->job ? server_frame(a->ranks.server, f, e) : 0;
		TAKE_JOB(query, (say_looked(a), rc = server_frame(r->server, f, e)))
		TAKE_JOB(hung, hung_end(r, m.rank, m.life))
		TAKE_JOB(dump, dump_begin(r))
		TAKE_JOB(start, m.life ? agent_start_again(a, &m) : agent_start(a, &m))
		TAKE_JOB(check, agent_check(a, &m))
		TAKE_JOB(input, rc = io_input(&r->io, m.data.p, m.data.n, e))
		TAKE_JOB(credit, io_credit(&r->io, m.bytes))
		TAKE_JOB(stop, ranks_stop(r, m.grace_ms))
		WIRE_TAKE(signal, if (a->job && m.signo > 0 && m.signo <= 64)
					  ranks_signal(r, (int)m.signo, m.tree))
		WIRE_TAKE(window, rc = on_window(a, &m, e))
		WIRE_TAKE(suspend, a->stream.suspended = true)
		WIRE_TAKE(resume, a->stream.suspended = false)
		WIRE_TAKE(heartbeat, beat.echo_ns = m.clock_ns;
			  wire_pack_heartbeat(&a->stream.out, &beat))
		WIRE_TAKE(health, rc = health_begin(a, &m, e))
		WIRE_TAKE(sweep, rc = on_sweep(a, m.job_id, e))
		WIRE_TAKE(shutdown, a->done = true)
	default:
		break; /* wire_next_from() lets no other through */
	}
	return rc;
}
