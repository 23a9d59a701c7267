/* allreduce.c - every rank has four numbers; all get the sums over the ranks.
 *
 *     cc -o allreduce allreduce.c $(pkg-config --cflags --libs berth)
 *     runner -np 4 ./allreduce */
#include <stdio.h>
#include <stdlib.h>

#include <berth.h>

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, berth_last_error()->text);
	exit(1);
}

int main(void)
{
	double x[4];
	struct berth_desc sum =
		BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F64, .op = BERTH_SUM,
			   .in = x, .out = x, .count = 4);

	if (berth_init(NULL))
		fail("berth_init");
	for (int i = 0; i < 4; i++)
		x[i] = berth_rank() + 10 * i;
	if (berth_run(&sum, -1, NULL))
		fail("berth_run");
	printf("rank %d of %d: %g %g %g %g\n", berth_rank(), berth_size(), x[0], x[1],
	       x[2], x[3]);
	if (berth_shutdown())
		fail("berth_shutdown");
	return 0;
}
