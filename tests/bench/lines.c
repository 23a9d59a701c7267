/* lines BYTES: write so many bytes of 80-byte lines to stdout, 64 KiB at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static char block[80 * 819]; /* whole lines */
	size_t left = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;

	memset(block, '.', sizeof block);
	for (size_t i = 79; i < sizeof block; i += 80)
		block[i] = '\n';
	while (left) {
		ssize_t n = write(1, block, left < sizeof block ? left : sizeof block);

		if (n <= 0) {
			perror("lines");
			return 1;
		}
		left -= (size_t)n;
	}
	return 0;
}
