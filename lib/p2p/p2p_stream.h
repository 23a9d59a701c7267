/* p2p_stream.h - frames (p2p_frame.h) to and from a rank of another host.
 *
 * Each rank begins a connection when it has something to say (net_begin()).  If both
 * do, there are two connections, and each rank goes on with the one on which it has
 * spoken first.  Each frame has a mark, and behind its body the tail of the body
 * (net_mac.h).  No call blocks.  Small frames gather in a buffer, so that one call
 * sends many of them.  A piece of data is sent from its place, and received into its
 * place. */
#ifndef BERTH_LIB_P2P_STREAM_H
#define BERTH_LIB_P2P_STREAM_H

#include <poll.h>

#include "lib/p2p/p2p_frame.h"

enum {
	P2P_OUT_BYTES = 32 << 10,
	P2P_IN_BYTES = 64 << 10,
	P2P_DATA_BYTES = 256 << 10 /* of one frame: the next frame waits for it */
};

struct p2p_stream {
	struct net *net;
	unsigned peer;
	int speaks, hears; /* on which lane; -1: not known yet */
	bool has_ended[2]; /* nothing more comes on that lane */
	uint64_t ended_ns; /* since when one lane has ended, and not the other */
	bool wanted;       /* there is something to say */
	bool has_left;     /* the peer says that it has left: nothing more is read */
	bool is_drained;   /* there was no more to read, in this pass */
	bool is_over;      /* the peer has ended it in the middle of a body */
	bool is_bulk;      /* more of the same data follows */
	bool is_forged;    /* bytes have come that the peer did not say */
	bool moved;        /* bytes went, since it was last asked */
	unsigned char *out, *in;
	size_t out_at, out_have, in_at, in_have;
	/* The body that goes behind OUT.  NULL: zeros go, since it is gone. */
	const unsigned char *data;
	size_t data_left;
	uint64_t data_number; /* of its head */
	size_t data_bytes;    /* of all of it */
	/* of the frame that comes */
	struct p2p_frame frame;
	uint64_t body, body_bytes; /* its bytes that have not come; all its bytes */
	uint64_t number;
	size_t tailing; /* bytes of the tail that have not come */
	bool is_proved; /* the tail has been checked with the head */
	bool is_inside;
};

/* NULL: out of memory. */
struct p2p_stream *p2p_stream_open(struct net *net, unsigned peer);
void p2p_stream_close(struct p2p_stream *s);
/* Connect if that is wanted.  BERTH_OK: go on, connected or not. */
berth_result p2p_stream_have(struct p2p_stream *s);
/* Is there a connection, from either side? */
bool p2p_stream_is_made(const struct p2p_stream *s);
/* Its sockets, at most two. */
size_t p2p_stream_polls(const struct p2p_stream *s, struct pollfd *p);

/* Put all of the frame, or nothing if there is no room (FALSE). */
bool p2p_stream_put(struct p2p_stream *s, const struct p2p_frame *f, const void *body,
		    size_t bytes);
/* Put a frame whose body is sent from where it lies, until DATA_LEFT is 0. */
bool p2p_stream_put_data(struct p2p_stream *s, const struct p2p_frame *f,
			 const void *data, size_t bytes);
/* Send as much as possible.  FALSE: the peer is gone. */
bool p2p_stream_flush(struct p2p_stream *s);
static inline bool p2p_stream_is_flushed(const struct p2p_stream *s)
{
	return !s->out_have && !s->data_left;
}

/* Has the peer's host received all of it, or does it take nothing more? */
bool p2p_stream_is_sent(const struct p2p_stream *s);

/* The next frame, or the one that has been begun (*FRESH says which).  1: it is there;
 * 0: it has not come yet; -1: the peer is gone, or the frame cannot be. */
int p2p_stream_head(struct p2p_stream *s, struct p2p_frame *f, bool *fresh);
/* Take the bytes of that frame's body that have come, to TO (NULL: nowhere).  Returns
 * how many.  BODY becomes less by as many. */
size_t p2p_stream_body(struct p2p_stream *s, void *to);
/* All of the body has been read, and the peer has said it. */
static inline bool p2p_stream_is_whole(const struct p2p_stream *s)
{
	return !s->body && !s->tailing;
}
/* The frame has been read. */
void p2p_stream_next(struct p2p_stream *s);

#endif
