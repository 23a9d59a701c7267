#include "lib/boot/handoff.h"
#include "lib/base/clock.h"
#include "lib/base/ours.h"
#include "lib/base/sleep.h"
#include "lib/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
	WAITING_MOST = 4096 /* that have come before handoff_give() */
};

static const char gone[] = "the rank that makes this host's memory has ended";

static int64_t ns_left(uint64_t until_ns)
{
	return (int64_t)(until_ns - clock_ns());
}

/* Abstract: its first byte is 0. */
static socklen_t handoff_address_of(const char *name, struct sockaddr_un *a)
{
	memset(a, 0, sizeof *a);
	a->sun_family = AF_UNIX;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(a->sun_path + 1, sizeof a->sun_path - 1,
					    "berth-%s", name));
}

int handoff_listen(char *name)
{
	unsigned char random[HANDOFF_NAME_BYTES / 2];
	struct sockaddr_un a;
	socklen_t bytes;
	int fd;

	if (getrandom(random, sizeof random, 0) != sizeof random)
		return -1;
	for (size_t i = 0; i < sizeof random; i++)
		snprintf(name + 2 * i, 3, "%02x", random[i]);
	bytes = handoff_address_of(name, &a);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, bytes) ||
	    listen(fd, WAITING_MOST)) {
		int e = errno;

		if (fd >= 0)
			close(fd);
		errno = e;
		return -1;
	}
	return fd;
}

/* ---- the maker ---- */

static void send_memory(int fd, int memory)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr head;
	} control = { 0 };
	struct iovec one = { .iov_base = (char[]){ 'm' }, .iov_len = 1 };
	struct msghdr m = { .msg_iov = &one,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof control.bytes };

	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof memory);
	memcpy(CMSG_DATA(&control.head), &memory, sizeof memory);
	sendmsg(fd, &m, MSG_NOSIGNAL);
}

/* Has a rank come?  A process of another user gets nothing, and does not count.  A rank
 * that has ended since it came counts, since no other will come in its place. */
static bool handoff_serve(int listener, int memory)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	bool came;

	if (fd < 0)
		return false;
	came = ours_peer(fd);
	if (came)
		send_memory(fd, memory);
	close(fd);
	return came;
}

static berth_result handoff_judge(unsigned served, unsigned n, char *why,
				  size_t why_bytes)
{
	if (served == n)
		return BERTH_OK;
	snprintf(why, why_bytes,
		 "only %u of this host's %u other ranks came for its memory", served,
		 n);
	return BERTH_PEER_LOST;
}

berth_result handoff_give(int listener, unsigned n, int memory, uint64_t until_ns,
			  char *why, size_t why_bytes)
{
	struct pollfd p = { .fd = listener, .events = POLLIN };
	unsigned served = 0;
	int64_t left;

	while (served < n && (left = ns_left(until_ns)) > 0)
		if (poll(&p, 1, (int)(left / 1000000 + 1)) > 0)
			served += handoff_serve(listener, memory);
	return handoff_judge(served, n, why, why_bytes);
}

/* Serves until all have come, or LISTENER is shut down. */
static void *handoff_run(void *ctx)
{
	struct handoff *h = ctx;
	struct pollfd p = { .fd = h->listener, .events = POLLIN };

	while (h->served < h->n && !(p.revents & POLLHUP)) {
		if (poll(&p, 1, -1) <= 0 || !handoff_serve(h->listener, h->memory))
			continue;
		atomic_fetch_add(&h->served, 1);
		sleep_wake(&h->served);
	}
	return NULL;
}

berth_result handoff_begin(struct handoff *h, int listener, unsigned n, int memory,
			   char *why, size_t why_bytes)
{
	h->listener = listener;
	h->memory = memory;
	h->n = n;
	atomic_init(&h->served, 0);
	if (thread_start(&h->thread, "berth-handoff", handoff_run, h))
		return BERTH_OK;
	snprintf(why, why_bytes, "no thread can be started");
	return BERTH_SYSTEM;
}

berth_result handoff_end(struct handoff *h, uint64_t until_ns, char *why,
			 size_t why_bytes)
{
	uint32_t served;
	int64_t left;

	while ((served = h->served) < h->n && (left = ns_left(until_ns)) > 0)
		sleep_on(&h->served, served, (uint64_t)left);
	shutdown(h->listener, SHUT_RDWR);
	pthread_join(h->thread, NULL);
	return handoff_judge(h->served, h->n, why, why_bytes);
}

/* ---- the others ---- */

int handoff_come(const char *name, uint64_t until_ns)
{
	int64_t left = ns_left(until_ns);
	struct timeval t = { .tv_sec = left / 1000000000,
			     .tv_usec = left % 1000000000 / 1000 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), e;
	struct sockaddr_un a;
	socklen_t bytes = handoff_address_of(name, &a);

	if (fd < 0)
		return -1;
	if (left <= 0)
		t = (struct timeval){ .tv_usec = 1 }; /* 0 would be for ever */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) ||
	    connect(fd, (struct sockaddr *)&a, bytes))
		e = errno;
	else if (!ours_peer(fd))
		e = EPERM;
	else
		return fd;
	close(fd);
	errno = e;
	return -1;
}

/* The descriptor that the other side of FD sent, or -1. */
static int handoff_take_descriptor(int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr head;
	} control;
	char byte;
	struct iovec one = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr m = { .msg_iov = &one,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof control.bytes };
	struct cmsghdr *c;
	ssize_t got;
	int memory;

	do
		got = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	c = got == 1 ? CMSG_FIRSTHDR(&m) : NULL;
	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
	    c->cmsg_len != CMSG_LEN(sizeof memory))
		return -1;
	memcpy(&memory, CMSG_DATA(c), sizeof memory);
	return memory;
}

berth_result handoff_receive(int fd, size_t bytes, int *memory, char *why,
			     size_t why_bytes)
{
	struct stat s;

	*memory = handoff_take_descriptor(fd);
	close(fd);
	if (*memory < 0) {
		snprintf(why, why_bytes, "%s", gone);
		return BERTH_PEER_LOST;
	}
	if (fstat(*memory, &s) || s.st_size != (off_t)bytes ||
	    (fcntl(*memory, F_GET_SEALS) & SEALS) != SEALS) {
		snprintf(why, why_bytes, "this host's memory is not of %zu bytes",
			 bytes);
		close(*memory);
		*memory = -1;
		return BERTH_SYSTEM;
	}
	return BERTH_OK;
}

berth_result handoff_take(const char *name, size_t bytes, uint64_t until_ns,
			  int *memory, char *why, size_t why_bytes)
{
	int fd = handoff_come(name, until_ns);

	*memory = -1;
	if (fd >= 0)
		return handoff_receive(fd, bytes, memory, why, why_bytes);
	snprintf(why, why_bytes, "%s", gone);
	return BERTH_PEER_LOST;
}
