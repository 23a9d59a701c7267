/* sealed_rig.h - for tests of the launcher's end of a sealed stream: an agent's end of
 * it, which does what a test says, and the loop of the launcher. */
#ifndef BERTH_TESTS_SEALED_RIG_H
#define BERTH_TESTS_SEALED_RIG_H

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/key.h"
#include "common/loop.h"
#include "launcher/transport/sealed.h"
#include "tests/helpers/slow.h"

/* For what comes however late this machine is. */
#define RIG_PATIENCE_MS slow_s(30000)

static struct event_base *base;
static unsigned char key[KEY_BYTES];

/* The agent's end. */
struct far {
	int fd;
	struct key_side side;
	unsigned char call[KEY_CALL_BYTES];
	struct buf in, plain;
	bool ended; /* the launcher has closed */
};

static inline size_t count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	while (d && readdir(d))
		n++;
	closedir(d);
	return n;
}

static inline void rig_turn(void)
{
	event_base_loop(base, EVLOOP_NONBLOCK);
}

/* Turn the loop until GOOD(ARG). */
static inline void rig_until(bool (*good)(void *arg), void *arg)
{
	const uint64_t late = clock_ms() + RIG_PATIENCE_MS;

	while (rig_turn(), !good(arg)) {
		ck_assert_uint_lt(clock_ms(), late);
		poll(NULL, 0, 1);
	}
}

/* What has come, without waiting. */
static inline void far_read(struct far *f)
{
	ssize_t n;

	while ((n = recv(f->fd, buf_reserve(&f->in, 65536), 65536, MSG_DONTWAIT)) > 0)
		f->in.len += (size_t)n;
	f->ended |= !n || errno != EAGAIN;
}

static inline bool far_has_ended(void *arg)
{
	struct far *f = arg;

	far_read(f);
	return f->ended;
}

static inline bool far_has_answer(void *arg)
{
	struct far *f = arg;

	far_read(f);
	ck_assert(!f->ended);
	return f->in.len >= KEY_ANSWER_BYTES;
}

/* The other end writes no more than the kernel takes: a test says little. */
static inline void far_write(struct far *f, const void *p, size_t n)
{
	ck_assert_int_eq(send(f->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT), (ssize_t)n);
}

static inline void far_call(struct far *f)
{
	key_call(&f->side, key, f->call);
	far_write(f, f->call, sizeof f->call);
}

static inline void far_take_answer(struct far *f)
{
	rig_until(far_has_answer, f);
	ck_assert(key_answered(&f->side, buf_head(&f->in)));
	buf_drop(&f->in, KEY_ANSWER_BYTES);
}

static inline void far_say(struct far *f, const void *p, size_t n)
{
	struct buf sealed = { 0 };

	key_seal(&f->side, &sealed, p, n);
	far_write(f, buf_head(&sealed), sealed.len);
	buf_free(&sealed);
}

/* What the launcher has said so far is in f->plain. */
static inline void far_hear(struct far *f)
{
	far_read(f);
	ck_assert_int_eq(key_open(&f->side, &f->in, &f->plain), 0);
}

static inline void far_free(struct far *f)
{
	if (f->fd >= 0)
		close(f->fd);
	buf_free(&f->in);
	buf_free(&f->plain);
	*f = (struct far){ .fd = -1 };
}

static inline void rig_open(void)
{
	ck_assert_int_eq(key_init(), 0);
	key_random(key);
	base = event_base_new();
}

#endif
