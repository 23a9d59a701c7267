#include "lib/net/net_state.h"

#include <stdlib.h>
#include <string.h>

int net_open_link(struct net *n, unsigned peer, unsigned lane, int fd,
		  const struct net_hello *h, const struct net_answer *a)
{
	struct link l = { .stash = malloc(STASH_BYTES) };

	if (!l.stash || net_channel_open(&l.channel, fd, n->door->key, h, a,
					 h->from == n->config.rank)) {
		free(l.stash);
		return -1;
	}
	net_settle(n, fd);
	*net_link(n, peer, lane) = l;
	return 0;
}

void net_close_link(struct link *l)
{
	if (l->channel.fd >= 0)
		descriptor_close(l->channel.fd);
	net_channel_free(&l->channel);
	free(l->stash);
	*l = (struct link){ .channel = { .fd = -1 } };
}

const char *net_link_address(const struct net *n, unsigned peer)
{
	const char *address = NULL;

	for (unsigned lane = 0; lane < NET_LANES && !address && peer < n->config.size;
	     lane++)
		address = net_link(n, peer, lane)->channel.address;
	return address;
}

bool net_tell(struct net_channel *c, struct head h)
{
	const struct iovec v = { &h, sizeof h };
	ssize_t k;

	h.mark = net_mark(c->out, &h);
	k = net_channel_send(c, &v, 1);
	if (k > 0)
		c->out->number++;
	return k == sizeof h;
}

ssize_t net_fill(struct link *l)
{
	size_t room = STASH_BYTES - l->have;
	ssize_t k;

	memmove(l->stash, l->stash + l->at, l->have);
	l->at = 0;
	k = net_channel_receive(&l->channel,
				&(struct iovec){ l->stash + l->have, room }, 1);
	l->drained = k < (ssize_t)room;
	if (k > 0)
		l->have += (size_t)k;
	return k;
}
