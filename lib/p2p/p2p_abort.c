#include <string.h>

#include "lib/p2p/p2p_internal.h"

/* The reason is text of another rank.  Make it one line that can be printed. */
static void make_line(char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes && text[i]; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			text[i] = '?';
	text[bytes] = '\0';
}

void p2p_hear_abort(struct p2p *p, struct p2p_peer *q)
{
	char text[P2P_REASON_BYTES + 1];
	size_t bytes = q->stream ? q->stream->body : q->in.body;

	p2p_peer_body(q, text);
	make_line(text, bytes);
	if (p->config.aborted)
		p->config.aborted(p->config.ctx, q->place, text);
	p2p_give_up(p, BERTH_ABORTED);
}

/* Tell Q that this rank ends the group.  Is there nothing more to be said to Q? */
static bool abort_tell(struct p2p *p, struct p2p_peer *q, const char *text)
{
	struct p2p_frame f = { .kind = P2P_ABORT,
			       .bytes = strnlen(text, P2P_REASON_BYTES) };

	if (q->gone || !q->stream)
		return true;
	if (q->rests && !p2p_is_lost(p, q) && !p2p_hear_rest(p, q))
		return false;
	q->stream->wanted = true;
	if (p2p_stream_have(q->stream) || p2p_is_lost(p, q) ||
	    !p2p_stream_flush(q->stream)) {
		p2p_lose(p, q);
		return true;
	}
	if (!q->said_abort)
		q->said_abort = p2p_peer_put(p, q, &f, text, f.bytes);
	return q->said_abort && p2p_stream_flush(q->stream) &&
	       p2p_stream_is_flushed(q->stream);
}

bool p2p_abort(struct p2p *p, const char *text)
{
	bool all = true;

	pthread_mutex_lock(&p->moving);
	if (p->config.net)
		net_serve(p->config.net);
	for (unsigned i = 0; i < p->config.members->n; i++)
		all &= i == p->config.members->me || abort_tell(p, &p->peer[i], text);
	pthread_mutex_unlock(&p->moving);
	return all;
}
