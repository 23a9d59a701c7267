#include "launcher/request.h"

void request_list_gpus(struct strv *words, const char *list)
{
	char *copy = xstrdup(list), *rest = copy, *word;

	while ((word = strsep(&rest, ",")))
		strv_add(words, word + strspn(word, " \t\n\v\f\r"));
	free(copy);
}

void rank_set_add(struct rank_set *set, uint32_t rank)
{
	size_t need = rank / 64 + 1, room = set->nwords ? set->nwords : 1;

	if (need > set->nwords) {
		while (room < need)
			room *= 2;
		set->bits = xreallocarray(set->bits, room, sizeof *set->bits);
		memset(set->bits + set->nwords, 0,
		       (room - set->nwords) * sizeof *set->bits);
		set->nwords = room;
	}
	set->bits[rank / 64] |= UINT64_C(1) << rank % 64;
}

bool rank_set_has(const struct rank_set *set, uint32_t rank)
{
	return set->all ||
	       (rank / 64 < set->nwords && set->bits[rank / 64] >> rank % 64 & 1);
}

bool rank_set_first(const struct rank_set *set, uint32_t from, uint32_t *rank)
{
	for (size_t i = from; i < 64 * set->nwords; i++) {
		*rank = (uint32_t)i;
		if (set->bits[i / 64] >> i % 64 & 1)
			return true;
	}
	return false;
}

size_t rank_set_count(const struct rank_set *set)
{
	size_t n = 0;

	for (size_t i = 0; i < set->nwords; i++)
		n += (size_t)__builtin_popcountll(set->bits[i]);
	return n;
}

bool rank_set_equal(const struct rank_set *a, const struct rank_set *b)
{
	const size_t most = a->nwords > b->nwords ? a->nwords : b->nwords;

	for (size_t i = 0; i < most; i++)
		if ((i < a->nwords ? a->bits[i] : 0) !=
		    (i < b->nwords ? b->bits[i] : 0))
			return false;
	return true;
}

void rank_set_print(struct str *out, const struct rank_set *set)
{
	str_add_bits(out, set->bits, set->nwords);
}

void rank_set_free(struct rank_set *set)
{
	free(set->bits);
	*set = (struct rank_set){ 0 };
}
