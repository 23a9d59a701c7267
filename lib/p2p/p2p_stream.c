#include "lib/p2p/p2p_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "lib/base/clock.h"

enum { OTHER_LANE_MS = 5000 };

/* They go in place of data whose owner no longer waits. */
static const unsigned char zeros[16 << 10];

struct p2p_stream *p2p_stream_open(struct net *net, unsigned peer)
{
	struct p2p_stream *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->net = net;
	s->peer = peer;
	s->speaks = s->hears = -1;
	return s;
}

void p2p_stream_close(struct p2p_stream *s)
{
	if (!s)
		return;
	net_drop(s->net, s->peer);
	free(s->out);
	free(s->in);
	free(s);
}

bool p2p_stream_is_made(const struct p2p_stream *s)
{
	return net_socket(s->net, s->peer, 0) >= 0 ||
	       net_socket(s->net, s->peer, 1) >= 0;
}

berth_result p2p_stream_have(struct p2p_stream *s)
{
	berth_result rc;

	if (s->speaks >= 0 || !s->wanted)
		return BERTH_OK;
	for (unsigned lane = 0; lane < 2; lane++)
		if (net_socket(s->net, s->peer, lane) >= 0)
			s->speaks = (int)lane;
	if (s->speaks >= 0) {
		/* else the connection would be polled, and nobody would go on with
		 * it */
		net_begin_not(s->net, s->peer);
		return BERTH_OK;
	}
	rc = net_begin(s->net, s->peer);
	if (!rc)
		return p2p_stream_have(s);
	return rc == BERTH_BUSY ? BERTH_OK : rc;
}

size_t p2p_stream_polls(const struct p2p_stream *s, struct pollfd *p)
{
	size_t n = 0;

	for (int lane = 0; lane < 2; lane++) {
		int fd = net_socket(s->net, s->peer, (unsigned)lane);
		bool out = lane == s->speaks && !p2p_stream_is_flushed(s);
		bool in = !s->has_left && (s->hears < 0 || s->hears == lane);

		in &= !s->has_ended[lane];
		if (fd >= 0 && (in || out))
			p[n++] = (struct pollfd){
				fd, (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0)), 0
			};
	}
	return n;
}

/* ---- sending ---- */

static struct net_channel *stream_speaking(const struct p2p_stream *s)
{
	return net_channel(s->net, s->peer, (unsigned)s->speaks);
}

static void put_bytes(struct p2p_stream *s, const void *bytes, size_t n)
{
	if (n)
		memcpy(s->out + s->out_at + s->out_have, bytes, n);
	s->out_have += n;
}

bool p2p_stream_put(struct p2p_stream *s, const struct p2p_frame *f, const void *body,
		    size_t bytes)
{
	struct p2p_wire w = { .frame = *f };
	struct net_mac *mac;
	uint64_t tail;

	s->wanted = true;
	if (!s->out)
		s->out = malloc(P2P_OUT_BYTES);
	if (!s->out || s->speaks < 0 || s->data_left ||
	    sizeof w + bytes + sizeof tail > P2P_OUT_BYTES - s->out_have)
		return false;
	if (s->out_at + s->out_have + sizeof w + bytes + sizeof tail > P2P_OUT_BYTES) {
		memmove(s->out, s->out + s->out_at, s->out_have);
		s->out_at = 0;
	}
	mac = stream_speaking(s)->out;
	w.mark = net_mark(mac, f);
	mac->number++;
	put_bytes(s, &w, sizeof w);
	put_bytes(s, body, bytes);
	if (net_tail_bytes(mac, bytes)) {
		tail = net_tail(mac, w.mark.number, body, bytes);
		put_bytes(s, &tail, sizeof tail);
	}
	return true;
}

bool p2p_stream_put_data(struct p2p_stream *s, const struct p2p_frame *f,
			 const void *data, size_t bytes)
{
	if (bytes <= NET_SMALL_BYTES)
		return p2p_stream_put(s, f, data, bytes);
	if (!p2p_stream_put(s, f, NULL, 0))
		return false;
	net_tail_begin(stream_speaking(s)->out);
	s->data = data;
	s->data_left = s->data_bytes = bytes;
	s->data_number = stream_speaking(s)->out->number - 1;
	return true;
}

/* K bytes of a body have gone.  They are hashed only now, since zeros may have gone in
 * place of data whose owner no longer waits. */
static void note_data(struct p2p_stream *s, size_t k)
{
	struct net_mac *mac = stream_speaking(s)->out;
	uint64_t tail;

	if (net_tail_bytes(mac, s->data_bytes))
		net_tail_add(mac, s->data ? s->data : zeros, k);
	s->data_left -= k;
	if (s->data)
		s->data += k;
	if (s->data_left || !net_tail_bytes(mac, s->data_bytes))
		return;
	tail = net_tail_end(mac, s->data_number, s->data_bytes);
	put_bytes(s, &tail, sizeof tail);
}

static ssize_t send_some(struct p2p_stream *s)
{
	size_t data =
		!s->data && s->data_left > sizeof zeros ? sizeof zeros : s->data_left;
	const struct iovec v[2] = {
		{ s->out + s->out_at, s->out_have },
		{ (void *)(uintptr_t)(s->data ? s->data : zeros), data },
	};

	return net_channel_send(stream_speaking(s), v, data ? 2 : 1);
}

bool p2p_stream_flush(struct p2p_stream *s)
{
	int fd = s->speaks < 0 ? -1 : net_socket(s->net, s->peer, (unsigned)s->speaks);

	while (fd >= 0 && !p2p_stream_is_flushed(s)) {
		ssize_t k = send_some(s);
		size_t head;

		if (k <= 0)
			return k == 0 || errno == EAGAIN || errno == EINTR;
		s->moved = true;
		head = (size_t)k < s->out_have ? (size_t)k : s->out_have;
		s->out_at += head;
		s->out_have -= head;
		if (!s->out_have)
			s->out_at = 0;
		if ((size_t)k > head)
			note_data(s, (size_t)k - head);
	}
	return true;
}

bool p2p_stream_is_sent(const struct p2p_stream *s)
{
	int fd = s->speaks < 0 ? -1 : net_socket(s->net, s->peer, (unsigned)s->speaks);
	struct pollfd reset = { fd, 0, 0 };
	int left = 0;

	/* A peer that has closed the connection takes nothing more, and SIOCOUTQ still
	 * counts the bytes that it did not take. */
	return p2p_stream_is_flushed(s) && (fd < 0 || ioctl(fd, SIOCOUTQ, &left) ||
					    !left || poll(&reset, 1, 0) > 0);
}

/* ---- receiving ---- */

static struct net_channel *stream_hearing(const struct p2p_stream *s)
{
	return net_channel(s->net, s->peer, (unsigned)s->hears);
}

/* How many bytes are read ahead.  Of large data these are only the tail and the next
 * head, so that the next data come to their place. */
static size_t stream_ahead(const struct p2p_stream *s)
{
	return s->is_bulk ? s->tailing + sizeof(struct p2p_wire) : P2P_IN_BYTES;
}

/* Receive MOST bytes or fewer to TO.  The bytes behind them go to IN, which is
 * empty. */
static ssize_t stream_receive(struct p2p_stream *s, void *to, size_t most)
{
	size_t behind = stream_ahead(s);
	const struct iovec v[2] = { { to, most }, { s->in, behind } };
	ssize_t k = net_channel_receive(stream_hearing(s), v, 2);

	s->is_drained = k < (ssize_t)(most + behind);
	if (k <= (ssize_t)most)
		return k;
	s->in_at = 0;
	s->in_have = (size_t)k - most;
	return (ssize_t)most;
}

/* Receive more bytes into IN, until it has MOST bytes.  If it already has as many,
 * receive as many as there is room for. */
static ssize_t stream_fill(struct p2p_stream *s, int lane, size_t most)
{
	size_t room = most > s->in_have ? most - s->in_have : P2P_IN_BYTES - s->in_have;
	ssize_t k;

	if (s->in_at) {
		memmove(s->in, s->in + s->in_at, s->in_have);
		s->in_at = 0;
	}
	k = net_channel_receive(net_channel(s->net, s->peer, (unsigned)lane),
				&(struct iovec){ s->in + s->in_have, room }, 1);
	s->is_drained = k < (ssize_t)room;
	if (k > 0)
		s->in_have += (size_t)k;
	return k;
}

static bool stream_is_over(struct p2p_stream *s, ssize_t k)
{
	s->is_forged |= k < 0 && errno == EBADMSG;
	return k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR);
}

/* Receive more into IN.  FALSE: the peer is gone.  The peer speaks on the lane on which
 * it is heard first.  If the other lane ends before, the last frames of the peer may
 * still come. */
static bool stream_more(struct p2p_stream *s)
{
	bool made = false;
	uint64_t now;

	if (!s->in)
		s->in = malloc(P2P_IN_BYTES);
	if (!s->in)
		return false;
	for (int lane = 0; lane < 2; lane++) {
		int fd = net_socket(s->net, s->peer, (unsigned)lane);
		ssize_t k;

		if (fd < 0 || s->has_ended[lane] || (s->hears >= 0 && s->hears != lane))
			continue;
		k = stream_fill(s, lane, stream_ahead(s));
		if (k > 0) {
			s->hears = lane;
			return true;
		}
		s->has_ended[lane] = stream_is_over(s, k);
		made |= !s->has_ended[lane];
	}
	if (s->is_forged)
		return false;
	/* A peer closes both lanes, so the other lane ends soon.  If it does not,
	 * somebody else has closed this lane, and the frames that the peer said there
	 * no longer come. */
	if (made && s->hears < 0 && (s->has_ended[0] || s->has_ended[1])) {
		now = clock_ns();
		if (!s->ended_ns)
			s->ended_ns = now;
		if (now - s->ended_ns > OTHER_LANE_MS * 1000000ull)
			return false;
	}
	return made || !p2p_stream_is_made(s);
}

/* Does TAIL stand in IN, AT bytes further on? */
static bool is_tail(const struct p2p_stream *s, uint64_t tail, size_t at)
{
	return !memcmp(&tail, s->in + s->in_at + at, sizeof tail);
}

/* Take a whole frame from IN, or the head of a DATA frame.  1: done; 0: it is not there
 * yet; -1: it cannot be. */
static int stream_take_head(struct p2p_stream *s)
{
	struct net_mac *mac;
	struct p2p_wire w;
	uint64_t body;
	size_t tailing;

	if (s->in_have < sizeof w)
		return 0;
	memcpy(&w, s->in + s->in_at, sizeof w);
	mac = stream_hearing(s)->in;
	s->is_forged = !net_mark_is_good(mac, &w.mark, &w.frame, false);
	if (s->is_forged || !p2p_frame_body(&w.frame, &body))
		return -1;
	tailing = net_tail_bytes(mac, body);
	s->is_proved = w.frame.kind != P2P_DATA || body <= NET_SMALL_BYTES;
	if (s->is_proved && s->in_have < sizeof w + body + tailing)
		return 0;
	s->is_forged = s->is_proved && tailing &&
		       !is_tail(s,
				net_tail(mac, w.mark.number,
					 s->in + s->in_at + sizeof w, body),
				sizeof w + body);
	if (s->is_forged)
		return -1;
	mac->number++;
	s->in_at += sizeof w;
	s->in_have -= sizeof w;
	s->frame = w.frame;
	s->number = w.mark.number;
	s->body = s->body_bytes = body;
	s->tailing = tailing;
	if (!s->is_proved)
		net_tail_begin(mac);
	s->is_bulk = body == P2P_DATA_BYTES;
	s->is_inside = true;
	return 1;
}

int p2p_stream_head(struct p2p_stream *s, struct p2p_frame *f, bool *fresh)
{
	int rc = 1;

	if (s->has_left)
		return 0;
	if (s->is_over)
		return -1;
	*fresh = !s->is_inside;
	if (!s->is_inside) {
		rc = stream_take_head(s);
		/* a head alone, then the body that is proved with it */
		for (int i = 0; i < 2 && !rc && !s->is_drained; i++) {
			if (!stream_more(s))
				return -1;
			rc = stream_take_head(s);
		}
	}
	*f = s->frame;
	return rc;
}

/* Take the bytes of the body that IN has, to TO, or nowhere. */
static size_t take_body(struct p2p_stream *s, void *to)
{
	const size_t k = s->in_have < s->body ? s->in_have : s->body;

	if (to)
		memcpy(to, s->in + s->in_at, k);
	if (!s->is_proved && s->tailing)
		net_tail_add(stream_hearing(s)->in, s->in + s->in_at, k);
	s->in_at += k;
	s->in_have -= k;
	return k;
}

/* Take the tail, behind all of the body. */
static void take_tail(struct p2p_stream *s)
{
	if (s->in_have < s->tailing && !s->is_drained)
		s->is_over =
			stream_is_over(s, stream_fill(s, s->hears, stream_ahead(s)));
	if (s->in_have < s->tailing)
		return;
	if (!s->is_proved &&
	    !is_tail(s, net_tail_end(stream_hearing(s)->in, s->number, s->body_bytes),
		     0)) {
		s->is_forged = s->is_over = true;
		return;
	}
	s->in_at += s->tailing;
	s->in_have -= s->tailing;
	s->tailing = 0;
}

size_t p2p_stream_body(struct p2p_stream *s, void *to)
{
	size_t k = 0;
	ssize_t got;

	if (s->in_have || !s->body || s->is_drained) {
		k = take_body(s, to);
	} else {
		got = to ? stream_receive(s, to, s->body)
			 : stream_fill(s, s->hears, P2P_IN_BYTES);
		s->is_over = stream_is_over(s, got);
		if (!to)
			k = take_body(s, to);
		else if (got > 0)
			k = (size_t)got;
		if (to && k && s->tailing)
			net_tail_add(stream_hearing(s)->in, to, k);
	}
	s->body -= k;
	if (!s->body && s->tailing && !s->is_over)
		take_tail(s);
	return k;
}

void p2p_stream_next(struct p2p_stream *s)
{
	s->is_inside = false;
}
