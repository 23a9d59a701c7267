/* slow.h - limits of time on a machine that has other work. */
#ifndef BERTH_TESTS_SLOW_H
#define BERTH_TESTS_SLOW_H

#include <stdlib.h>

/* SECONDS, or parts of them, as many times as tests/run says. */
static inline unsigned slow_s(unsigned seconds)
{
	const char *slow = getenv("SLOW");
	const unsigned times = slow ? (unsigned)strtoul(slow, NULL, 10) : 1;

	return seconds * (times ? times : 1);
}

#endif
