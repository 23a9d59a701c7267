/* nccl_rig.h - lines of NCCL's log, written for tests of what is made of them.  The
 * user includes check.h before. */
#ifndef BERTH_TESTS_NCCL_RIG_H
#define BERTH_TESTS_NCCL_RIG_H

#include <stdio.h>

#include "launcher/output/nccl_pairs.h"

static struct nccl_pairs *pairs;

static void rig_setup(void)
{
	pairs = nccl_pairs_open();
}

static void rig_teardown(void)
{
	nccl_pairs_free(pairs);
}

/* Job rank RANK on HOST prints that line; NCCL_NO_RANK: a process of HOST, in a
 * file. */
static void says(uint32_t rank, const char *host, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void says(uint32_t rank, const char *host, const char *format, ...)
{
	const bool in_file = rank == NCCL_NO_RANK;
	const struct nccl_origin from = { rank, in_file ? NULL : host };
	struct nccl_line l;
	struct str line = { 0 };
	va_list ap;
	char *text;

	va_start(ap, format);
	text = xvasprintf(format, ap);
	va_end(ap);
	str_addf(&line, "%s:%u:1 [0] NCCL INFO %s", in_file ? host : "box", 100, text);
	nccl_line_read(&l, line.s, line.len);
	nccl_pairs_add(pairs, &from, &l);
	free(text);
	str_free(&line);
}

/* It is rank OWN of N in communicator ID, with GPU DEV. */
static void joins(uint32_t rank, const char *host, uint32_t own, uint32_t n,
		  unsigned dev, unsigned id)
{
	for (int i = 0; i < 2; i++)
		says(rank, host,
		     "comm 0x%x rank %u nranks %u cudaDev 0 nvmlDev %u busId %x000 "
		     "commId 0x%x - Init %s",
		     id << 8, own, n, dev, dev + 1, id, i ? "COMPLETE" : "START");
}

/* The row of these two hosts, or NULL; "" for both: of many hosts. */
static inline const struct nccl_row *row(const char *a, const char *b,
					 enum nccl_way way)
{
	for (size_t i = 0; i < pairs->nrows; i++) {
		const struct nccl_row *r = &pairs->row[i];
		const char *x = "", *y = "";

		if (r->host[0] != NCCL_NO_RANK) {
			x = pairs->host[r->host[0]].name;
			y = pairs->host[r->host[1]].name;
		}
		if (r->way == way && ((!strcmp(a, x) && !strcmp(b, y)) ||
				      (!strcmp(a, y) && !strcmp(b, x))))
			return r;
	}
	return NULL;
}

static inline uint64_t channels_of(const char *a, const char *b, enum nccl_way way)
{
	const struct nccl_row *r = row(a, b, way);

	return r ? r->channels : 0;
}

#endif
