/* tune.h - how an allreduce over connections is done: the cheapest by a model of two
 * numbers.
 *
 * A message of N bytes takes LATENCY_US + N * US_PER_BYTE, and where what comes is
 * reduced N / 22 GB/s more; a rank sends and receives at the same time.  Of P ranks,
 * with L = log2 of the power of 2 in P:
 *
 *     double  recursive doubling           L messages of N
 *     halve   recursive halving, doubling  2 L messages, 2 N (P - 1) / P bytes
 *     ring    reduce-scatter, allgather    2 (P - 1) messages, as many bytes
 *
 * Where P is no power of 2 the first two send N once more, to and fro, and the ring
 * has to agree beforehand, which the others do on their way.  The method: Thakur,
 * Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH"
 * (2005).
 *
 * All ranks have to come to the same: they put in the same numbers. */
#ifndef BERTH_LIB_TUNE_H
#define BERTH_LIB_TUNE_H

#include <stddef.h>
#include <stdint.h>

enum tune_algorithm { TUNE_DOUBLE, TUNE_HALVE, TUNE_RING, TUNE_ALGORITHMS };

enum { TUNE_LANES = 4 };

struct tune_numbers {
	double latency_us, us_per_byte;
	/* Of a message that goes over TUNE_LANES connections; 0: not known. */
	double lanes_us_per_byte;
};

struct tune_plan {
	enum tune_algorithm algorithm;
	unsigned lanes; /* connections that a large message takes, 1 or TUNE_LANES */
};

/* A guess, where nothing has been measured: 25 us, 1 GB/s. */
extern const struct tune_numbers tune_guess;

double tune_cost_us(const struct tune_numbers *t, enum tune_algorithm algorithm,
		    unsigned ranks, uint64_t bytes);
struct tune_plan tune_choose(const struct tune_numbers *t, unsigned ranks,
			     uint64_t bytes);

/* What is chosen for 8 bytes to 1 GiB, a line each with the costs: TEXT of SIZE.  Its
 * length, as snprintf() has it. */
size_t tune_table(char *text, size_t size, const struct tune_numbers *t,
		  unsigned ranks);
const char *tune_algorithm_name(enum tune_algorithm algorithm);

#endif
