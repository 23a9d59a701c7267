/* child.h - a child process of runner, its stdin and stdout one socket.
 *
 * Every child starts here: the agent of this machine, an ssh.  It gets a session of its
 * own, so that ^C in the terminal reaches runner alone, and its stderr is kept.  The
 * bytes go through a socket, not through pipes: a write to a child that has ended must
 * not raise SIGPIPE.  Only the end of the process counts: stdout and stderr may stay
 * open in processes that it left behind (ssh's ControlPersist). */
#ifndef BERTH_LAUNCHER_TRANSPORT_CHILD_H
#define BERTH_LAUNCHER_TRANSPORT_CHILD_H

#include "launcher/transport/transport.h"

struct child;

/* Special wishes for a child.  {0}: none. */
struct child_how {
	char *const *env; /* NULL: our own environment */
	bool bound;       /* KILL it when runner dies, however that dies */
};

/* Execute PATH, looked up in PATH, with ARGV.  ended() comes after the last byte of
 * stdout; end->said lives until child_close().  NULL with errno: it cannot be executed.
 * A script without "#!" cannot (glibc's posix_spawnp() does not try /bin/sh), unless it
 * is bound (execvpe() does). */
struct child *child_start(struct event_base *base, const char *path, char *const *argv,
			  const struct child_how *how,
			  const struct transport_events *events, void *ctx);

/* Bytes taken, 0..n.  Less than N: writable() will come. */
size_t child_send(struct child *c, const void *data, size_t n);

/* The last 4 KiB of its stderr so far. */
const char *child_said(struct child *c);
void child_forget_said(struct child *c);

/* Close the stream and forget C.  The child ends by itself at the end of its stdin, or
 * gets TERM, or is killed now and waited for. */
void child_close(struct child *c);
void child_stop(struct child *c);
void child_kill(struct child *c);
/* As child_kill(); so are the processes of its group. */
void child_kill_all(struct child *c);

/* Execute PATH with ARGV in the environment ENV for another module, which reads and
 * writes its stdin and stdout at *SOCK and closes that.  NULL with errno.
 * child_return() sends TERM. */
struct child *child_lend(const char *path, char *const *argv, char *const *env,
			 int *sock);
/* The child's words on stderr, at most the first CHILD_LENT_SAID bytes, with a NUL; any
 * thread.  Returns TEXT. */
enum { CHILD_LENT_SAID = 16384 };
const char *child_lent_said(const struct child *c, char text[CHILD_LENT_SAID + 1]);
void child_return(struct child *c);

/* Wait MS milliseconds for the children whose stream is closed; then KILL them. */
void child_wait_all(unsigned ms);

/* Append TEXT to SAID and keep the last 4 KiB. */
void child_keep_said(struct str *said, const void *text, size_t n);

#endif
