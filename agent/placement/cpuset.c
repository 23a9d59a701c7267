#include "agent/placement/cpuset.h"

#include <ctype.h>

#include "common/str.h"

struct cpuset cpuset_new(size_t nwords)
{
	return (struct cpuset){ xcalloc(nwords, sizeof(uint64_t)), nwords };
}

struct cpuset cpuset_copy(const struct cpuset *s)
{
	struct cpuset copy = cpuset_new(s->nwords);

	if (s->nwords)
		memcpy(copy.w, s->w, s->nwords * sizeof *s->w);
	return copy;
}

void cpuset_free(struct cpuset *s)
{
	free(s->w);
	*s = (struct cpuset){ 0 };
}

void cpuset_add(struct cpuset *s, uint32_t pu)
{
	if (pu / 64 < s->nwords)
		s->w[pu / 64] |= UINT64_C(1) << pu % 64;
}

void cpuset_remove(struct cpuset *s, uint32_t pu)
{
	if (pu / 64 < s->nwords)
		s->w[pu / 64] &= ~(UINT64_C(1) << pu % 64);
}

bool cpuset_has(const struct cpuset *s, uint32_t pu)
{
	return pu / 64 < s->nwords && (s->w[pu / 64] >> pu % 64 & 1);
}

static uint64_t cpuset_word(const struct cpuset *s, size_t i)
{
	return i < s->nwords ? s->w[i] : 0;
}

void cpuset_or(struct cpuset *s, const struct cpuset *with)
{
	for (size_t i = 0; i < s->nwords; i++)
		s->w[i] |= cpuset_word(with, i);
}

void cpuset_and(struct cpuset *s, const struct cpuset *with)
{
	for (size_t i = 0; i < s->nwords; i++)
		s->w[i] &= cpuset_word(with, i);
}

uint32_t cpuset_count(const struct cpuset *s)
{
	uint32_t n = 0;

	for (size_t i = 0; i < s->nwords; i++)
		n += (uint32_t)__builtin_popcountll(s->w[i]);
	return n;
}

bool cpuset_meets(const struct cpuset *a, const struct cpuset *b)
{
	for (size_t i = 0; i < a->nwords; i++)
		if (a->w[i] & cpuset_word(b, i))
			return true;
	return false;
}

bool cpuset_within(const struct cpuset *a, const struct cpuset *b)
{
	for (size_t i = 0; i < a->nwords; i++)
		if (a->w[i] & ~cpuset_word(b, i))
			return false;
	return true;
}

bool cpuset_parse(struct cpuset *s, const char *list)
{
	while (isspace((unsigned char)*list))
		list++;
	while (*list) {
		unsigned long first, last;
		char *end;

		if (!isdigit((unsigned char)*list))
			return false;
		first = last = strtoul(list, &end, 10);
		if (*end == '-' && !isdigit((unsigned char)end[1]))
			return false;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (unsigned long i = first; i <= last && i < s->nwords * 64; i++)
			cpuset_add(s, (uint32_t)i);
		list = end + (*end == ',');
		while (isspace((unsigned char)*list))
			list++;
	}
	return true;
}
