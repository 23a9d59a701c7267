/* traces DIR RANKS SLICES - timelines of RANKS ranks as libberth writes them, each of
 * SLICES slices of 50 tensors, in DIR/0, DIR/1, ...  In step S rank S % RANKS comes
 * last to all, by 500 us. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { TENSORS = 50, EACH_US = 1000 };

static void write_rank(FILE *f, int rank, int ranks, uint64_t slices)
{
	fprintf(f,
		"[\n{\"name\":\"berth_timeline\",\"ph\":\"M\",\"pid\":%d,\"args\":{"
		"\"rank\":"
		"%d,\"size\":%d,\"host\":\"n%d\",\"job\":\"abc\",\"wall_ns\":"
		"1700000000000000000,\"begun_ns\":1000000,\"offset_ns\":0}}",
		rank, rank, ranks, rank / 8);
	fprintf(f,
		",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{"
		"\"name\":"
		"\"rank %d\"}}",
		rank, rank);
	for (int i = 0; i < TENSORS; i++)
		fprintf(f,
			",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%"
			"d,"
			"\"args\":{\"name\":\"model.layer.%d.weight\"}}",
			rank, i + 2, i);
	for (uint64_t i = 0; i < slices; i++) {
		const uint64_t step = i / TENSORS + 1,
			       end_us = 1000000 + (i + 1) * EACH_US;
		const unsigned late_us =
			step % (uint64_t)ranks == (uint64_t)rank ? 500 : 0;
		const unsigned dur_us = 900 - late_us - (unsigned)(i * 7 % 100);

		fprintf(f,
			",\n{\"name\":\"ALLREDUCE\",\"ph\":\"X\",\"pid\":%d,\"tid\":%u,"
			"\"ts\":%" PRIu64
			".%03u,\"dur\":%u.000,\"args\":{\"set\":0,\"seq\":%" PRIu64
			",\"of\":%d,\"world\":1,\"step\":%" PRIu64
			",\"waited\":0.000,\"bytes\":65536}}",
			rank, (unsigned)(i % TENSORS) + 2, end_us - dur_us,
			(unsigned)(i * 13 % 1000), dur_us, i + 1, ranks, step);
	}
	fputs("\n]\n", f);
}

int main(int argc, char **argv)
{
	char path[4096];

	if (argc != 4)
		return 2;
	for (int rank = 0; rank < atoi(argv[2]); rank++) {
		FILE *f;

		snprintf(path, sizeof path, "%s/%d", argv[1], rank);
		f = fopen(path, "w");
		if (!f)
			return 1;
		write_rank(f, rank, atoi(argv[2]), strtoull(argv[3], NULL, 10));
		if (fclose(f))
			return 1;
	}
	return 0;
}
