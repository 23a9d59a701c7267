/* One connection of a rank: frames in, frames out. */
#include "agent/pmi/server_internal.h"

#include <errno.h>
#include <event2/event.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/loop.h"

enum {
	READ_BYTES = 8192,
	/* `stall` of wire.def has 16 bytes more, and 8192 at most */
	STALL_MOST = 8192 - 16
};

void client_close(struct client *c)
{
	if (c->fd < 0)
		return;
	event_free(c->readable);
	event_free(c->writable);
	close(c->fd);
	c->fd = -1;
	buf_free(&c->in);
	buf_free(&c->out);
	c->s->nclients--;
}

int client_read(struct client *c)
{
	ssize_t n;

	do
		n = read(c->fd, buf_reserve(&c->in, READ_BYTES), READ_BYTES);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		c->in.len += (size_t)n;
		return 1;
	}
	if (n == 0 || errno != EAGAIN)
		return -1;
	if (!c->in.len)
		buf_free(&c->in);
	return 0;
}

int client_frame(const struct client *c, struct boot_head *h)
{
	static const struct {
		uint32_t least, room; /* bytes of the payload; ROOM is one more */
	} frames[] = {
		[BOOT_JOIN] = { sizeof(struct boot_join),
				sizeof(struct boot_join) + 1 },
		[BOOT_MEMORY] = { sizeof(uint64_t), sizeof(uint64_t) + 1 },
		[BOOT_FENCE] = { 1, BOOT_TEXT_BYTES + 1 },
		[BOOT_STALL] = { sizeof(uint32_t) + 1, STALL_MOST + 1 },
		[BOOT_MISSING_REQUEST] = { 0, 1 },
		[BOOT_LEAVE] = { 0, 1 },
		[BOOT_ELASTIC] = { sizeof(uint32_t), sizeof(uint32_t) + 1 },
		[BOOT_ALIVE] = { 0, 1 },
	};

	if (c->in.len < sizeof *h)
		return 0;
	memcpy(h, buf_head(&c->in), sizeof *h);
	if (h->number >= sizeof frames / sizeof *frames ||
	    h->bytes < frames[h->number].least || h->bytes >= frames[h->number].room)
		return -1;
	return c->in.len >= sizeof *h + h->bytes;
}

/* Send what goes out now of the N bytes at P: how many.  If none do, the event for
 * writing waits for room. */
static size_t client_send_some(struct client *c, const void *p, size_t n)
{
	ssize_t sent;

	do
		sent = send(c->fd, p, n, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent <= 0)
		loop_watch(c->writable);
	return sent < 0 ? 0 : (size_t)sent;
}

void client_flush(struct client *c)
{
	size_t n = 1;

	if (c->fd >= 0)
		loop_send(&c->out, c->fd, c->writable);
	while (n && c->fd >= 0 && !c->out.len && c->gets_fence_data) {
		const struct buf *data = &c->round->fence_data;

		n = client_send_some(c, buf_head(data) + c->fence_data_sent,
				     data->len - c->fence_data_sent);
		c->fence_data_sent += n;
		c->gets_fence_data = c->fence_data_sent < data->len;
	}
}

static void client_queue(struct client *c, uint32_t number, const void *payload,
			 size_t n)
{
	const struct boot_head head = { (uint32_t)n, number };

	buf_add(&c->out, &head, sizeof head);
	buf_add(&c->out, payload, n);
}

void client_send(struct client *c, uint32_t number, const void *payload, size_t n)
{
	if (c->fd < 0)
		return;
	client_queue(c, number, payload, n);
	client_flush(c);
}

bool client_send_fd(struct client *c, uint32_t number, const void *payload, size_t n,
		    int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof fd)];
	} control = { .head = { CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec part;
	struct msghdr m = { .msg_iov = &part,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof control };

	memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
	client_queue(c, number, payload, n);
	part = (struct iovec){ buf_head(&c->out), c->out.len };
	if (sendmsg(c->fd, &m, MSG_NOSIGNAL) != (ssize_t)c->out.len)
		return false;
	buf_drop(&c->out, c->out.len);
	return true;
}

void client_refuse(struct client *c, uint32_t number, const char *why)
{
	client_send(c, number, why, strlen(why) + 1);
	client_close(c);
}
