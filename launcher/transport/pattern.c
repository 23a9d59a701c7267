#include "launcher/transport/pattern.h"

#include <ctype.h>
#include <string.h>

enum { PATTERN_MAX = 1023 }; /* a list with a longer one matches nothing, as in ssh */

bool pattern_match(const char *pattern, size_t n, const char *text, bool fold)
{
	const char *p = pattern, *end = p + n, *star = NULL, *from = NULL;

	while (*text) {
		const unsigned char a = (unsigned char)*text;
		const unsigned char b = p < end ? (unsigned char)*p : 0;

		if (p < end && *p == '*') {
			star = ++p;
			from = text;
		} else if (p < end &&
			   (b == '?' || a == b || (fold && tolower(a) == tolower(b)))) {
			p++;
			text++;
		} else if (star) { /* the last star takes one character more */
			p = star;
			text = ++from;
		} else {
			return false;
		}
	}
	while (p < end && *p == '*')
		p++;
	return p == end;
}

bool pattern_list(const char *list, const char *text, bool fold)
{
	bool hit = false;

	while (*list) {
		const bool negated = *list == '!';
		const size_t n = strcspn(list + negated, ",");

		list += negated;
		if (n >= PATTERN_MAX)
			return false;
		if (pattern_match(list, n, text, fold)) {
			if (negated)
				return false;
			hit = true;
		}
		list += n;
		list += *list == ',';
	}
	return hit;
}
