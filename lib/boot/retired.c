#include "lib/boot/retired.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)

/* The blocks of one heap. */
struct retired {
	struct retired *next;
	unsigned char *part; /* of this rank, as parts count, */
	size_t from, to;     /* mapped from here to there */
	struct heap parts;
};

/* A block that was freed before its world was retired. */
struct late {
	struct late *next;
	void *p;
};

static struct {
	pthread_mutex_t lock;
	struct retired *first;
	struct late *late;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void forget_late(void)
{
	while (all.late) {
		struct late *l = all.late;

		all.late = l->next;
		free(l);
	}
}

static void retired_unmap(struct retired *r)
{
	munmap(r->part + r->from, r->to - r->from);
	heap_free(&r->parts);
	free(r);
}

/* Takes the mapping from M, and keeps a part of it in R. */
static void retired_take_mapping(struct retired *r, struct memory *m,
				 unsigned char *part)
{
	const struct heap_part *last = &m->parts.part[m->parts.n - 1];
	unsigned char *end = m->at + m->bytes;

	*r = (struct retired){
		.next = all.first,
		.part = part,
		.from = m->parts.part[0].at / PAGE * PAGE,
		.to = (last->at + last->bytes + PAGE - 1) / PAGE * PAGE,
		.parts = m->parts,
	};
	all.first = r;
	munmap(m->at, (size_t)(part + r->from - m->at));
	if (part + r->to < end)
		munmap(part + r->to, (size_t)(end - (part + r->to)));
	m->parts = (struct heap){ 0 };
	m->at = NULL;
}

void retired_keep(struct memory *m)
{
	unsigned char *part = memory_part(m);
	struct retired *r = NULL;

	if (part) {
		pthread_mutex_lock(&all.lock);
		/* only the blocks that callers hold stay in M's heap, in order */
		for (const struct late *l = all.late; l; l = l->next)
			heap_give(&m->parts, (size_t)((unsigned char *)l->p - part));
		for (size_t i = m->parts.n; i-- > 0;)
			if (!m->parts.part[i].is_callers)
				heap_give(&m->parts, m->parts.part[i].at);
		forget_late();
		if (m->parts.n)
			r = malloc(sizeof *r);
		memory_say_left(m);
		if (r)
			retired_take_mapping(r, m, part);
		else if (m->parts.n) /* no memory to note it: it stays */
			m->at = NULL;
		pthread_mutex_unlock(&all.lock);
	}
	memory_unmap(m);
}

/* The caller holds LOCK. */
static bool find_and_free(void *p)
{
	for (struct retired **at = &all.first; *at; at = &(*at)->next) {
		struct retired *r = *at;
		const size_t place = (uintptr_t)p - (uintptr_t)r->part;
		const struct heap_part *part = heap_find(&r->parts, place);
		size_t from, to;

		if (!part)
			continue;
		from = (part->at + PAGE - 1) / PAGE * PAGE;
		to = (part->at + part->bytes) / PAGE * PAGE;
		if (from < to) /* whole pages go back to the system now */
			madvise(r->part + from, to - from, MADV_REMOVE);
		heap_give(&r->parts, place);
		if (!r->parts.n) {
			*at = r->next;
			retired_unmap(r);
		}
		return true;
	}
	return false;
}

bool retired_try(void *p)
{
	bool found;

	pthread_mutex_lock(&all.lock);
	found = find_and_free(p);
	pthread_mutex_unlock(&all.lock);
	return found;
}

void retired_free(void *p)
{
	struct late *l;

	pthread_mutex_lock(&all.lock);
	if (!find_and_free(p)) {
		l = malloc(sizeof *l);
		if (l) {
			*l = (struct late){ .next = all.late, .p = p };
			all.late = l;
		}
	}
	pthread_mutex_unlock(&all.lock);
}

void retired_forget(void)
{
	pthread_mutex_lock(&all.lock);
	while (all.first) {
		struct retired *r = all.first;

		all.first = r->next;
		retired_unmap(r);
	}
	forget_late();
	pthread_mutex_unlock(&all.lock);
}

/* The blocks are still there, and may be read.  So their notes stay, too. */
void retired_in_child(void)
{
	pthread_mutex_init(&all.lock, NULL);
	all.first = NULL;
	all.late = NULL;
}
