/* guarded KIND BYTES ROUNDS - two ranks, for tests with a man in the middle: sums of
 * BYTES each, or messages of so many, eight at a time, to each other.  All that comes
 * is verified.  Status 0: all was right; 1: an error, whose text is printed; 9:
 * something wrong came out of it. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/berth.h"

enum { AT_ONCE = 8, WORDS_MOST = 4 << 20 };

static uint64_t in[WORDS_MOST], out[WORDS_MOST];

static void failed(const char *what)
{
	const struct berth_error *e = berth_last_error();

	printf("%s: rank %d: %d: %s\n", what, berth_rank(), (int)e->result, e->text);
	fflush(stdout);
	exit(1);
}

static uint64_t word(int rank, size_t round, size_t i)
{
	return (uint64_t)rank * 0x9e3779b97f4a7c15u + round * 1000003 + i;
}

static void check(bool right, size_t round)
{
	if (right)
		return;
	printf("WRONG: rank %d in round %zu\n", berth_rank(), round);
	fflush(stdout);
	_Exit(9);
}

static void sum(size_t words, size_t round)
{
	struct berth_desc d =
		BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_U64, .op = BERTH_SUM,
			   .in = in, .out = out, .count = words);

	for (size_t i = 0; i < words; i++) {
		in[i] = word(berth_rank(), round, i);
		out[i] = 0;
	}
	if (berth_run(&d, -1, NULL))
		failed("sum");
	for (size_t i = 0; i < words; i++)
		check(out[i] == word(0, round, i) + word(1, round, i), round);
}

static void messages(size_t words, size_t round)
{
	struct berth_desc d[2 * AT_ONCE];
	const int me = berth_rank(), peer = !me;
	berth_request *r;

	for (size_t k = 0; k < AT_ONCE; k++) {
		for (size_t i = 0; i < words; i++) {
			in[k * words + i] = word(me, round * AT_ONCE + k, i);
			out[k * words + i] = 0;
		}
		d[2 * k] = (struct berth_desc)BERTH_DESC(.kind = BERTH_SEND,
							 .type = BERTH_U64,
							 .in = in + k * words,
							 .count = words, .root = peer,
							 .tag = 7);
		d[2 * k + 1] = (struct berth_desc)BERTH_DESC(.kind = BERTH_RECV,
							     .type = BERTH_U64,
							     .out = out + k * words,
							     .room = words,
							     .root = peer, .tag = 7);
	}
	if (berth_submit(d, 2 * AT_ONCE, &r) || berth_wait(r, -1))
		failed("messages");
	for (size_t k = 0; k < AT_ONCE; k++)
		for (size_t i = 0; i < words; i++)
			check(out[k * words + i] == word(peer, round * AT_ONCE + k, i),
			      round);
}

int main(int argc, char **argv)
{
	size_t words, rounds;

	if (argc != 4)
		return 2;
	words = strtoul(argv[2], NULL, 10) / sizeof *in;
	rounds = strtoul(argv[3], NULL, 10);
	if (!words || words * AT_ONCE > WORDS_MOST)
		return 2;
	if (berth_init(NULL))
		failed("berth_init");
	for (size_t i = 0; i < rounds; i++) {
		if (!strcmp(argv[1], "sums"))
			sum(words, i);
		else
			messages(words, i);
	}
	printf("right: rank %d\n", berth_rank());
	return berth_shutdown() ? 1 : 0;
}
