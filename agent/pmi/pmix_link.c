/* Between libpmix's threads, the main thread and the host: messages, calls back, and
 * requests that wait for an answer. */
#include <errno.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/pmi/pmix_child_internal.h"

enum { PENDING_MOST = 65536 };

struct px_server px;

/* A call that the main thread is to make. */
struct call {
	px_op_done *done;
	void *ctx;
	struct call *next;
};

static struct {
	int fd;     /* to the host */
	int called; /* readable: there are calls to make */
	pthread_mutex_t sending, calling;
	struct call *call, **last_call;
} child = { .sending = PTHREAD_MUTEX_INITIALIZER,
	    .calling = PTHREAD_MUTEX_INITIALIZER,
	    .last_call = &child.call };

int child_link(int fd)
{
	child.fd = fd;
	child.called = eventfd(0, EFD_CLOEXEC);
	return child.called;
}

void child_leave(void)
{
	pmix_folders_remove(&px.folders);
	_exit(0);
}

void child_say(struct buf *frame)
{
	pthread_mutex_lock(&child.sending);
	while (frame->len) {
		ssize_t n = send(child.fd, buf_head(frame), frame->len, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			child_leave();
		if (n > 0)
			buf_drop(frame, (size_t)n);
	}
	pthread_mutex_unlock(&child.sending);
	buf_free(frame);
}

void child_later(px_op_done *done, void *ctx)
{
	struct call *c;

	if (!done)
		return;
	c = xmalloc(sizeof *c);
	*c = (struct call){ done, ctx, NULL };
	pthread_mutex_lock(&child.calling);
	*child.last_call = c;
	child.last_call = &c->next;
	pthread_mutex_unlock(&child.calling);
	eventfd_write(child.called, 1);
}

void child_make_calls(void)
{
	eventfd_t n;
	struct call *c;

	eventfd_read(child.called, &n);
	pthread_mutex_lock(&child.calling);
	c = child.call;
	child.call = NULL;
	child.last_call = &child.call;
	pthread_mutex_unlock(&child.calling);
	for (struct call *next; c; c = next) {
		next = c->next;
		c->done(PX_SUCCESS, c->ctx);
		free(c);
	}
}

/* ---- requests ---- */

static struct {
	pthread_mutex_t lock;
	struct pending *first;
	uint32_t id, n;
} waiting = { .lock = PTHREAD_MUTEX_INITIALIZER };

uint32_t pending_leave(const struct pending *p)
{
	struct pending *copy = xmalloc(sizeof *copy);
	uint32_t id = 0;

	*copy = *p;
	pthread_mutex_lock(&waiting.lock);
	if (waiting.n < PENDING_MOST) {
		waiting.n++;
		waiting.id = waiting.id % INT32_MAX + 1;
		id = waiting.id;
		copy->id = id;
		copy->next = waiting.first;
		waiting.first = copy;
	}
	pthread_mutex_unlock(&waiting.lock);
	if (!id)
		free(copy);
	return id;
}

struct pending *pending_fetch(uint32_t id)
{
	struct pending **at, *p;

	pthread_mutex_lock(&waiting.lock);
	at = &waiting.first;
	while (*at && (*at)->id != id)
		at = &(*at)->next;
	p = *at;
	if (p) {
		*at = p->next;
		waiting.n--;
	}
	pthread_mutex_unlock(&waiting.lock);
	return p;
}

void pending_free(struct pending *p)
{
	free(p->procs);
	free(p);
}

bool upcall_is(const struct px_info *i, const char *key)
{
	return !strncmp(i->key, key, sizeof i->key);
}
