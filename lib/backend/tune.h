/* tune.h - how a reduction over connections is done: the cheapest way by a model of
 * three numbers.  All ways combine in one order (pairwise.h), so the bits are the same.
 *
 * A message of N bytes takes LATENCY_US + N * US_PER_BYTE.  If the data that come are
 * reduced, it takes N / 22 GB/s more.  A rank sends and receives at the same time.  For
 * P ranks, with L = log2 of the power of 2 in P:
 *
 *     double  recursive doubling           L messages of N
 *     halve   recursive halving, doubling  2 L messages, 2 N (P - 1) / P bytes
 *     direct  parts to their reducers,     2 (P - 1) messages, as many bytes, in the
 *             results to all               time of 2 and MESSAGE_US for each
 *
 * If P is not a power of 2, the first two send N once more, to and fro.  The last has
 * to agree beforehand, but the others agree on their way.  Partial sums of narrow types
 * are wider than the elements that direct sends.  The method: Thakur, Rabenseifner,
 * Gropp, "Optimization of Collective Communication Operations in MPICH" (2005).
 *
 * All ranks have to choose the same way, so they put in the same numbers. */
#ifndef BERTH_LIB_TUNE_H
#define BERTH_LIB_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tune_algorithm { TUNE_DOUBLE, TUNE_HALVE, TUNE_DIRECT, TUNE_ALGORITHMS };

enum { TUNE_LANES = 4, TUNE_RANGES = 4 };

/* The user's choice for each range of sizes, in ascending order. */
struct tune_choices {
	unsigned n;
	struct {
		enum tune_algorithm algorithm;
		uint64_t most; /* bytes of the result */
	} range[TUNE_RANGES];
};

struct tune_numbers {
	double latency_us, us_per_byte;
	/* Time that each of several messages at a time adds.  If ranks share cores, it
	 * is more than the work for a message. */
	double message_us;
	/* US_PER_BYTE of a message over TUNE_LANES connections.  0: not known. */
	double lanes_us_per_byte;
	struct tune_choices choices; /* above the last range the model decides */
};

/* One reduction. */
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

/* A guess, before anything has been measured (25 us, 1 GB/s). */
extern const struct tune_numbers tune_guess;

double tune_cost_us(const struct tune_numbers *t, enum tune_algorithm algorithm,
		    const struct tune_work *w);
struct tune_plan tune_choose(const struct tune_numbers *t, const struct tune_work *w);
/* For a reduce to one rank.  TUNE_DOUBLE stands for a tree. */
enum tune_algorithm tune_choose_reduce(const struct tune_numbers *t,
				       const struct tune_work *w);

/* Writes the choices for 8 bytes to 1 GiB of f32 to TEXT of SIZE, one line each, with
 * the costs.  Returns the length of the text, as snprintf() does. */
size_t tune_table(char *text, size_t size, const struct tune_numbers *t,
		  unsigned ranks);
const char *tune_algorithm_name(enum tune_algorithm algorithm);

/* TEXT: "double:64K,halve:8M,direct", with at most TUNE_RANGES ranges.  The last one
 * may have no size.  False: TEXT is not such a text. */
bool tune_read(struct tune_choices *c, const char *text);

#endif
