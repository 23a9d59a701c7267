#include "lib/net/net_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Connections that are not used are closed, so that a set which stands still costs no
 * descriptor.  Who has begun one says RELEASE, and nothing more until that is settled:
 * by RELEASED, KEPT, or a message that was on its way.  The other side has ended it, or
 * has sent what the first one has not got yet, or uses it. */

enum { IDLE_LOOKS = 2 };

void net_close_link(struct link *l)
{
	if (l->fd >= 0)
		descriptor_close(l->fd);
	free(l->stash);
	*l = (struct link){ .fd = -1 };
}

static bool say(const struct link *l, uint32_t group)
{
	const struct head h = { .magic = HEAD_MAGIC,
				.tag = { .group = group },
				.note = { { l->got } } };

	/* all that was sent before has been read: there is room */
	return send(l->fd, &h, sizeof h, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof h;
}

static bool next_head(const struct link *l, struct head *h)
{
	if (l->have < sizeof *h)
		return false;
	memcpy(h, l->stash + l->at, sizeof *h);
	return h->magic == HEAD_MAGIC;
}

static void skip_head(struct link *l)
{
	l->at += sizeof(struct head);
	l->have -= sizeof(struct head);
}

void net_keep(struct link *l, const struct head *h)
{
	/* else a message is on its way, which says so */
	if (l->sent == h->note.word[0] && !l->half)
		say(l, GROUP_KEPT);
}

bool net_is_settled(struct link *l)
{
	struct head h;

	if (!next_head(l, &h))
		return false;
	l->releasing = false;
	if (h.tag.group == GROUP_KEPT)
		skip_head(l);
	else if (h.tag.group == GROUP_RELEASED)
		net_close_link(l);
	return true;
}

/* Who has begun L says so; nothing has come there. */
static void release(struct net *n, struct link *l)
{
	if (n->idle_looks >= IDLE_LOOKS && !l->have && !l->half)
		l->releasing = say(l, GROUP_RELEASE);
}

/* Who has begun L would release it. */
static void hear_release(struct link *l)
{
	struct head h;

	if (!next_head(l, &h) || h.tag.group != GROUP_RELEASE)
		return;
	skip_head(l);
	if (l->sent == h.note.word[0] && !l->half && !l->have && say(l, GROUP_RELEASED))
		net_close_link(l);
}

void net_tidy(struct net *n)
{
	if (n->broken)
		return;
	n->idle_looks = n->exchanges == n->exchanges_seen ? n->idle_looks + 1 : 0;
	n->exchanges_seen = n->exchanges;
	for (unsigned peer = 0; peer < n->config.size; peer++)
		for (unsigned lane = 0; lane < NET_LANES; lane++) {
			struct link *l = net_link(n, peer, lane);

			if (l->fd < 0)
				continue;
			if (l->have < sizeof(struct head))
				net_fill(l);
			if (n->config.rank > peer)
				hear_release(l);
			else if (l->releasing)
				net_is_settled(l);
			else
				release(n, l);
		}
}
