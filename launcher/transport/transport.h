/* transport.h - a byte stream to an agent on one host, started in one of several ways.
 *
 * A transport starts berth-agent on a host and is then a stream.  It calls bytes(),
 * writable() and ended() from the event loop, never from inside start() or send().
 * If the agent is missing there or has another version, the transport sends it
 * (launcher/transport/agent_install.h).  The first bytes that a caller sees are
 * WIRE_MAGIC. */
#ifndef BERTH_LAUNCHER_TRANSPORT_TRANSPORT_H
#define BERTH_LAUNCHER_TRANSPORT_TRANSPORT_H

#include <sys/socket.h>

#include "common/err.h"
#include "common/loop.h"
#include "common/str.h"
#include "launcher/request.h"

struct event_base;
struct conn;
struct ssh_pool;

/* Where to go.  Owned by the caller, valid until the connection is closed. */
struct target {
	const char *name; /* as typed */
	const char *user; /* or NULL */
	const struct sockaddr_storage
		*addr; /* resolved addresses in order of preference; may be none */
	size_t naddr;
	int port;             /* of its sshd; 0: as for all hosts */
	const char *topology; /* local only: an hwloc XML file to place on */
	/* srun only: */
	const char *node; /* its name in Slurm */
	int het_group; /* its component of a heterogeneous job; -1: the job is none */
	const char *gpus; /* srun's option for all GPUs of the job there, or NULL */
	bool own_gpus;    /* others may need another option, so another step */
};

/* Facts that are the same for every host of a job.  Valid as long as any connection. */
struct transport_setup {
	struct event_base *base;
	struct ssh_pool *pool; /* logs in on other cores; NULL: the loop logs in */
	int ssh_port;          /* 0: not given */
	const char *identity;  /* or NULL */
	bool accept_new_hosts;
	const char *agent;     /* --launch-agent, or NULL */
	const char *own_agent; /* the agent next to the running runner, or NULL */
	bool no_push;
	/* net[0..nnet): at addresses of these agents may call; none: at any */
	const struct net_range *net;
	size_t nnet;
	uint64_t deadline_ms; /* clock_ms() at which a start has failed */
	int verbosity;
};

struct transport_end {
	struct err
		err; /* ERR_NONE: the stream ended without an error of the transport */
	int status;  /* the agent's: 0..255, 128+signal; -1: unknown */
	const char *said;   /* its stderr, last 4 KiB; "" for nothing */
	bool needs_openssh; /* the host takes a log-in that only the ssh program can
			       do: start transport_openssh */
};

struct transport_events {
	void (*bytes)(void *ctx, const void *data, size_t n);
	void (*writable)(void *ctx); /* room again after a short send */
	void (*ended)(void *ctx,
		      const struct transport_end *end); /* last call; then close */
};

struct transport {
	const char *name;
	/* Begin to start an agent on T; a failure comes as ended().  Never NULL. */
	struct conn *(*start)(const struct transport_setup *setup,
			      const struct target *t,
			      const struct transport_events *events, void *ctx);
	/* Bytes taken, 0..n.  Less than N: wait for writable(). */
	size_t (*send)(struct conn *c, const void *data, size_t n);
	/* Close the stream and free C; no call-back comes after this.  The agent reads
	 * EOF. */
	void (*close)(struct conn *c);
	/* The reason for which a start that is under way waits, in a few words, C's
	 * own; or NULL.  *FAILED: a try has failed for that reason, and C tries
	 * again. */
	const char *(*waits_for)(const struct conn *c, bool *failed);
};

/* The port that the user gave for T; 0: none, ssh_config decides. */
static inline int transport_port(const struct transport_setup *setup,
				 const struct target *t)
{
	return t->port ? t->port : setup->ssh_port;
}

/* Milliseconds until a start has failed: 0 if it has.  The deadline moves while runner
 * is stopped (^Z), so a timer asks again. */
static inline uint64_t transport_left_ms(const struct transport_setup *setup)
{
	const uint64_t now = clock_ms();

	return setup->deadline_ms > now ? setup->deadline_ms - now : 0;
}

/* Whether a start has failed by its deadline.  If not, DEADLINE, its timer, runs on. */
static inline bool transport_is_late(const struct transport_setup *setup,
				     struct event *deadline)
{
	const uint64_t left = transport_left_ms(setup);

	if (left)
		loop_after_ms(deadline, left);
	return !left;
}

/* The reason alone, the last part of E's "subject: failure: reason". */
static inline const char *transport_reason(const struct err *e)
{
	const char *reason = e->text, *next;

	while ((next = strstr(reason, ": ")))
		reason = next + 2;
	return reason;
}

extern const struct transport transport_local, transport_ssh, transport_openssh,
	transport_srun;

/* How the key with which agents call comes to them. */
enum srun_key {
	SRUN_KEY_MUNGE,  /* in a credential that this user alone can open */
	SRUN_KEY_CLEAR,  /* as it is: a process that reads srun's stdin has it */
	SRUN_KEY_FAILS,  /* Slurm has MUNGE, and it fails here: no agent can start */
	SRUN_KEY_UNKNOWN /* MUNGE fails; slurm.conf does not say whether Slurm has it */
};
/* Choose that for all starts of transport_srun to come, by whether MUNGE works here,
 * and by CONFIG, what `scontrol show config` says; NULL: slurm.conf, if it is found.  A
 * start for which MUNGE fails later does not fall back.  WHY gets the reason of a
 * failure. */
enum srun_key transport_srun_key(const char *config, struct str *why);

/* transport_ssh.  If libssh is not installed or cannot do what ~/.ssh/config asks for
 * T, transport_openssh, with a one-line reason in WHY (else ""). */
const struct transport *transport_remote(const struct transport_setup *setup,
					 const struct target *t, struct str *why);

#endif
