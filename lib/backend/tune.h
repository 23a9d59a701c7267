/* tune.h - how a reduction over connections is done: the cheapest by a model of three
 * numbers.  All ways combine in one order (pairwise.h): the bits are the same.
 *
 * A message of N bytes takes LATENCY_US + N * US_PER_BYTE, and where what comes is
 * reduced N / 22 GB/s more; a rank sends and receives at the same time.  Of P ranks,
 * with L = log2 of the power of 2 in P:
 *
 *     double  recursive doubling           L messages of N
 *     halve   recursive halving, doubling  2 L messages, 2 N (P - 1) / P bytes
 *     direct  parts to who reduces them,   2 (P - 1) messages, as many bytes, in the
 *             results to all               time of 2 and MESSAGE_US for each
 *
 * Where P is no power of 2 the first two send N once more, to and fro, and the last
 * has to agree beforehand, which the others do on their way.  Partial sums of narrow
 * types are wider than what direct sends.  The method: Thakur, Rabenseifner, Gropp,
 * "Optimization of Collective Communication Operations in MPICH" (2005).
 *
 * All ranks have to come to the same: they put in the same numbers. */
#ifndef BERTH_LIB_TUNE_H
#define BERTH_LIB_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tune_algorithm { TUNE_DOUBLE, TUNE_HALVE, TUNE_DIRECT, TUNE_ALGORITHMS };

enum { TUNE_LANES = 4, TUNE_RANGES = 4 };

/* What the user has chosen: for each range of sizes, in ascending order. */
struct tune_choices {
	unsigned n;
	struct {
		enum tune_algorithm algorithm;
		uint64_t most; /* bytes of the result */
	} range[TUNE_RANGES];
};

struct tune_numbers {
	double latency_us, us_per_byte;
	/* What each of several messages at a time takes, where that is more than some
	 * work: ranks share cores. */
	double message_us;
	/* Of a message that goes over TUNE_LANES connections; 0: not known. */
	double lanes_us_per_byte;
	struct tune_choices choices; /* above the last range the model decides */
};

/* What is to be done. */
struct tune_work {
	unsigned ranks;
	uint64_t count; /* elements */
	/* Bytes of an element: as it is sent first, of a partial sum, of the result. */
	unsigned first, partial, result;
};

struct tune_plan {
	enum tune_algorithm algorithm;
	unsigned lanes; /* connections that a large message takes, 1 or TUNE_LANES */
};

/* A guess, where nothing has been measured: 25 us, 1 GB/s. */
extern const struct tune_numbers tune_guess;

double tune_cost_us(const struct tune_numbers *t, enum tune_algorithm algorithm,
		    const struct tune_work *w);
struct tune_plan tune_choose(const struct tune_numbers *t, const struct tune_work *w);
/* Of a reduce to one rank: TUNE_DOUBLE stands for a tree. */
enum tune_algorithm tune_choose_reduce(const struct tune_numbers *t,
				       const struct tune_work *w);

/* What is chosen for 8 bytes to 1 GiB of f32, a line each with the costs: TEXT of SIZE.
 * Its length, as snprintf() has it. */
size_t tune_table(char *text, size_t size, const struct tune_numbers *t,
		  unsigned ranks);
const char *tune_algorithm_name(enum tune_algorithm algorithm);

/* TEXT: "double:64K,halve:8M,direct", TUNE_RANGES at most; the last may have no size.
 * False: it is no such text. */
bool tune_read(struct tune_choices *c, const char *text);

#endif
