#include "lib/base/bell.h"

#include <linux/futex.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/descriptor.h"

static socklen_t bell_address_of(struct sockaddr_un *a, const unsigned char *name)
{
	size_t at = 1;

	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	at += (size_t)snprintf(a->sun_path + at, sizeof a->sun_path - at, "berth-p2p-");
	for (size_t i = 0; i < BELL_NAME_BYTES; i++)
		at += (size_t)snprintf(a->sun_path + at, sizeof a->sun_path - at,
				       "%02x", name[i]);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + at);
}

int bell_open(struct bell *b)
{
	struct sockaddr_un a;
	socklen_t size;
	int fd;

	if (getrandom(b->name, sizeof b->name, 0) != sizeof b->name)
		return -1;
	fd = descriptor_socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	size = bell_address_of(&a, b->name);
	if (fd >= 0 && bind(fd, (struct sockaddr *)&a, size)) {
		descriptor_close(fd);
		return -1;
	}
	return fd;
}

void bell_clear(int fd)
{
	char c;

	/* the kernel keeps 10 or so; anybody may send more */
	for (int i = 0; i < 32 && recv(fd, &c, 1, MSG_DONTWAIT) >= 0; i++)
		;
}

void bell_ring(struct bell *b, int fd)
{
	unsigned char name[BELL_NAME_BYTES];
	struct sockaddr_un a;
	socklen_t size;

	atomic_fetch_add(&b->value, 1);
	if (atomic_load(&b->sleepers))
		syscall(SYS_futex, (uint32_t *)&b->value, FUTEX_WAKE, 1 << 30, NULL,
			NULL, 0);
	if (fd < 0 || !atomic_load(&b->polls))
		return;
	memcpy(name, b->name, sizeof name);
	size = bell_address_of(&a, name);
	/* if this one does not go, others are there, which wake the rank as well */
	(void)!sendto(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&a,
		      size);
}

void bells_ring(const struct bells *b)
{
	for (unsigned i = 0; i < b->n; i++)
		if (i != b->me && bell_has_sleeper(b->of[i], 0))
			bell_ring(b->of[i], b->fd);
}

void bell_sleep(struct bell *b, uint32_t seen, uint64_t ns)
{
	const struct timespec t = { (time_t)(ns / 1000000000),
				    (long)(ns % 1000000000) };

	syscall(SYS_futex, (uint32_t *)&b->value, FUTEX_WAIT, seen, &t, NULL, 0);
}
