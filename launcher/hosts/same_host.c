#include "launcher/hosts/same_host.h"

enum { NAMES_MOST = 8, MACHINES_MOST = 8 }; /* in the message */

/* One host, and its place among all. */
struct place {
	const char *name, *machine;
	size_t at, first; /* first: of the hosts on this machine */
};

static int by_machine(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	const int c = strcmp(x->machine, y->machine);

	return c ? c : (x->at > y->at) - (x->at < y->at);
}

static int by_first(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
				    : (x->at > y->at) - (x->at < y->at);
}

/* Keep of V, sorted by machine, the hosts on a machine with another one.  Returns their
 * number. */
static size_t keep_same(struct place *v, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0, end; i < n; i = end) {
		const size_t first = v[i].at; /* V[i] may be written over */

		for (end = i + 1; end < n && !strcmp(v[i].machine, v[end].machine);)
			end++;
		for (size_t k = i; end - i > 1 && k < end; k++) {
			v[kept] = v[k];
			v[kept++].first = first;
		}
	}
	return kept;
}

/* "'n1', 'n2' and 'n3'" of N names, or "'n1', ... and 9 more". */
static void add_names(struct str *out, const struct place *v, size_t n)
{
	const size_t shown = n > NAMES_MOST ? NAMES_MOST - 1 : n;

	for (size_t i = 0; i < shown; i++)
		str_addf(out, "%s'%s'",
			 !i                             ? ""
			 : i + 1 == shown && shown == n ? " and "
							: ", ",
			 v[i].name);
	if (shown < n)
		str_addf(out, " and %zu more", n - shown);
}

int same_host_check(const struct host *const *hosts, size_t n, struct err *e)
{
	struct place *v = xcalloc(n, sizeof *v);
	struct str text = { 0 };
	size_t known = 0, machines = 0;

	for (size_t i = 0; i < n; i++)
		if (hosts[i]->machine && *hosts[i]->machine)
			v[known++] = (struct place){ hosts[i]->name, hosts[i]->machine,
						     i, 0 };
	qsort(v, known, sizeof *v, by_machine);
	known = keep_same(v, known);
	qsort(v, known, sizeof *v, by_first);
	for (size_t i = 0, end; i < known; i = end, machines++) {
		for (end = i + 1; end < known && v[end].first == v[i].first;)
			end++;
		if (machines == MACHINES_MOST)
			str_add(&text, "; and others");
		if (machines >= MACHINES_MOST)
			continue;
		str_add(&text, machines ? "; " : "");
		add_names(&text, v + i, end - i);
	}
	free(v);
	if (machines)
		err_set(e, E_SAME_HOST, str_text(&text));
	str_free(&text);
	return machines ? -1 : 0;
}
