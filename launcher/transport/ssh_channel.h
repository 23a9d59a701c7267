/* sshcmd.h - one command at a time on a logged-in libssh session, without waiting.
 *
 * Any libssh call may take packets off the socket, and reading by ssh_channel_read()
 * then loses the event for what is already inside.  So what arrives comes by libssh's
 * call-backs and is kept here until the owner has returned from libssh: it may then
 * send or close as it likes.  Sessions that share an ssh_event eat each other's
 * packets, so each has its own. */
#ifndef BERTH_LAUNCHER_TRANSPORT_SSH_CHANNEL_H
#define BERTH_LAUNCHER_TRANSPORT_SSH_CHANNEL_H

#include "common/buf.h"
#include "common/str.h"
#include "launcher/transport/libssh.h"

#ifdef HAVE_LIBSSH

enum channel_state { SSHCMD_NONE, SSHCMD_OPENING, SSHCMD_EXECUTING, SSHCMD_RUNNING };

struct agent_channel {
	const struct libssh *lib;
	ssh_session session;
	ssh_channel channel;
	ssh_event pump;
	struct ssh_channel_callbacks_struct callbacks;
	enum channel_state state;
	bool over;       /* the far side closed it; in holds the rest */
	int status;      /* exit status, 128 + signal, or -1 */
	struct buf in;   /* stdout that arrived; the owner takes it */
	struct str said; /* stderr, last 4 KiB */
};

/* A new channel on SESSION in C, which must be {0} or have had a command before.  C
 * must not move until agent_channel_close(). */
void agent_channel_open(struct agent_channel *c, const struct libssh *lib,
			ssh_session session);

/* Go on towards running COMMAND: 1 it runs, 0 libssh waits, -1 the session is lost. */
int agent_channel_start(struct agent_channel *c, const char *command);

/* Packets from the socket into c->in and c->said, up to some bytes so that no host
 * starves another.  False: the session is gone. */
bool agent_channel_take(struct agent_channel *c);

/* Write what the window takes; returns how much.  Also short while libssh could not get
 * rid of what it had. */
size_t agent_channel_write(struct agent_channel *c, const void *data, size_t n);

/* Would agent_channel_write() take something?  is_flushed: nothing waits for the socket. */
bool agent_channel_has_room(const struct agent_channel *c);
bool agent_channel_is_flushed(const struct agent_channel *c);

/* End the command's input (the agent then ends) and forget the channel; {0} is left
 * alone. The session stays. */
void agent_channel_close(struct agent_channel *c);

#endif
#endif
