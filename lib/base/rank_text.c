#include "lib/base/rank_text.h"

#include <stdio.h>

/* Writes whole numbers only, since a number that is cut looks like another one. */
void rank_text(char *text, size_t bytes, const unsigned *rank, size_t n)
{
	size_t at = 0, last;
	char one[32];

	if (bytes)
		*text = '\0';
	for (size_t i = 0; i < n; i = last + 1) {
		const char *comma = i ? ", " : "";
		int more;

		for (last = i; last + 1 < n && rank[last + 1] == rank[last] + 1;)
			last++;
		if (last > i)
			more = snprintf(one, sizeof one, "%s%u%s%u", comma, rank[i],
					last > i + 1 ? "-" : ", ", rank[last]);
		else
			more = snprintf(one, sizeof one, "%s%u", comma, rank[i]);
		if (at + (size_t)more + (last + 1 < n ? sizeof ", ..." : 1) > bytes) {
			snprintf(text + at, bytes - at, "%s...", comma);
			return;
		}
		snprintf(text + at, bytes - at, "%s", one);
		at += (size_t)more;
	}
}
