#include "agent/ranks/hung.h"

#include <event2/event.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/ranks/procs.h"
#include "common/file.h"
#include "common/loop.h"

enum { ABRT_MS = 2000 /* from ABRT to KILL: faulthandler prints all threads */ };

/* ---- what they have done ---- */

/* The number of the local rank to which each of ALL belongs, from its own or from its
 * parent's, which comes first; or r->n. */
static size_t *find_owners(const struct ranks *r, const struct procs *all)
{
	size_t *owner = xcalloc(all->n + 1, sizeof *owner);

	for (size_t i = 0; i < all->n; i++) {
		size_t k = 0;

		while (k < r->n &&
		       (r->v[k].state != RANK_RUNNING || r->v[k].pid != all->v[i].pid))
			k++;
		for (size_t up = 0; k == r->n && up < i; up++)
			if (all->v[up].pid == all->v[i].ppid)
				k = owner[up];
		owner[i] = k;
	}
	return owner;
}

/* The use of each local rank, of ALL and their OWNERs, into USE[r->n]. */
static void add_up(const struct ranks *r, const struct procs *all, const size_t *owner,
		   struct hung_use *use)
{
	memset(use, 0, r->n * sizeof *use);
	for (size_t i = 0; i < all->n; i++) {
		const struct proc *p = &all->v[i];
		struct hung_use *u = &use[owner[i]];

		if (owner[i] == r->n)
			continue;
		u->cpu_ms += proc_cpu_ms(p->pid);
		u->bytes += proc_io_bytes(p->pid);
		if (p->pid == r->v[owner[i]].pid)
			u->state =
				p->state == 'S' && ranks_is_shell(p) ? 's' : p->state;
		else if (u->state == 's') /* by the order, a child of the shell */
			u->state = p->state;
		else
			continue;
		u->pid = p->pid;
	}
	for (size_t k = 0; k < r->n; k++) {
		const struct rank_stack *s = &r->v[k].stack;
		struct hung_use *u = &use[k];

		if (u->state == 's') /* a shell without a child */
			u->state = 'S';
		/* no work of its own is that which follows from a dump */
		u->cpu_ms -= stack_cpu_ms(s);
		u->bytes -= stack_written(s);
		if ((s->asked && s->asked == u->pid && u->state == 'R') ||
		    (r->v[k].tool.pid && r->v[k].tool.of == u->pid && u->state == 't'))
			u->state = s->state;
	}
}

/* The time that each local rank had no CPU. */
static void add_late(struct ranks *r, const struct procs *all, const size_t *owner,
		     struct hung_use *use)
{
	if (late_is_due(&r->late)) {
		late_begin(&r->late, r->n);
		for (size_t k = 0; k < r->n; k++)
			if (r->v[k].state == RANK_RUNNING)
				late_cpus(&r->late, k, r->v[k].pid);
		for (size_t i = 0; i < all->n; i++)
			if (owner[i] < r->n)
				late_process(&r->late, owner[i], all->v[i].pid);
		late_end(&r->late);
	}
	for (size_t k = 0; k < r->n; k++)
		use[k].late_ms = r->late.rank[k].late_ns / 1000000;
}

void hung_look(struct ranks *r, struct hung_use *use)
{
	struct procs all;
	size_t *owner;

	procs_load_below(&all);
	owner = find_owners(r, &all);
	add_up(r, &all, owner, use);
	add_late(r, &all, owner, use);
	free(owner);
	procs_free(&all);
}

/* ---- the end of one ---- */

/* `rank 3, pid 77: state D, in folio_wait_bit_common` to the user. */
static void say_state(const struct ranks *r, const struct rank *one, char state)
{
	char path[64], where[64] = "";
	struct str text = { 0 };

	snprintf(path, sizeof path, "/proc/%d/wchan", (int)one->pid);
	file_start(path, where, sizeof where);
	str_addf(&text, "rank %u, pid %d, hangs in state %c", one->rank, (int)one->pid,
		 state ? state : '?');
	if (*where && strcmp(where, "0") != 0)
		str_addf(&text, ", in %.60s", where);
	wire_pack_log(r->out, &(struct wire_log){ .level = LOG_WARNING,
						  .id = "",
						  .text = str_text(&text),
						  .hint = "" });
	str_free(&text);
}

static void hung_kill(struct rank *one)
{
	one->kill_at_ms = 0;
	one->killed = true;
	kill(-one->pid, SIGKILL);
	kill(one->pid, SIGKILL); /* if it has left its group */
}

static void hung_on_timer(evutil_socket_t fd, short what, void *ctx)
{
	struct ranks *r = ctx;
	const uint64_t now = clock_ms();
	uint64_t next = 0;

	(void)fd;
	(void)what;
	for (size_t i = 0; i < r->n; i++) {
		struct rank *one = &r->v[i];

		if (one->state != RANK_RUNNING)
			one->kill_at_ms = 0;
		if (one->kill_at_ms && now >= one->kill_at_ms)
			hung_kill(one);
		if (one->kill_at_ms && (!next || one->kill_at_ms < next))
			next = one->kill_at_ms;
	}
	if (next)
		loop_after_ms(r->hung, next - now);
}

/* A program that takes cores from a pipe, as systemd's does, gets them also where the
 * limit is 0, and none where it is 1; a file of 1 byte is not written either. */
static void forbid_core(pid_t pid)
{
	struct rlimit l;

	if (prlimit(pid, RLIMIT_CORE, NULL, &l) || !l.rlim_max)
		return;
	l.rlim_cur = 1;
	prlimit(pid, RLIMIT_CORE, &l, NULL);
}

void hung_end(struct ranks *r, uint32_t rank, uint32_t life)
{
	struct hung_use *use;
	struct procs all;
	size_t local = 0, *owner;
	char state;

	while (local < r->n && r->v[local].rank != rank)
		local++;
	if (local == r->n || r->v[local].state != RANK_RUNNING ||
	    r->v[local].life != life || r->v[local].kill_at_ms)
		return; /* it has ended meanwhile, or ends */
	use = xcalloc(r->n, sizeof *use);
	procs_load_below(&all);
	owner = find_owners(r, &all);
	add_up(r, &all, owner, use);
	for (size_t i = 0; i < all.n; i++)
		if (owner[i] == local)
			forbid_core(all.v[i].pid);
	state = use[local].state;
	free(use);
	free(owner);
	procs_free(&all);
	say_state(r, &r->v[local], state);
	if (state == 'T' || state == 'D') {
		hung_kill(&r->v[local]);
		return;
	}
	ranks_signal_one(r, local, SIGABRT);
	ranks_signal_one(r, local, SIGCONT);
	r->v[local].kill_at_ms = clock_ms() + ABRT_MS;
	if (!r->hung)
		r->hung = event_new(r->io.base, -1, 0, hung_on_timer, r);
	hung_on_timer(-1, 0, r);
}
