/* ssh_channel.h - one command at a time on a logged-in libssh session, without waiting.
 *
 * Any libssh call may take packets off the socket.  ssh_channel_read() then loses the
 * event for what is already inside.  So libssh's call-backs keep what arrives here, and
 * the owner takes it after libssh has returned, when it may send or close.  Sessions
 * that share an ssh_event take each other's packets, so each has its own. */
#ifndef BERTH_LAUNCHER_TRANSPORT_SSH_CHANNEL_H
#define BERTH_LAUNCHER_TRANSPORT_SSH_CHANNEL_H

#include "common/buf.h"
#include "common/str.h"
#include "launcher/transport/libssh.h"

#ifdef HAVE_LIBSSH

enum channel_state {
	CHANNEL_NONE,
	CHANNEL_OPENING,
	CHANNEL_EXECUTING,
	CHANNEL_RUNNING
};

struct agent_channel {
	const struct libssh *lib;
	ssh_session session;
	ssh_channel channel;
	ssh_event pump;
	struct ssh_channel_callbacks_struct callbacks;
	enum channel_state state;
	bool over;       /* the host closed it; in holds the rest */
	int status;      /* exit status, 128 + signal, or -1 */
	struct buf in;   /* stdout that arrived; the owner takes it */
	struct str said; /* stderr, last 4 KiB */
};

/* A new channel on SESSION in C, which must be {0} or have had a command before.  C
 * must not move until agent_channel_close(). */
void agent_channel_open(struct agent_channel *c, const struct libssh *lib,
			ssh_session session);

/* Step on until COMMAND runs.  1: it runs; 0: libssh waits; -1: the session is lost. */
int agent_channel_start(struct agent_channel *c, const char *command);

/* Read packets from the socket into c->in and c->said, bounded so that no host starves
 * another.  False: the session has ended. */
bool agent_channel_take(struct agent_channel *c);

/* Write what the window takes; returns how much.  It is also short while libssh still
 * holds bytes that the socket did not take. */
size_t agent_channel_write(struct agent_channel *c, const void *data, size_t n);

/* agent_channel_write() would take something. */
bool agent_channel_has_room(const struct agent_channel *c);

/* End the command's input, at which the agent ends, and forget the channel.  The
 * session stays.  {0} is left alone. */
void agent_channel_close(struct agent_channel *c);

#endif
#endif
