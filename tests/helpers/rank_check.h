/* rank_check.h - a check of a program whose ranks are its own: one that fails says
 * where, with the library's last error, and ends the rank. */
#ifndef BERTH_TESTS_RANK_CHECK_H
#define BERTH_TESTS_RANK_CHECK_H

#include <stdio.h>
#include <unistd.h>

#include "lib/berth.h"

/* RANK: an int of the caller's file. */
#define CHECK(what, ...)                                                               \
	do {                                                                           \
		if (what)                                                              \
			break;                                                         \
		fprintf(stderr, "rank %d, line %d: %s: ", rank, __LINE__, #what);      \
		fprintf(stderr, __VA_ARGS__);                                          \
		fprintf(stderr, "; %s\n", berth_last_error()->text);                   \
		_exit(1);                                                              \
	} while (0)

#endif
