#include "lib/base/descriptor.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* One bit for each descriptor of the process. */
static struct {
	pthread_mutex_t lock;
	uint64_t *bits;
	size_t words;
} open_ones = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* If there is not enough memory, FD is not noted, and a child keeps it. */
static void descriptor_note(int fd)
{
	size_t word = (size_t)fd / 64, words = word + 1;

	if (word >= open_ones.words) {
		uint64_t *more = realloc(open_ones.bits, words * sizeof *more);

		if (!more)
			return;
		memset(more + open_ones.words, 0,
		       (words - open_ones.words) * sizeof *more);
		open_ones.bits = more;
		open_ones.words = words;
	}
	open_ones.bits[word] |= (uint64_t)1 << fd % 64;
}

int descriptor_socket(int domain, int type, int protocol)
{
	int fd;

	descriptor_lock();
	fd = socket(domain, type | SOCK_CLOEXEC, protocol);
	if (fd >= 0)
		descriptor_note(fd);
	descriptor_unlock();
	return fd;
}

int descriptor_accept(int listener, int flags)
{
	int fd;

	descriptor_lock();
	fd = accept4(listener, NULL, NULL, flags | SOCK_CLOEXEC);
	if (fd >= 0)
		descriptor_note(fd);
	descriptor_unlock();
	return fd;
}

void descriptor_close(int fd)
{
	descriptor_lock();
	if ((size_t)fd / 64 < open_ones.words)
		open_ones.bits[fd / 64] &= ~((uint64_t)1 << fd % 64);
	close(fd);
	descriptor_unlock();
}

void descriptor_lock(void)
{
	pthread_mutex_lock(&open_ones.lock);
}

void descriptor_unlock(void)
{
	pthread_mutex_unlock(&open_ones.lock);
}

void descriptor_in_child(void)
{
	pthread_mutex_init(&open_ones.lock, NULL);
	for (size_t i = 0; i < 64 * open_ones.words; i++)
		if (open_ones.bits[i / 64] >> i % 64 & 1)
			close((int)i);
	free(open_ones.bits);
	open_ones.bits = NULL;
	open_ones.words = 0;
}
