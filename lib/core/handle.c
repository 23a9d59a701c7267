#include "lib/core/handle.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct handle_slot handle_of_all;
struct handle_slot *_Atomic handle_block[HANDLE_BLOCKS];

static struct {
	pthread_mutex_t lock; /* of all that follows, and of what SET and LAST are */
	struct handle_slot *free;
	unsigned blocks;
	bool open;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void put_free(struct handle_slot *s)
{
	s->set = NULL;
	s->next_free = table.free;
	table.free = s;
}

static void add_block(void)
{
	struct handle_slot *b;

	if (table.blocks == HANDLE_BLOCKS)
		return;
	b = calloc(HANDLE_BLOCK, sizeof *b);
	for (unsigned i = HANDLE_BLOCK; b && i-- > 0;) {
		b[i].last = table.blocks * HANDLE_BLOCK + i;
		put_free(&b[i]);
	}
	if (b)
		atomic_store(&handle_block[table.blocks++], b);
}

/* ACT is called with each slot of the table. */
static void handle_each(void (*act)(struct handle_slot *s))
{
	for (unsigned i = 0; i < table.blocks; i++)
		for (unsigned k = 0; k < HANDLE_BLOCK; k++)
			act(handle_block[i] + k);
}

static void close_one(struct handle_slot *s)
{
	atomic_store(&s->handle, 0);
}

void handle_open_all(struct berth_set *all)
{
	pthread_mutex_lock(&table.lock);
	table.open = true;
	handle_of_all.set = all;
	atomic_store(&handle_of_all.handle, HANDLE_OF_ALL);
	pthread_mutex_unlock(&table.lock);
}

void handle_close_all(void)
{
	pthread_mutex_lock(&table.lock);
	table.open = false;
	close_one(&handle_of_all);
	handle_each(close_one);
	pthread_mutex_unlock(&table.lock);
}

berth_result handle_make(struct berth_set *set, struct handle_slot **slot,
			 berth_set **handle)
{
	berth_result rc = BERTH_OK;
	struct handle_slot *s = NULL;

	pthread_mutex_lock(&table.lock);
	if (!table.open)
		rc = BERTH_ABORTED;
	else if (!table.free)
		add_block();
	if (!rc && !table.free)
		rc = BERTH_MEMORY;
	if (!rc) {
		s = table.free;
		table.free = s->next_free;
		s->set = set;
		s->last += (uintptr_t)1 << HANDLE_BITS;
		*slot = s;
		*handle = (berth_set *)s->last;
		atomic_store(&s->handle, s->last);
	}
	pthread_mutex_unlock(&table.lock);
	return rc;
}

struct berth_set *handle_take(const berth_set *given)
{
	struct handle_slot *s = handle_slot(given);
	uintptr_t handle = (uintptr_t)given;

	return s && atomic_compare_exchange_strong(&s->handle, &handle, 0) ? s->set
									   : NULL;
}

void handle_wait(const struct handle_slot *s)
{
	while (atomic_load(&s->inside))
		nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
}

/* Blocks that are added meanwhile have no open handle. */
void handle_wait_all(void)
{
	unsigned blocks;

	handle_wait(&handle_of_all);
	pthread_mutex_lock(&table.lock);
	blocks = table.blocks;
	pthread_mutex_unlock(&table.lock);
	for (unsigned i = 0; i < blocks; i++)
		for (unsigned k = 0; k < HANDLE_BLOCK; k++)
			handle_wait(handle_block[i] + k);
}

void handle_free(struct handle_slot *s)
{
	if (s == &handle_of_all)
		return;
	pthread_mutex_lock(&table.lock);
	put_free(s);
	pthread_mutex_unlock(&table.lock);
}

static void handle_forget(struct handle_slot *s)
{
	close_one(s);
	atomic_store(&s->inside, 0);
	put_free(s);
}

void handle_in_child(void)
{
	pthread_mutex_init(&table.lock, NULL);
	table.open = false;
	table.free = NULL;
	close_one(&handle_of_all);
	handle_of_all.inside = 0;
	handle_each(handle_forget);
}
