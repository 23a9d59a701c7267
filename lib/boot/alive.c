#include "lib/boot/alive.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/sleep.h"
#include "lib/base/thread.h"
#include "lib/boot/boot.def"

_Static_assert(sizeof(pthread_mutex_t) <= BOOT_ALIVE_BYTES, "there is no room for it");
#ifdef __GLIBC__
_Static_assert(!offsetof(pthread_mutex_t, __data.__lock), "its word is not the first");
#endif

enum { BEGINS, HOLDS, ENDS };

static struct {
	pthread_t thread;
	pthread_mutex_t *mutex;
	_Atomic uint32_t step;
} own;

static void *alive_run(void *unused)
{
	(void)unused;
	pthread_mutex_lock(own.mutex);
	atomic_store(&own.step, HOLDS);
	sleep_wake(&own.step);
	while (atomic_load(&own.step) == HOLDS)
		sleep_on(&own.step, HOLDS, 0);
	pthread_mutex_unlock(own.mutex);
	return NULL;
}

static void alive_unmap(void)
{
	munmap(own.mutex, BOOT_ALIVE_BYTES);
	own.mutex = NULL;
}

static int alive_make(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t a;
	int rc = pthread_mutexattr_init(&a);

	if (rc)
		return rc;
	rc = pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	if (!rc)
		rc = pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	if (!rc)
		rc = pthread_mutex_init(mutex, &a);
	pthread_mutexattr_destroy(&a);
	return rc;
}

void alive_hold(int fd)
{
	void *at = MAP_FAILED;

	if (fd < 0)
		return;
	at = mmap(NULL, BOOT_ALIVE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (at == MAP_FAILED)
		return;
	own.mutex = at;
	atomic_store(&own.step, BEGINS);
	if (alive_make(at) ||
	    !thread_start(&own.thread, "berth-alive", alive_run, NULL)) {
		alive_unmap();
		return;
	}
	while (atomic_load(&own.step) == BEGINS)
		sleep_on(&own.step, BEGINS, 0);
}

bool alive_is_held(void)
{
	return own.mutex;
}

void alive_let_go(void)
{
	if (!own.mutex)
		return;
	atomic_store(&own.step, ENDS);
	sleep_wake(&own.step);
	pthread_join(own.thread, NULL);
	alive_unmap();
}

/* The thread is its parent's. */
void alive_in_child(void)
{
	if (own.mutex)
		alive_unmap();
}
