#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/placement/gpu.h"
#include "agent/placement/gpu_internal.h"

/* The abstract name of GPU I: its PCI address.  An instance has its UUID in place of
 * that; one of several partitions at an address has its render node, too. */
static socklen_t address_of(struct sockaddr_un *a, const struct gpus *g, size_t i)
{
	const struct gpu *gpu = &g->v[i];
	char partition[16] = "";
	int len;

	for (size_t k = 0; k < g->n; k++)
		if (k != i && !gpu->mig && !strcmp(g->v[k].pci, gpu->pci))
			snprintf(partition, sizeof partition, "/%d", gpu->minor);
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	len = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "berth/gpu/%s%s",
		       gpu->mig ? gpu->uuid : gpu->pci, partition);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

/* Name the process that listens at A.  It never accepts: the kernel tells which process
 * called listen(2). */
static void ask_holder(struct gpu *g, const struct sockaddr_un *a, socklen_t len)
{
	char program[32] = "";
	struct ucred u = { 0 };
	socklen_t size = sizeof u;
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(g->holder, sizeof g->holder, "another job");
	if (s < 0)
		return;
	if (!connect(s, (const struct sockaddr *)a, len) &&
	    !getsockopt(s, SOL_SOCKET, SO_PEERCRED, &u, &size)) {
		sys_line(program, sizeof program, "", "/proc/%d/comm", u.pid);
		if (!u.pid) /* in a PID namespace that is not above ours */
			snprintf(g->holder, sizeof g->holder, "a process of uid %u",
				 u.uid);
		else
			snprintf(g->holder, sizeof g->holder, "pid %d%s%s%s of uid %u",
				 u.pid, *program ? " (" : "", program,
				 *program ? ")" : "", u.uid);
	}
	close(s);
}

static void claim_one(struct gpus *g, size_t i)
{
	struct gpu *gpu = &g->v[i];
	struct sockaddr_un a;
	socklen_t len = address_of(&a, g, i);
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*gpu->holder = '\0';
	if (s < 0)
		return;
	/* As long a queue as the kernel allows: each process that asks stays in it. */
	if (!bind(s, (struct sockaddr *)&a, len) && !listen(s, SOMAXCONN)) {
		gpu->claim = s + 1;
		return;
	}
	if (errno == EADDRINUSE)
		ask_holder(gpu, &a, len);
	close(s);
}

void gpu_claim(struct gpus *g)
{
	struct gpu *v = xcalloc(g->n, sizeof *v);
	size_t n = 0;

	for (size_t i = 0; i < g->n; i++)
		if (!g->v[i].claim)
			claim_one(g, i);
	for (int held = 0; held < 2; held++)
		for (size_t i = 0; i < g->n; i++)
			if ((*g->v[i].holder != '\0') == held)
				v[n++] = g->v[i];
	free(g->v);
	g->v = v;
}

void gpu_claim_keep(struct gpus *g, const bool *chosen)
{
	for (size_t i = 0; i < g->n; i++) {
		if (chosen[i] || !g->v[i].claim)
			continue;
		close(g->v[i].claim - 1);
		g->v[i].claim = 0;
	}
}
