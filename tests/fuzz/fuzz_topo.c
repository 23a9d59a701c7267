/* libFuzzer on topo.h: the input as an hwloc XML file; ranks are placed on what it
 * describes. */
#include "fuzz.h"

#include <hwloc.h>
#include <signal.h>
#include <sys/wait.h>

#include "agent/placement/gpu.h"
#include "agent/placement/place.h"

/* hwloc's parser does not free what it had when it gives a file up. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:hwloc_";
}

/* The library's parser crashes on some files, which harms only the user that wrote the
 * file: ours is what comes after it.  So it has a try in a child. */
static bool hwloc_survives(const uint8_t *data, size_t size)
{
	char *text = xstrndup((const char *)data, size);
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		hwloc_topology_t h;
		int fd = open("/dev/null", O_WRONLY);

		dup2(fd, 2);
		signal(SIGSEGV, SIG_DFL);
		signal(SIGABRT, SIG_DFL);
		signal(SIGFPE, SIG_DFL);
		alarm(5);
		hwloc_topology_init(&h);
		hwloc_topology_set_io_types_filter(h, HWLOC_TYPE_FILTER_KEEP_ALL);
		if (!hwloc_topology_set_xmlbuffer(h, text, (int)strlen(text) + 1))
			hwloc_topology_load(h);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	free(text);
	return !status;
}

static void place(const struct topo *t, struct gpus *g, size_t n, enum bind_to to)
{
	struct place_options o = { to, 1, (enum share)(n % 3), false };
	struct placement p = { 0 };
	struct err e = { 0 };

	if (place_ranks(&p, t, g, n, &o, &e)) {
		if (!e.id || e.id == E_PLACE)
			abort();
		return;
	}
	for (size_t i = 0; i < n; i++)
		if (!cpuset_count(&p.v[i].cpus) ||
		    !cpuset_within(&p.v[i].cpus, &t->allowed) ||
		    p.v[i].gpu >= (int)g->n)
			abort();
	placement_free(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct gpu_sources from = { .root = "" };
	struct topo t;
	struct gpus g = { 0 };
	struct err e = { 0 };

	setenv("HWLOC_HIDE_ERRORS", "2", 1);
	setenv("HWLOC_PLUGINS_PATH", "", 1);
	if (memmem(data, size, "<!--", 4) || !hwloc_survives(data, size))
		return 0;
	if (topo_load(&t, fuzz_file(data, size), &e)) {
		if (e.id != E_TOPOLOGY)
			abort();
		return 0;
	}
	gpu_find(&g, &t, &from);
	for (int to = BIND_AUTO; to <= BIND_HWTHREAD; to++)
		for (size_t n = 1; n < 8; n += 3)
			place(&t, &g, n, (enum bind_to)to);
	gpu_free(&g);
	topo_free(&t);
	return 0;
}
