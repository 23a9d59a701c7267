#include "lib/net/net_state.h"

#include <errno.h>
#include <string.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

/* Connections that are not used are closed, so that an idle set costs no descriptor.
 * The rank that has begun one says RELEASE, and nothing more until the other rank
 * answers.  RELEASED: the other rank has ended the connection.  KEPT: the other rank
 * uses it.  A message that was on its way is an answer, too: the first rank had not
 * received it yet. */

enum { IDLE_LOOKS = 2 };

static bool idle_say(struct link *l, uint32_t group)
{
	const struct head h = { .magic = HEAD_MAGIC,
				.tag = { .group = group },
				.note = { { l->got } } };

	/* all earlier messages have come, so there is room */
	return !net_channel_is_half(&l->channel) && net_tell(&l->channel, h);
}

static bool next_head(const struct link *l, struct head *h)
{
	if (l->have < sizeof *h)
		return false;
	memcpy(h, l->stash + l->at, sizeof *h);
	return true;
}

/* Is H the next head that the peer said, and of GROUP?  Then it is taken.  Else it
 * stays for the next exchange. */
static bool idle_take_head(struct link *l, const struct head *h, uint32_t group)
{
	if (h->tag.group != group || !net_is_said(l, h, false))
		return false;
	l->channel.in->number++;
	l->at += sizeof *h;
	l->have -= sizeof *h;
	return true;
}

void net_keep(struct link *l, const struct head *h)
{
	/* else a message that says so is on its way */
	if (l->sent == h->note.word[0] && !l->half)
		idle_say(l, GROUP_KEPT);
}

bool net_is_settled(struct link *l)
{
	struct head h;

	if (!next_head(l, &h))
		return false;
	l->releasing = false;
	if (idle_take_head(l, &h, GROUP_RELEASED))
		net_close_link(l);
	else
		idle_take_head(l, &h, GROUP_KEPT);
	return true;
}

/* The peer has begun L, and may want to release it. */
static void idle_hear_release(struct link *l)
{
	struct head h;

	if (!next_head(l, &h) || !idle_take_head(l, &h, GROUP_RELEASE))
		return;
	if (l->sent == h.note.word[0] && !l->half && !l->have &&
	    idle_say(l, GROUP_RELEASED))
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
			int left = 0; /* what the peer's host has not received */

			if (l->channel.fd < 0)
				continue;
			if (l->have < sizeof(struct head))
				net_fill(l);
			if (n->config.rank > peer)
				idle_hear_release(l);
			else if (l->releasing)
				net_is_settled(l);
			else if (n->idle_looks >= IDLE_LOOKS && !l->have && !l->half &&
				 !ioctl(l->channel.fd, SIOCOUTQ, &left) && !left)
				l->releasing = idle_say(l, GROUP_RELEASE);
		}
}
