#include "lib/net/net_state.h"

#include <sodium.h>
#include <stdio.h>

/* The faults of connections, for the errors of both ends and of other ranks. */

/* Note a fault of the connection between BY and PEER. */
static void fault_note(struct net *n, int kind, unsigned by, unsigned peer,
		       const char *address)
{
	struct net_fault *f = &n->fault;

	if (f->kind)
		return;
	snprintf(f->address, sizeof f->address, "%s", address ? address : "");
	f->by = by;
	f->peer = peer;
	f->kind = kind;
}

void net_note_fault(struct net *n, int kind, unsigned peer, const char *address,
		    const char *text)
{
	if (n->fault.kind)
		return;
	snprintf(n->fault.text, sizeof n->fault.text, "%s", text ? text : "");
	fault_note(n, kind, n->config.rank, peer, address);
}

void net_is_forged(struct net *n, unsigned peer, unsigned lane)
{
	net_note_fault(n, NET_FORGED, peer, net_link(n, peer, lane)->channel.address,
		       NULL);
}

const struct net_fault *net_fault(const struct net *n)
{
	return n->fault.kind ? &n->fault : NULL;
}

/* PEER tells of a fault.  The other rank may be this one, or PEER may have heard of the
 * fault itself. */
static void fault_hear_fault(struct net *n, unsigned peer, const struct head *h)
{
	const uint32_t by = h->note.word[0], of = h->tag.seq, kind = h->note.word[1];
	const char *address = NULL;

	if (by >= n->config.size || of >= n->config.size || kind < NET_FORGED ||
	    kind > NET_UNLIKE)
		return;
	for (unsigned lane = 0; lane < NET_LANES && by == peer; lane++)
		if (of == n->config.rank && !address)
			address = net_link(n, peer, lane)->channel.address;
	fault_note(n, (int)kind, by, of, address);
}

berth_result net_given_up(struct net *n, unsigned peer, const struct head *h,
			  unsigned *lost)
{
	berth_result why;

	if (h->tag.group != GROUP_LOST)
		return BERTH_OK;
	*lost = h->tag.seq;
	why = net_reason(h->tag.step);
	if (why == BERTH_AUTH)
		fault_hear_fault(n, peer, h);
	return why;
}

/* ---- handshakes ---- */

struct net_hello net_own_hello(const struct net *n, unsigned peer, unsigned lane)
{
	const uint32_t has =
		crypto_aead_aes256gcm_is_available() ? NET_AEAD | NET_AES : NET_AEAD;

	static const uint32_t does[] = {
		[NET_GUARD_MAC] = NET_MAC, [NET_GUARD_HEADS] = NET_HEADS
	};

	return (struct net_hello){ .from = n->config.rank,
				   .to = peer,
				   .lane = lane,
				   .net = n->config.id,
				   .at = net_rank_at_door(n, peer),
				   .epoch = n->config.epoch,
				   .ranks = n->config.size,
				   .secure = n->config.guard == NET_GUARD_AEAD
						     ? has
						     : does[n->config.guard] };
}

uint32_t net_common(const struct net_hello *own, const struct net_hello *h)
{
	const uint32_t both = own->secure & h->secure;

	return both & (NET_MAC | NET_HEADS | NET_AEAD) ? both : 0;
}

enum net_verdict net_judge(const struct net *n, const struct net_hello *h)
{
	const struct net_hello own = net_own_hello(n, h->from, h->lane);

	if (h->epoch != own.epoch)
		return NET_OTHER_EPOCH;
	if (h->ranks != own.ranks)
		return NET_OTHER_RANKS;
	return net_common(&own, h) ? NET_WELCOME : NET_OTHER_SECURE;
}

void net_note_verdict(struct net *n, unsigned peer, int fd, uint32_t verdict)
{
	static const char *const text[] = { "refuses this rank",
					    "is in another epoch of the job",
					    "knows another number of ranks",
					    "has another BERTH_NET_SECURE",
					    "has left" };

	char address[NET_TEXT_BYTES];

	net_channel_name(address, fd);
	net_note_fault(n, NET_UNLIKE, peer, address,
		       text[verdict <= NET_LEFT ? verdict : 0]);
}
