#include "lib/net/net_ask.h"
#include "lib/net/net_door.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fiber.h"
#include "lib/base/wait.h"

/* ---- opening and closing ---- */

struct net *net_open(const struct net_config *config, char *why, size_t why_bytes)
{
	const struct net_door_config own = { .rank = config->rank,
					     .size = config->size,
					     .key = config->key,
					     .range = config->range,
					     .interfaces = config->interfaces };
	struct net *n = calloc(1, sizeof *n);

	snprintf(why, why_bytes, "out of memory");
	if (!n)
		return NULL;
	n->config = *config;
	n->link = calloc((size_t)config->size * NET_LANES, sizeof *n->link);
	n->heard = calloc((size_t)config->size * NET_LANES, sizeof *n->heard);
	n->piece = aligned_alloc(64, TAKE_BYTES + 64);
	for (size_t i = 0; n->link && i < (size_t)config->size * NET_LANES; i++)
		n->link[i].channel.fd = -1;
	n->door = config->door;
	n->owns_door = !n->door;
	if (n->link && n->heard && n->piece && n->owns_door)
		n->door = net_door_open(&own, why, why_bytes);
	n->config.key = NULL; /* the caller's */
	if (!n->link || !n->heard || !n->piece || !n->door) {
		net_close(n);
		return NULL;
	}
	net_door_add(n->door, n);
	return n;
}

static size_t net_links(const struct net *n)
{
	return n->link ? (size_t)n->config.size * NET_LANES : 0;
}

static void close_all(struct net *n)
{
	for (size_t i = 0; i < net_links(n); i++) {
		net_close_link(&n->link[i]);
	}
	for (size_t i = 0; n->begun && i < n->config.size; i++)
		if (n->begun[i].fd >= 0)
			descriptor_close(n->begun[i].fd);
	free(n->begun);
	n->begun = NULL;
}

/* Tell all peers.  No connection comes from here on.  A peer reads the head between two
 * messages.  In the middle of a message it sees only the end of the stream, which says
 * that some rank is gone, but not which one. */
static void tell_all(struct net *n, uint32_t group, unsigned rank, berth_result why)
{
	const struct head h = { .magic = HEAD_MAGIC,
				.tag = { group, rank, why },
				.note = { { n->fault.by, n->fault.kind,
					    done_count(n->done) } } };

	/* if exchanges are not used, the caller speaks there itself */
	net_door_remove(n->door, n, n->begun ? NULL : &h);
	net_serve(n);
	for (size_t i = 0; i < net_links(n) && !n->begun; i++)
		if (n->link[i].channel.fd >= 0 && !n->link[i].half &&
		    !net_channel_is_half(&n->link[i].channel))
			net_tell(&n->link[i].channel, h);
}

void net_close(struct net *n)
{
	if (!n)
		return;
	if (n->door && !n->broken) {
		net_serve(n); /* peers that have just come hear it, too */
		tell_all(n, GROUP_LEAVES, n->config.rank, BERTH_OK);
	}
	close_all(n);
	if (n->owns_door)
		net_door_close(n->door);
	free(n->link);
	free(n->heard);
	free(n->piece);
	free(n);
}

const char *net_address(const struct net *n)
{
	return net_door_address(n->door);
}

berth_result net_peer(struct net *n, unsigned rank, const char *address)
{
	if (rank >= n->config.size)
		return BERTH_INVALID;
	return net_door_peer(n->door, net_rank_at_door(n, rank), address);
}

void net_watch(struct net *n, berth_result (*look)(void *ctx),
	       const _Atomic uint32_t *done, void *ctx)
{
	n->look = look;
	n->done = done;
	n->ctx = ctx;
}

void net_break(struct net *n, unsigned lost, berth_result why)
{
	if (n->broken)
		return;
	n->lost = lost < n->config.size ? lost : n->config.size;
	n->broken = true;
	n->why = net_reason(why);
	/* the watcher may know that LOST has ended before its stream ends */
	if (n->why == BERTH_PEER_LOST && net_link_address(n, lost))
		net_note_fault(n, NET_CUT, lost, net_link_address(n, lost), NULL);
	tell_all(n, GROUP_LOST, n->lost, n->why);
	close_all(n);
}

/* ---- waiting ---- */

enum {
	ASK_MS = 500, /* in which the host hears which rank is gone */
	DOOR_MS =
		1500, /* in which a door answers, if packets are lost and sent again */
	LEFT_MS = 100 /* in which the host hears because of whom the peer has left */
};

/* Has the stream of PEER ended, or has PEER said WHY it gives up?  Its last head may
 * have been read already. */
static bool has_ended(struct net *n, unsigned peer, struct link *l, unsigned *lost,
		      berth_result *why)
{
	struct head h = { 0 };
	ssize_t k = net_channel_peek(&l->channel, &h, sizeof h);
	bool over = k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR);

	if (over && !net_channel_last(&l->channel, &h, sizeof h) && l->have >= sizeof h)
		memcpy(&h, l->stash + l->at + l->have - sizeof h, sizeof h);
	if ((!over && k != sizeof h) || !net_is_said(l, &h, true))
		return over;
	if (net_is_beyond(n, &h))
		return false;
	*why = net_given_up(n, peer, &h, lost);
	return *why || over;
}

berth_result net_ended(struct net *n, unsigned peer, berth_result why)
{
	const bool asks = why == BERTH_PEER_LOST && net_of_leaver(n) == BERTH_ABORTED &&
			  net_link_address(n, peer);
	struct net_ask k = { .fd = -1 };
	uint64_t since = clock_ns(), now = since, ms = ASK_MS;
	berth_result rc = BERTH_OK;

	while (n->look && !n->broken && !rc && now < since + ms * 1000000 &&
	       (!n->deadline_ns || now < n->deadline_ns)) {
		rc = n->look(n->ctx);
		if (rc)
			break;
		if (asks && !k.left && net_ask_left(n, peer, &k) && k.left)
			since = now;
		ms = k.left ? LEFT_MS : k.fd >= 0 ? DOOR_MS : ASK_MS;
		fiber_pause(5000000);
		now = clock_ns();
	}
	net_ask_end(&k);
	if (k.left && !rc && !n->broken) {
		if (n->fault.kind == NET_CUT) /* it was not */
			memset(&n->fault, 0, sizeof n->fault);
		why = BERTH_ABORTED;
	}
	net_break(n, peer, why);
	return rc;
}

/* A peer for which this rank does not wait may be gone, and so may the ranks that wait
 * for it.  If a peer has said that it leaves, its head is still to be read, and it is
 * not lost. */
static void look_at_peers(struct net *n)
{
	for (size_t i = 0; i < net_links(n) && !n->broken; i++) {
		unsigned peer = (unsigned)(i / NET_LANES), lost = peer;
		berth_result why = BERTH_OK;

		if (n->link[i].channel.fd < 0 || n->link[i].releasing ||
		    !has_ended(n, peer, &n->link[i], &lost, &why))
			continue;
		if (lost == peer)
			net_ended(n, peer, BERTH_PEER_LOST);
		else
			net_break(n, lost, why);
	}
}

static berth_result look_around(struct net *n, uint64_t deadline_ns)
{
	uint64_t now = clock_ns();
	berth_result rc = BERTH_OK;

	if (now - n->looked_ns >= wait_look_ns()) {
		n->looked_ns = now;
		look_at_peers(n);
		rc = n->look && !n->broken ? n->look(n->ctx) : BERTH_OK;
		n->ends_here = rc == BERTH_ABORTED && !n->broken;
	}
	if (n->broken)
		return n->why;
	return !rc && deadline_ns && now >= deadline_ns ? BERTH_TIMEOUT : rc;
}

/* Until the next look, but not past DEADLINE_NS. */
static int sleep_ms(uint64_t deadline_ns)
{
	uint64_t now = clock_ns(), until = now + wait_look_ns();

	if (deadline_ns && deadline_ns < until)
		until = deadline_ns;
	return until > now ? (int)((until - now + 999999) / 1000000) : 0;
}

berth_result net_sleep(struct net *n, struct pollfd *p, nfds_t np, uint64_t deadline_ns)
{
	struct fiber_wait w = { .sockets = p, .nsockets = np };
	berth_result rc = look_around(n, deadline_ns);
	const int ms = sleep_ms(deadline_ns);

	if (!rc && fiber_runs()) {
		w.until_ns = clock_ns() + (uint64_t)ms * 1000000;
		fiber_wait(&w);
	} else if (!rc) {
		poll(p, np, ms);
	}
	return rc;
}

berth_result net_sleep_until(struct net *n, uint32_t came, uint64_t deadline_ns)
{
	berth_result rc = look_around(n, deadline_ns);
	int ms = sleep_ms(deadline_ns);

	if (!rc && ms)
		fiber_sleep_on(&n->came, came, (uint64_t)ms * 1000000);
	return rc;
}
