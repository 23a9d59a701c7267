#include "lib/base/heap.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static size_t heap_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* The first part that begins at AT or behind it. */
static size_t heap_place_of(const struct heap *h, size_t at)
{
	size_t low = 0, high = h->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (h->part[middle].at < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool heap_make_room(struct heap *h)
{
	size_t room = h->room ? 2 * h->room : 16;
	struct heap_part *part;

	if (h->n < h->room)
		return true;
	part = realloc(h->part, room * sizeof *part);
	if (!part)
		return false;
	h->part = part;
	h->room = room;
	return true;
}

bool heap_take(struct heap *h, size_t bytes, size_t *at)
{
	size_t align = bytes >= HEAP_LARGE ? HEAP_ALIGN_LARGE : HEAP_ALIGN;
	size_t begin = 0, i;

	if (bytes > h->bytes || !heap_make_room(h))
		return false;
	bytes = heap_up(bytes ? bytes : 1, HEAP_ALIGN);
	for (i = 0; i < h->n; i++) {
		if (begin <= h->part[i].at && h->part[i].at - begin >= bytes)
			break;
		begin = heap_up(h->part[i].at + h->part[i].bytes, align);
	}
	if (begin > h->bytes || h->bytes - begin < bytes)
		return false;
	memmove(h->part + i + 1, h->part + i, (h->n - i) * sizeof *h->part);
	h->part[i] = (struct heap_part){ .at = begin, .bytes = bytes };
	h->n++;
	*at = begin;
	return true;
}

struct heap_part *heap_find(const struct heap *h, size_t at)
{
	size_t i = heap_place_of(h, at);

	return i < h->n && h->part[i].at == at ? h->part + i : NULL;
}

void heap_give(struct heap *h, size_t at)
{
	size_t i = heap_place_of(h, at);

	if (i == h->n || h->part[i].at != at)
		return;
	h->n--;
	memmove(h->part + i, h->part + i + 1, (h->n - i) * sizeof *h->part);
}

void heap_free(struct heap *h)
{
	free(h->part);
	*h = (struct heap){ 0 };
}
