/* calls.h - operations by their kind, for tests: call_allreduce(&d) is berth_run() of D
 * as an allreduce. */
#ifndef BERTH_TESTS_CALLS_H
#define BERTH_TESTS_CALLS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/berth.h"

static inline berth_result call(berth_kind kind, const struct berth_desc *d)
{
	struct berth_desc k = *d;

	k.kind = kind;
	return berth_run(&k, -1, NULL);
}

#define CALL(name, kind)                                                               \
	__attribute__((unused)) static inline berth_result call_##name(                \
		const struct berth_desc *d)                                            \
	{                                                                              \
		return call(kind, d);                                                  \
	}
CALL(allreduce, BERTH_ALLREDUCE)
CALL(reduce, BERTH_REDUCE)
CALL(reducescatter, BERTH_REDUCESCATTER)
CALL(allgather, BERTH_ALLGATHER)
CALL(broadcast, BERTH_BROADCAST)
CALL(alltoall, BERTH_ALLTOALL)
CALL(gather, BERTH_GATHER)
CALL(scatter, BERTH_SCATTER)
#undef CALL

__attribute__((unused)) static inline berth_result call_barrier(berth_set *set)
{
	struct berth_desc d = BERTH_DESC(.set = set);

	return call(BERTH_BARRIER, &d);
}

/* N operations of one kind. */
__attribute__((unused)) static inline berth_result
call_submit(berth_kind kind, const struct berth_desc *d, size_t n,
	    berth_request **request)
{
	struct berth_desc *k = malloc(n * sizeof *k);
	berth_result rc = BERTH_MEMORY;

	for (size_t i = 0; k && i < n; i++) {
		k[i] = d[i];
		k[i].kind = kind;
	}
	if (k)
		rc = berth_submit(k, n, request);
	free(k);
	return rc;
}

__attribute__((unused)) static inline struct berth_world call_world(void)
{
	struct berth_world w = { .size = sizeof w };

	berth_world(&w);
	return w;
}

/* Rank OF ends here, since WHAT in LINE came to IS. */
__attribute__((unused, noreturn)) static inline void
call_fail(int of, int line, const char *what, long is)
{
	fprintf(stderr, "rank %d, line %d: %s: %ld; last error: %s\n", of, line, what,
		is, berth_last_error()->text);
	_exit(1);
}
#define CALL_CHECK(rank, fine, what, is)                                               \
	do {                                                                           \
		if (!(fine))                                                           \
			call_fail(rank, __LINE__, what, (long)(is));                   \
	} while (0)

#endif
