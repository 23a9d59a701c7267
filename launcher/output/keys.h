/* keys.h - single keys of the terminal that is stdin, for --top.
 *
 * The terminal gives each key at once, and does not show it, until keys_close().  Its
 * settings are the old ones while runner is stopped, and when it exits. */
#ifndef BERTH_LAUNCHER_OUTPUT_KEYS_H
#define BERTH_LAUNCHER_OUTPUT_KEYS_H

struct event_base;
struct keys;

/* PRESSED gets each key.  NULL: stdin is no terminal, or runner is in the
 * background. */
struct keys *keys_open(struct event_base *base, void (*pressed)(void *ctx, char key),
		       void *ctx);
/* Before runner stops itself, and when it goes on.  NULL will do. */
void keys_pause(struct keys *k);
void keys_resume(struct keys *k);
void keys_close(struct keys *k); /* takes NULL */

#endif
