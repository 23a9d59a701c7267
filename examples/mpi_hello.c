/* mpi_hello.c - an MPI program:
 *
 *   mpicc -o mpi_hello examples/mpi_hello.c
 *   runner -np 4 -H ip1:2,ip2:2 ./mpi_hello
 *
 * Each rank says where it is; rank 0 prints the sum of all ranks. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	char host[MPI_MAX_PROCESSOR_NAME];
	int rank, size, length, sum = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Get_processor_name(host, &length);
	printf("rank %d of %d on %s\n", rank, size, host);
	MPI_Reduce(&rank, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("the sum of all ranks is %d\n", sum);
	MPI_Finalize();
	return 0;
}
