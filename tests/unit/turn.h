/* turn.h - for tests of lib/net: what a child does once, as a peer of a net in this
 * process. */
#ifndef BERTH_TESTS_TURN_H
#define BERTH_TESTS_TURN_H

#include "stranger.h"

#include <signal.h>

/* For what comes however late this machine is. */
enum { PATIENCE_MS = 30000 };

/* In ms, the quickest of three: what is held up is not so each time. */
static inline unsigned quickest(void (*once)(void))
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 3; i++) {
		uint64_t begun = clock_ns(), took;

		once();
		took = clock_ns() - begun;
		least = took < least ? took : least;
	}
	return (unsigned)(least / 1000000);
}

/* What a child does as rank 0 to rank 1, which is N. */
struct turn {
	struct net *n;
	size_t at, k;
	unsigned change;
};

static inline berth_result against(void (*child)(const struct turn *t), struct turn *t,
				   unsigned ms)
{
	char got[12] = "";
	berth_result rc;
	pid_t pid;

	t->n = stranger_net(1, 3);
	pid = fork();
	if (!pid) {
		child(t);
		_exit(0);
	}
	rc = stranger_wait(t->n, got, ms);
	if (!rc)
		ck_assert(!memcmp(got, "twelve bytes", 12));
	net_close(t->n);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return rc;
}

static const struct head plain = {
	.magic = HEAD_MAGIC, .tag = { 1, 2, 3 }, .note = { { 4 } }, .bytes = 12
};

/* As it goes. */
struct message {
	struct head head;
	char data[12];
	uint64_t tail;
} __attribute__((packed));

/* The next one. */
static inline struct message good(void)
{
	struct message m = { .head = stranger_mark(plain) };

	memcpy(m.data, "twelve bytes", sizeof m.data);
	m.tail = net_tail(stranger_channel.out, m.head.mark.number, m.data,
			  sizeof m.data);
	return m;
}

/* Of a group that is none. */
static inline struct head last(uint32_t group)
{
	return stranger_mark((struct head){ .magic = HEAD_MAGIC, .tag = { group } });
}

static inline int proven(const struct turn *t)
{
	int fd = stranger_connect(t->n);

	if (stranger_prove(fd, 0, 1))
		_exit(8);
	return fd;
}

#endif
