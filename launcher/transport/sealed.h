/* sealed.h - a connection that was accepted, sealed by a key (common/key.h).
 *
 * The other side proves first that it has the key.  Until then nothing that it sends
 * is passed on, and no more than that proof is read.  A proof is answered once: what a
 * process recorded and says again costs a look into a table. */
#ifndef BERTH_LAUNCHER_TRANSPORT_SEALED_H
#define BERTH_LAUNCHER_TRANSPORT_SEALED_H

#include "launcher/transport/transport.h"

struct sealed;
struct sealed_key;

enum {
	/* Calls that a key remembers, 8 bytes each.  When there are more, it begins
	 * anew: one that is answered again leads to nothing (common/key.h). */
	SEALED_CALLS_MOST = 1 << 17
};

/* KEY (KEY_BYTES), and the calls that were answered with it.  It stays until no stream
 * of it awaits a call. */
struct sealed_key *sealed_key_make(const unsigned char *key);
void sealed_key_free(struct sealed_key *k);

/* Take FD, whose other side must have K's key.  Events come from the loop; ended() says
 * nothing more than that. */
struct sealed *sealed_accept(struct event_base *base, int fd, struct sealed_key *k,
			     const struct transport_events *events, void *ctx);
/* From now on events go to others. */
void sealed_hand(struct sealed *s, const struct transport_events *events, void *ctx);
/* Bytes taken, 0..n.  Less than N: writable() will come. */
size_t sealed_send(struct sealed *s, const void *data, size_t n);
/* Close and free S; no event comes after this. */
void sealed_close(struct sealed *s);

#endif
