/* Connections that are not used are closed, so that an idle group costs no descriptor.
 *
 * The lower rank says REST, and no message after it, until the upper rank answers.
 * STAY: the upper rank uses the connection.  REST_TOO: the lower rank closes the
 * connection.  The upper rank says nothing after REST_TOO until it sees that end.  So
 * each rank has read all that the other one said.  A new connection cannot meet the old
 * one, except one that comes before the end of the old one.  It takes the old one's
 * place (net_end()). */
#include "lib/p2p/p2p_internal.h"

enum { IDLE_LOOKS = 2 };

/* Is there nothing in progress with Q that needs the connection? */
static bool is_quiet(const struct p2p *p, const struct p2p_peer *q)
{
	if (atomic_load(&p->in_flight) || q->answers.n || q->waiting.first ||
	    q->sending.first || q->stream->data_left)
		return false;
	for (uint32_t i = 0; i < p->slots; i++)
		if (p->slot[i].state != P2P_FREE && p->slot[i].peer == q->place)
			return false;
	return true;
}

static bool rest_say(struct p2p *p, struct p2p_peer *q, uint32_t kind)
{
	struct p2p_frame f = { .kind = kind };

	q->stream->wanted = true; /* it speaks on the connection that there is */
	return !p2p_stream_have(q->stream) && p2p_peer_put(p, q, &f, NULL, 0) &&
	       p2p_stream_flush(q->stream);
}

/* The connection has ended, as both ranks wanted. */
static void rest_ends(struct p2p *p, struct p2p_peer *q)
{
	if (!q->rests || !net_is_renewed(p->config.net, q->place))
		net_drop(p->config.net, q->place);
	p2p_stream_rest(q->stream);
	q->asks = q->rests = false;
	q->silent = 0;
}

static bool take_rest(struct p2p *p, struct p2p_peer *q)
{
	if (p->config.members->me < q->place || q->rests || q->stays)
		return false;
	q->rests = is_quiet(p, q) && rest_say(p, q, P2P_REST_TOO);
	q->stays = !q->rests;
	if (q->rests)
		net_end(p->config.net, q->place);
	return true;
}

bool p2p_take_rest(struct p2p *p, struct p2p_peer *q, uint32_t kind)
{
	if (q->stream && kind == P2P_REST)
		return take_rest(p, q);
	if (!q->asks)
		return false;
	p->idle_looks = 0;
	q->asks = false;
	if (kind == P2P_REST_TOO)
		rest_ends(p, q);
	return true;
}

bool p2p_sees_rest(struct p2p *p, struct p2p_peer *q, bool has_ended)
{
	const bool ends = q->rests && !q->stream->is_forged &&
			  (has_ended || net_is_renewed(p->config.net, q->place));

	if (ends)
		rest_ends(p, q);
	return ends;
}

bool p2p_hear_rest(struct p2p *p, struct p2p_peer *q)
{
	struct p2p_frame f;
	bool fresh;
	int rc = 0;

	q->stream->is_drained = false;
	while (!p2p_sees_rest(p, q, rc < 0)) {
		rc = p2p_peer_head(q, &f, &fresh);
		if (rc > 0)
			p2p_peer_body(q, NULL);
		if (!rc || (rc > 0 && !p2p_stream_is_whole(q->stream)) ||
		    q->stream->is_forged)
			return false;
		if (rc > 0)
			p2p_peer_next(p, q);
	}
	return true;
}

void p2p_ask_to_rest(struct p2p *p, bool moved)
{
	p->idle_looks = moved || p->ended ? 0 : p->idle_looks + 1;
	for (unsigned i = p->config.members->me + 1; i < p->config.members->n; i++) {
		struct p2p_peer *q = &p->peer[i];

		if (p->idle_looks < IDLE_LOOKS || !q->stream || q->gone || q->asks ||
		    !p2p_stream_is_made(q->stream) || !is_quiet(p, q))
			continue;
		q->asks = rest_say(p, q, P2P_REST);
	}
}

bool p2p_all_rest(const struct p2p *p)
{
	for (unsigned i = 0; i < p->config.members->n; i++)
		if (p->peer[i].stream && p2p_stream_is_made(p->peer[i].stream))
			return false;
	return p->idle_looks >= IDLE_LOOKS;
}
