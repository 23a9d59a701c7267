/* replay.c - the fuzzers without libFuzzer: each argument is a file, and one input. */
#include <stdio.h>

#include "common/file.h"
#include "tests/fuzz/fuzz.h"

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		struct str input = { 0 };
		uint8_t *block; /* of its size: valgrind sees a read past it */

		fprintf(stderr, "%s\n",
			argv[i]); /* the last one is the one that fails */
		if (file_read(&input, argv[i], SIZE_MAX, true))
			return 2;
		block = xcalloc(input.len, 1);
		if (input.len)
			memcpy(block, input.s, input.len);
		LLVMFuzzerTestOneInput(block, input.len);
		free(block);
		str_free(&input);
	}
	return argc > 1 ? 0 : 2;
}
