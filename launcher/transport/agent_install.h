/* agent_install.h - how an agent comes to run on a remote host, over any byte stream.
 *
 * A state machine without I/O of its own.  A transport asks for the command to run
 * there, gives back what arrives, and sends what is pending.  Up to three commands are
 * tried:
 *   direct  the path of this runner's own agent, if no other user can put a program
 *           there; the usual case.  With --launch-agent its path, and nothing else.
 *   search  a script for /bin/sh: that path, if its SHA-256 is right; berth-agent in
 *           PATH; the cache; else "send it"
 *   send    the same without PATH, if the agent there has another version
 * The script comes over stdin, so the login shell (sh, csh, fish) reads plain words
 * only.  It answers in lines that begin with ":berth: ".  The agent is sent into
 * ~/.cache/berth, else XDG_RUNTIME_DIR, else /dev/shm, as agent-SHA256.  It is written
 * under a name of its own, checked, run once with --version, and renamed, so that many
 * hosts with one home directory may do so at once.  Copies that have not run for 30
 * days go then. */
#ifndef BERTH_LAUNCHER_TRANSPORT_AGENT_INSTALL_H
#define BERTH_LAUNCHER_TRANSPORT_AGENT_INSTALL_H

#include "common/buf.h"
#include "common/str.h"
#include "launcher/transport/transport.h"

enum { INSTALL_NOISE_MAX = 65536 };

enum install_stage { INSTALL_DIRECT, INSTALL_SEARCH, INSTALL_SEND };

enum install_event {
	INSTALL_WAIT,  /* more bytes, or the end, must come; something may be pending */
	INSTALL_UP,    /* an agent of this version runs; in is its stream so far, from
			  WIRE_MAGIC on */
	INSTALL_AGAIN, /* end this command and run agent_install_command() */
	INSTALL_FAILED /* err says why */
};

struct agent_install {
	const struct transport_setup *setup;
	char *where; /* for messages: "user@host:port" */
	enum install_stage stage;
	struct buf in;    /* arrived, not understood yet */
	struct str noise; /* what a login script printed */
	struct err err;

	/* internal */
	struct str command, script;
	size_t script_sent, image_sent;
	bool answered; /* the script runs */
	bool asked;    /* it asked for the agent, and that was granted */
	char *libc;    /* of the host, as getconf says */
	char *other;   /* of an agent with another version, or NULL */
	uint32_t other_wire;
	bool unsafe;  /* another user can replace the agent of the direct try */
	char *failed; /* what it printed before it ended without a hello, or NULL */
	int failed_status;
	char *warning; /* or NULL */
};

/* Begin.  SETUP must outlive A.  WHERE is copied. */
void agent_install_init(struct agent_install *a, const struct transport_setup *setup,
			const char *where);
void agent_install_free(struct agent_install *a);

/* The user reads TEXT as a warning about the host once an agent is up. */
void agent_install_warn(struct agent_install *a, const char *text);

/* The command to run on the host now; valid until the next event. */
const char *agent_install_command(struct agent_install *a);

/* Bytes to send to the command's stdin, N of them.  agent_install_sent() takes those
 * that were sent. */
const void *agent_install_pending(struct agent_install *a, size_t *n);
void agent_install_sent(struct agent_install *a, size_t n);

/* The command wrote DATA to stdout. */
enum install_event agent_install_bytes(struct agent_install *a, const void *data,
				       size_t n);

/* The command ended before an agent was up: INSTALL_AGAIN or INSTALL_FAILED.  STATUS:
 * 0..255, or -1; SAID: its stderr. */
enum install_event agent_install_ended(struct agent_install *a, int status,
				       const char *said);

/* The deadline passed: say in a->err what did not come. */
void agent_install_late(struct agent_install *a);

/* The first line of TEXT that is not blank, for a message: printable, at most 160
 * bytes.  The caller frees it. */
char *agent_install_quote(const char *text, size_t n);

/* As agent_install_quote(), the last line. */
char *agent_install_last_line(const char *text);

#endif
