/* server_internal.h - between service.c, joining.c and flights.c. */
#ifndef BERTH_AGENT_PMI_SERVER_INTERNAL_H
#define BERTH_AGENT_PMI_SERVER_INTERNAL_H

#include "agent/pmi/server.h"
#include "lib/boot.def"

struct event;

/* A connection. */
struct client {
	struct server *s;
	int fd; /* -1: closed, to be freed at the end of this turn */
	struct event *readable, *writable;
	struct buf in, out;
	struct init_round *joining; /* NULL: has not said who it is */
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
struct init_round {
	uint32_t number;
	size_t said;    /* members in the fence */
	struct buf all; /* the frame that ends the fence, complete if */
	bool is_over;
	int memory; /* -1: not asked for */
	uint64_t bytes;
	struct boot_memory *head; /* of the memory: one page */
	bool unmarked; /* somebody is lost, and the memory had no place for that yet */
	struct init_round *next;
};

/* A rank of the job that is out of joining JOINING; ENDED: and of all later ones. */
struct gone {
	uint32_t rank, joining;
	bool ended, follows; /* FOLLOWS: it had given up because another was */
};

struct server {
	struct event_base *base;
	struct buf *out;
	const struct wire_job *job;
	char name[48];
	int listener;
	struct event *acceptable, *again; /* the second: what has to be tried again */
	struct client *client;
	size_t nclients;
	struct member *member; /* one for each local rank */
	struct init_round *joining;
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
void server_again(struct server *s);

/* ---- joining.c ---- */

/* A frame of C's, of N bytes, its length checked.  C may be closed after it. */
void init_round_frame(struct client *c, uint32_t number, const void *payload, size_t n);
/* C's connection closed by itself. */
void init_round_closed(struct client *c);
void init_round_ended(struct server *s, uint32_t local, bool failed);
struct init_round *init_round_find(const struct server *s, uint32_t number);
int init_round_world(struct server *s, const struct wire_host_map *m, struct err *e);
int init_round_all(struct server *s, const struct wire_fence_data *m, struct err *e);
void init_round_lost(struct server *s, const struct wire_lost *m);
void joinings_again(struct server *s);
/* Free those that nobody uses. */
void joinings_settle(struct server *s);
void joinings_free(struct server *s);

/* ---- flights.c ---- */

/* C's rank waits: 0, or -1 where the N bytes at P are none of that. */
int op_records_stall(struct client *c, const unsigned char *p, size_t n);
/* C's rank wants to know for whom it waits: 0, or -1 where it has asked already. */
int op_records_ask(struct client *c);
void op_records_behind(struct server *s, const struct wire_missing *m);
/* Sends `doing` of local rank LOCAL; nothing where it never joined. */
void op_records_say(const struct server *s, uint32_t local);
void op_records_look(const struct server *s);
/* Local rank LOCAL says that it gave up because another was lost. */
bool op_records_follows(const struct server *s, uint32_t local);

#endif
