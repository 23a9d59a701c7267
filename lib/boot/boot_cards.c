#include "lib/boot/boot_cards.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void boot_card_fill(struct boot_card *c, const char *host)
{
	struct stat net = { 0 };
	char boot[40] = "-";
	FILE *f;

	memset(c, 0, sizeof *c);
	if (host && *host)
		snprintf(c->host, sizeof c->host, "%s", host);
	else if (gethostname(c->host, sizeof c->host - 1))
		snprintf(c->host, sizeof c->host, "localhost");
	f = fopen("/proc/sys/kernel/random/boot_id", "re");
	if (f && fgets(boot, sizeof boot, f))
		boot[strcspn(boot, "\n")] = '\0';
	if (f)
		fclose(f);
	stat("/proc/self/ns/net", &net);
	snprintf(c->machine, sizeof c->machine, "%s/%ju", boot, (uintmax_t)net.st_ino);
}

/* ---- the world that they make ---- */

static bool same_host(const struct boot_card *a, const struct boot_card *b)
{
	return strcmp(a->host, b->host) == 0 && strcmp(a->machine, b->machine) == 0;
}

static void cards_number_hosts(struct boot_world *w, const struct boot_card *c,
			       unsigned *first)
{
	for (unsigned r = 0; r < w->size; r++) {
		unsigned h = r ? w->host[r - 1] : 0;

		if (!r || !same_host(&c[r], &c[first[h]]))
			for (h = 0; h < w->hosts; h++)
				if (same_host(&c[r], &c[first[h]]))
					break;
		if (h == w->hosts)
			first[w->hosts++] = r;
		w->host[r] = h;
	}
}

/* COUNT[host]: its ranks. */
static void count_places(struct boot_world *w, unsigned *count)
{
	unsigned mine = w->host[w->rank];

	memset(count, 0, w->hosts * sizeof *count);
	for (unsigned r = 0; r < w->size; r++) {
		if (r == w->rank)
			w->local_rank = count[mine];
		count[w->host[r]]++;
	}
	w->local_size = count[mine];
	for (unsigned h = 0; h < w->hosts; h++) {
		w->cross_rank += h < mine && count[h] > w->local_rank;
		w->cross_size += count[h] > w->local_rank;
	}
}

berth_result boot_cards_settle(struct boot_world *w, const struct boot_card *c,
			       unsigned *first)
{
	unsigned *count = calloc(w->size, sizeof *count);

	w->host = calloc(w->size, sizeof *w->host);
	if (count && w->host) {
		cards_number_hosts(w, c, first);
		count_places(w, count);
	}
	free(count);
	if (w->cross_size)
		w->host_name = calloc(w->hosts, sizeof *w->host_name);
	for (unsigned h = 0; w->host_name && h < w->hosts; h++) {
		w->host_name[h] = strdup(c[first[h]].host);
		if (!w->host_name[h])
			return BERTH_MEMORY;
	}
	return w->host_name ? BERTH_OK : BERTH_MEMORY;
}
