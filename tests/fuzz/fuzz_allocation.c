/* libFuzzer on allocation.h: the input is an environment, one variable a line; after an
 * empty line comes the file, or the answer of the program.  What is read obeys the
 * limits, and finds each of its own hosts. */
#include "launcher/hosts/allocation.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINES_MAX = 64 };

static void check(const struct allocation *a)
{
	size_t *at = xcalloc(a->hosts.n, sizeof *at);

	if (a->hosts.n == 0 || a->hosts.n > HOSTS_MAX || !a->slots_from)
		abort();
	if (allocation_match(at, &a->hosts, a))
		abort();
	for (size_t i = 0; i < a->hosts.n; i++) {
		const struct host_spec *h = &a->hosts.v[i];

		if (at[i] != i || !*h->name || *h->name == '-')
			abort();
		if (h->slots != SLOTS_AUTO && h->slots != SLOTS_GPUS &&
		    (h->slots < 0 || h->slots > HOST_SLOTS_MAX))
			abort();
		if (a->cpus[i] < 0 || (a->cpus[i] && !a->cpus_from))
			abort();
	}
	free(at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy = xstrndup((const char *)data, size), *rest = copy, *line;
	char *env[LINES_MAX + 1] = { NULL };
	struct allocation a;
	struct err e = { 0 };
	size_t n = 0;

	while (n < LINES_MAX && (line = strsep(&rest, "\n")) && *line)
		env[n++] = line;
	allocation_find(&a, env);
	if (a.manager == ALLOCATION_NONE) {
		if (a.hosts.n || a.cpus)
			abort();
	} else if (!allocation_read(&a, env, rest ? rest : "", &e)) {
		check(&a);
	} else if (a.hosts.v || a.cpus || !e.id || !*e.text) {
		abort();
	}
	allocation_free(&a);
	free(copy);
	return 0;
}
