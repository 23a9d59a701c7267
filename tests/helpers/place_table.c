/* place_table.c - one placement as a table, for golden files and for checking by
 *others.
 *
 *	place_table XML NP [--share socket|home|machine] [--bind-to OBJECT[:N]]
 *		[--gpus GPU] [--reverse] [--no-gpu-sharing] [--times N]
 *
 * --reverse shuffles what discovery found before placing; --times places N times and
 *prints nanoseconds per placement instead.  Columns: local_rank gpu_pci cpus numa
 *ncores why. */
#include "agent/placement/place.h"

struct args {
	const char *xml, *gpus;
	long np, times;
	bool reverse;
	struct place_options o;
};

static int word_index(const char *word, size_t len, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strlen(names[i]) == len && !strncmp(names[i], word, len))
			return (int)i;
	fprintf(stderr, "place_table: unknown word '%s'\n", word);
	exit(2);
}

static void parse_bind(struct place_options *o, const char *text)
{
	static const char *const names[] = { BIND_TO_NAMES };
	size_t len = strcspn(text, ":");
	long count = 1;
	struct err e;

	if (text[len] && str_to_long(&count, text + len + 1, 1, 100000, &e))
		exit(2);
	o->bind_to = (enum bind_to)word_index(text, len, names, 7);
	o->bind_count = (unsigned)count;
}

static void parse(struct args *a, char **v)
{
	static const char *const shares[] = { SHARE_NAMES };
	struct err e = { 0 };

	a->xml = *v++;
	if (!*v || str_to_long(&a->np, *v++, 0, 100000, &e))
		exit(2);
	for (; *v; v++) {
		if (!strcmp(*v, "--reverse"))
			a->reverse = true;
		else if (!strcmp(*v, "--no-gpu-sharing"))
			a->o.no_gpu_sharing = true;
		else if (!v[1])
			exit(2);
		else if (!strcmp(*v, "--share"))
			a->o.share =
				(enum share)word_index(v[1], strlen(v[1]), shares, 3),
			v++;
		else if (!strcmp(*v, "--bind-to"))
			parse_bind(&a->o, *++v);
		else if (!strcmp(*v, "--gpus"))
			a->gpus = *++v;
		else if (!strcmp(*v, "--times") &&
			 !str_to_long(&a->times, *++v, 1, 1000000, &e))
			continue;
		else
			exit(2);
	}
}

static void print(const struct placement *p, const struct gpus *g)
{
	printf("# %s; idle: %s\n", p->certificate, *p->idle ? p->idle : "-");
	for (size_t i = 0; i < g->notes.n; i++)
		printf("# note: %s\n", g->notes.v[i]);
	printf("local_rank\tgpu_pci\tcpus\tnuma\tncores\twhy\n");
	for (size_t r = 0; r < p->n; r++) {
		const struct berth *b = &p->v[r];
		struct str cpus = { 0 };

		str_add_bits(&cpus, b->cpus.w, b->cpus.nwords);
		printf("%zu\t%s\t%s\t%s\t%u\t%s\n", r,
		       b->gpu < 0 ? "-" : g->v[b->gpu].pci, str_text(&cpus),
		       *b->numa ? b->numa : "-", b->ncores, b->why);
		str_free(&cpus);
	}
}

static void reverse_pci(struct topo *t)
{
	for (size_t i = 0; i + 1 < t->npci - i; i++) {
		struct topo_pci swap = t->pci[i];

		t->pci[i] = t->pci[t->npci - 1 - i];
		t->pci[t->npci - 1 - i] = swap;
	}
}

static int repeat(const struct args *a, const struct topo *t, const struct gpus *g)
{
	uint64_t start = clock_ns();

	for (long i = 0; i < a->times; i++) {
		struct placement p;
		struct err e = { 0 };

		if (place_ranks(&p, t, g, (size_t)a->np, &a->o, &e))
			return 1;
		placement_free(&p);
	}
	printf("%.0f\n", (double)(clock_ns() - start) / (double)a->times);
	return 0;
}

int main(int argc, char **argv)
{
	struct args a = { 0 };
	struct topo t;
	struct gpus g = { 0 };
	struct placement p = { 0 };
	struct err e = { 0 };
	int rc;

	if (argc < 3)
		return 2;
	parse(&a, argv + 1);
	if (topo_load(&t, a.xml, &e)) {
		err_print("place_table", &e);
		return 1;
	}
	if (a.reverse)
		reverse_pci(&t);
	gpu_find(&g, &t, &(struct gpu_sources){ 0 });
	rc = a.gpus ? gpu_select(&g, &a.gpus, 1, &e) : 0;
	if (!rc)
		rc = place_ranks(&p, &t, &g, (size_t)a.np, &a.o, &e);
	if (rc)
		err_print("place_table", &e);
	else if (a.times)
		rc = repeat(&a, &t, &g);
	else
		print(&p, &g);
	placement_free(&p);
	gpu_free(&g);
	topo_free(&t);
	return rc ? 1 : 0;
}
