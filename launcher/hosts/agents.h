/* agents.h - the hosts of a job with an agent on each: start them, exchange frames,
 * notice silence.
 *
 * Below is transport.h (bytes), above is the job (what frames mean).  This module cuts
 * the bytes into frames and keeps what each agent told about its machine.  It sends
 * heartbeats, measures each agent's clock, and reports a host once when it is lost.  A
 * host whose agent breaks the protocol is lost.  Frames that take long wait, so that
 * other hosts have their turn.  A frame is refused by its head, so
 * that a host never takes more memory than the largest frame of an agent. */
#ifndef BERTH_LAUNCHER_HOSTS_AGENTS_H
#define BERTH_LAUNCHER_HOSTS_AGENTS_H

#include "common/wire.h"
#include "launcher/hosts.h"
#include "launcher/transport/transport.h"

struct event;

enum host_state {
	HOST_IDLE,     /* not asked for */
	HOST_STARTING, /* no hello yet */
	HOST_UP,
	HOST_LEAVING, /* told to exit: the end of its stream is no loss */
	HOST_CLOSED,  /* its stream ended as it should */
	HOST_LOST /* no agent could be started, its stream ended, or it was silent */
};

struct host {
	struct agents *agents;
	char *name, *user; /* as typed */
	char *node;        /* its name in the allocation; NULL: none */
	char *step_gpus;   /* target.gpus */
	int node_cpus;     /* of the allocation there; 0: not known */
	struct target target;
	struct sockaddr_storage *addr; /* target.addr */
	int slots, max_slots;          /* 1.., SLOTS_GPUS or SLOTS_AUTO */
	/* NULL, or what the list of hosts of each app says: [0] of all apps without -H
	 * of their own.  SLOTS_AUTO there is slots here. */
	struct host_in_list *list;
	bool local; /* this machine: no ssh */
	const struct transport *transport;
	struct conn *conn;
	enum host_state state;
	struct err err;  /* why it is lost; while it starts, why libssh did not do */
	int exit_status; /* of its agent; -1 unknown */

	/* from hello */
	char *address;
	char *machine; /* equal texts: one machine; "": unknown */
	char *own;     /* its own name; "": unknown, or not one for a list of names */
	uint32_t cpus, cores, gpus, sockets, numas, port;
	/* agent's clock minus ours, and how wrong that can be */
	uint64_t clock_offset_ns; /* modulo 2^64 */
	uint64_t clock_error_ns;
	uint64_t clock_sampled_ns; /* when: the error grows with the clocks' drift */

	uint64_t up_ns;    /* when its hello came */
	uint64_t heard_ms; /* clock_ms() of its last byte */
	bool silence_told;
	bool greeted; /* WIRE_MAGIC came */
	struct buf in, out;
	struct event *turn; /* timer: whole frames wait in IN; NULL: none ever did */
	bool waits;         /* they do */
	/* Bytes that the job itself puts into OUT at a time.  A host with 4 MiB more
	 * there asks and reads no answer: it is given up. */
	size_t out_due;
};

/* Any may be NULL. */
struct agents_events {
	void (*hello)(void *ctx, struct host *h);
	void (*frame)(void *ctx, struct host *h, const struct wire_frame *f);
	void (*lost)(void *ctx, struct host *h); /* once; h->err says why */
	void (*silent)(void *ctx, struct host *h, unsigned seconds);
	void (*closed)(void *ctx, struct host *h); /* after HOST_LEAVING */
};

struct agents {
	struct event_base *base;
	struct host *host;
	size_t n, most; /* host[] has room for so many: hosts that run cannot move */
	struct transport_setup setup;
	uint64_t host_timeout_ms;
	const struct agents_events *events;
	void *ctx;
	struct event *beat;
	struct event *check;                 /* for silence */
	uint64_t check_every_ms, checked_ms; /* clock_ms() of the last one */
	size_t beat_group,
		beat_groups; /* a heartbeat goes to each beat_groups-th host */
	bool paused;         /* runner is about to be stopped: no silence counts */
};

/* Start an agent on H, which has none, or one that leaves and is not waited for.  Its
 * hello or loss comes as an event. */
void agents_start(struct agents *a, struct host *h);

/* Send what was packed into h->out. */
void agents_flush(struct host *h);
/* Send frame NAME, a pointer to a struct wire_NAME, to H. */
#define AGENTS_SEND(h, name, ...)                                                      \
	do {                                                                           \
		wire_pack_##name(&(h)->out, __VA_ARGS__);                              \
		agents_flush(h);                                                       \
	} while (0)

/* Tell H's agent to exit and wait for its end as an event. */
void agents_leave(struct host *h);

/* Send a heartbeat to H now; its answer is one more measurement of its clock. */
void agents_beat(struct host *h);

/* H is lost, for the reason WHY: calls lost() now, and no event of H comes later. */
void agents_give_up(struct host *h, const struct err *why);

/* Begin and end heartbeats, every 5 s. */
void agents_watch(struct agents *a);
/* Close every stream; no more events. */
void agents_close(struct agents *a);
void agents_free(struct agents *a);

/* An agent's time AT_NS on our clock; now, if that is before its hello, or later than
 * now by more than the clocks' error. */
int64_t agents_time(const struct host *h, uint64_t at_ns);

#endif
