/* service_internal.h - between service.c, joining.c and flights.c. */
#ifndef BERTH_AGENT_PMI_SERVER_INTERNAL_H
#define BERTH_AGENT_PMI_SERVER_INTERNAL_H

#include "agent/pmi/server.h"
#include "lib/boot.def"

struct event;

/* A connection. */
struct client {
	struct service *s;
	int fd; /* -1: closed, to be freed at the end of this turn */
	struct event *readable, *writable;
	struct buf in, out;
	struct joining *joining; /* NULL: has not said who it is */
	uint32_t local;
	bool waits_world; /* joined, and not told of the world yet */
	bool gets_all;    /* joining->all follows OUT, */
	size_t all_at;    /* from here on */
	struct client *next;
};

enum member_state {
	MEMBER_AWAY,   /* has not joined, or has left */
	MEMBER_JOINED, /* and not said its text */
	MEMBER_SAID,   /* waits in the fence */
	MEMBER_IN,
	MEMBER_LOST /* out of its last joining without having left it */
};

/* A rank of this host. */
struct member {
	uint32_t joining; /* how often it has joined */
	enum member_state state;
	bool ended;
	struct client *client; /* from JOINED to IN */
	char *text;            /* of its last fence */
	uint64_t stalled_ms;   /* when it last said that it waits */
	bool asks;             /* for whom, and has no answer yet */
};

/* The ranks' first, second, ... time in the library. */
struct joining {
	uint32_t number;
	size_t said;    /* members in the fence */
	struct buf all; /* the frame that ends the fence, complete if */
	bool is_over;
	int memory; /* -1: not asked for */
	uint64_t bytes;
	struct boot_memory *head; /* of the memory: one page */
	bool unmarked; /* somebody is lost, and the memory had no place for that yet */
	struct joining *next;
};

/* A rank of the job that is out of joining JOINING; ENDED: and of all later ones. */
struct gone {
	uint32_t rank, joining;
	bool ended, follows; /* FOLLOWS: it had given up because another was */
};

struct service {
	struct event_base *base;
	struct buf *out;
	const struct wire_job *job;
	char name[48];
	int listener;
	struct event *acceptable, *again; /* the second: what has to be tried again */
	struct client *client;
	size_t nclients;
	struct member *member; /* one for each local rank */
	struct joining *joining;
	struct gone *gone;
	size_t ngone;
	bool asked;     /* the launcher, for the world */
	uint32_t *host; /* of each rank, once it has answered */
	char **name_of; /* of each host */
};

/* ---- service.c ---- */

/* Queue a frame, and send what can be sent. */
void client_say(struct client *c, uint32_t number, const void *payload, size_t n);
/* The same, with descriptor FD; only where nothing is queued. */
void client_say_with(struct client *c, uint32_t number, const void *payload, size_t n,
		     int fd);
void client_flush(struct client *c);
/* Say why and close. */
void client_refuse(struct client *c, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void client_close(struct client *c);
/* What C has sent by now is read. */
void client_read(struct client *c);
/* Call joinings_again() in a moment. */
void service_again(struct service *s);

/* ---- joining.c ---- */

/* A frame of C's, of N bytes, its length checked.  C may be closed after it. */
void joining_frame(struct client *c, uint32_t number, const void *payload, size_t n);
/* C's connection closed by itself. */
void joining_closed(struct client *c);
void joining_ended(struct service *s, uint32_t local, bool failed);
struct joining *joining_find(const struct service *s, uint32_t number);
int joining_world(struct service *s, const struct wire_world *m, struct err *e);
int joining_all(struct service *s, const struct wire_all *m, struct err *e);
void joining_lost(struct service *s, const struct wire_lost *m);
void joinings_again(struct service *s);
/* Free those that nobody uses. */
void joinings_settle(struct service *s);
void joinings_free(struct service *s);

/* ---- flights.c ---- */

/* C's rank waits: 0, or -1 where the N bytes at P are none of that. */
int flights_stall(struct client *c, const unsigned char *p, size_t n);
/* C's rank wants to know for whom it waits: 0, or -1 where it has asked already. */
int flights_ask(struct client *c);
void flights_behind(struct service *s, const struct wire_behind *m);
/* Sends `doing` of local rank LOCAL; nothing where it never joined. */
void flights_say(const struct service *s, uint32_t local);
void flights_look(const struct service *s);
/* Local rank LOCAL says that it gave up because another was lost. */
bool flights_follows(const struct service *s, uint32_t local);

#endif
