/* What the ranks of tests/cluster/mpi.bats do, with any MPI: `ranks CASE [NUMBER]`.
 *
 *   nothing    MPI_Init and MPI_Finalize
 *   hello      who am I, by MPI and by Berth; a sum
 *   ring       NUMBER times a token around all ranks
 *   dups       NUMBER communicators, each with a sum
 *   abort      rank 1 calls MPI_Abort with NUMBER, the others wait
 *   exit       rank 1 exits with NUMBER after MPI_Init, the others wait
 *   early      rank 1 exits with NUMBER instead of MPI_Init */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static int number_of(const char *name)
{
	const char *value = getenv(name);

	return value ? (int)strtol(value, NULL, 10) : -1;
}

static int sum_in(MPI_Comm all)
{
	int sum = 0;

	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all);
	return sum;
}

static void hello(void)
{
	MPI_Comm host;
	int local, locals;

	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
			    &host);
	MPI_Comm_rank(host, &local);
	MPI_Comm_size(host, &locals);
	MPI_Comm_free(&host);
	printf("rank %d of %d, local %d of %d, sum %d%s\n", rank, size, local, locals,
	       sum_in(MPI_COMM_WORLD),
	       rank == number_of("BERTH_RANK") && size == number_of("BERTH_SIZE") &&
			       local == number_of("BERTH_LOCAL_RANK") &&
			       locals == number_of("BERTH_LOCAL_SIZE")
		       ? ""
		       : ", not as Berth says");
}

static void ring(int times)
{
	int token = 0;

	for (int i = 0; i < times; i++) {
		if (rank == 0)
			MPI_Send(&token, 1, MPI_INT, 1 % size, 0, MPI_COMM_WORLD);
		MPI_Recv(&token, 1, MPI_INT, (rank + size - 1) % size, 0,
			 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		token++;
		if (rank)
			MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 0,
				 MPI_COMM_WORLD);
	}
	if (rank == 0)
		printf("token %d\n", token);
}

static void dups(int times)
{
	int wrong = 0;

	for (int i = 0; i < times; i++) {
		MPI_Comm all;

		MPI_Comm_dup(MPI_COMM_WORLD, &all);
		wrong += sum_in(all) != size * (size - 1) / 2;
		MPI_Comm_free(&all);
	}
	printf("%d communicators, %d wrong\n", times, wrong);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "hello";
	const int n = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;

	if (!strcmp(what, "early") && number_of("BERTH_RANK") == 1)
		return n;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (!strcmp(what, "ring"))
		ring(n);
	else if (!strcmp(what, "dups"))
		dups(n);
	else if (!strcmp(what, "hello"))
		hello();
	else if (!strcmp(what, "abort") && rank == 1)
		MPI_Abort(MPI_COMM_WORLD, n);
	else if (!strcmp(what, "exit") && rank == 1)
		exit(n);
	if (!strcmp(what, "abort") || !strcmp(what, "exit"))
		MPI_Barrier(MPI_COMM_WORLD);
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
