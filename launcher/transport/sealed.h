/* sealed.h - a connection that was accepted, sealed by a key (common/key.h).
 *
 * The other side proves first that it has the key.  Until then nothing that it sends
 * is passed on, and no more than that proof is read. */
#ifndef BERTH_LAUNCHER_TRANSPORT_SEALED_H
#define BERTH_LAUNCHER_TRANSPORT_SEALED_H

#include "launcher/transport/transport.h"

struct sealed;

/* Take FD, whose other side must have KEY (KEY_BYTES).  Events come from the loop;
 * ended() says nothing more than that. */
struct sealed *sealed_accept(struct event_base *base, int fd, const unsigned char *key,
			     const struct transport_events *events, void *ctx);
/* From now on events go to others. */
void sealed_hand(struct sealed *s, const struct transport_events *events, void *ctx);
/* Bytes taken, 0..n.  Less than N: writable() will come. */
size_t sealed_send(struct sealed *s, const void *data, size_t n);
/* Close and free S; no event comes after this. */
void sealed_close(struct sealed *s);

#endif
