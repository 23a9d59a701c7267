/* p2p_frame.h - the frames in which two ranks speak about their messages (p2p.h), in a
 * ring or on a connection.
 *
 * A sender gives each message a number (ID).  A receiver gives a number (TO) to each
 * message that it takes.  Numbers that come from the other side are checked.
 *
 * The first answer to a message, whatever it says, tells the sender that the receiver
 * no longer keeps the message: the sender may announce another one. */
#ifndef BERTH_LIB_P2P_FRAME_H
#define BERTH_LIB_P2P_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/p2p/p2p.h"

enum p2p_kind {
	P2P_EAGER = 0x50325001, /* a message with its data */
	P2P_OFFER,              /* a message without its data */
	P2P_TAKE,               /* of an OFFER: send the data */
	P2P_DATA,               /* a piece of them, in order */
	P2P_MATCHED,            /* an EAGER has matched */
	P2P_REFUSE,   /* an EAGER or OFFER has ended with SIGNATURE, a result */
	P2P_WITHDRAW, /* its sender no longer waits, or has stopped sending it */
	P2P_GONE,     /* it has been withdrawn */
	P2P_ASK,      /* its sender waits for messages of the group, and has said
			 nothing yet: has the other side left the group? */
	P2P_LEAVE,    /* its sender has left the group; of group 0: no frame follows */
	P2P_ABORT     /* its sender ends the group, for the reason that is its body */
};

enum {
	P2P_NO_ID = 0xffffffff,
	P2P_PIECE_BYTES = 1 << 20 /* of a DATA frame, at most */
};

struct p2p_frame {
	uint32_t kind;
	uint32_t group, place; /* the number of the group; its sender's place there */
	uint32_t signature, id, to;
	uint64_t tag;   /* of EAGER, OFFER, WITHDRAW */
	uint64_t bytes; /* of the message; of DATA: the piece; of ABORT: the reason */
};

/* On a connection. */
struct p2p_wire {
	struct p2p_frame frame;
	struct net_mark mark; /* of the frame; the tail is behind the body */
};

_Static_assert(sizeof(struct p2p_frame) == NET_HEAD_BYTES, "a mark is behind that");

/* BYTES becomes the size of the body of F.  FALSE: there is no such frame. */
static inline bool p2p_frame_body(const struct p2p_frame *f, uint64_t *bytes)
{
	bool has_body =
		f->kind == P2P_EAGER || f->kind == P2P_DATA || f->kind == P2P_ABORT;

	*bytes = has_body ? f->bytes : 0;
	if (f->kind == P2P_EAGER)
		return *bytes <= P2P_EAGER_BYTES;
	if (f->kind == P2P_ABORT)
		return *bytes <= P2P_REASON_BYTES;
	if (f->kind == P2P_DATA)
		return *bytes > 0 && *bytes <= P2P_PIECE_BYTES;
	return f->kind > P2P_EAGER && f->kind <= P2P_LEAVE;
}

#endif
