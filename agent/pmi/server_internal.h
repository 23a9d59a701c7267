/* server_internal.h - between the files of the server.  Each takes from those below
 * it. */
#ifndef BERTH_AGENT_PMI_SERVER_INTERNAL_H
#define BERTH_AGENT_PMI_SERVER_INTERNAL_H

#include "agent/pmi/server.h"
#include "lib/boot/boot.def"

struct event;

/* A connection. */
struct client {
	struct server *s;
	int fd;    /* -1: closed, freed at the end of this turn of the loop */
	pid_t pid; /* of the process that connected */
	struct event *readable, *writable;
	struct buf in, out;
	bool is_known; /* it has said that it is rank */
	uint32_t local;
	struct init_round
		*round;         /* NULL: not known yet, or the rank waits for a world */
	bool waits_host_map;    /* joins, and does not know the other hosts yet */
	bool gets_fence_data;   /* round->fence_data follows OUT, */
	size_t fence_data_sent; /* from here on */
	struct client *next;
};

enum member_state {
	MEMBER_NOT_JOINED, /* or has left */
	MEMBER_WAITING,    /* for all that are left, to form the next world */
	MEMBER_JOINING,    /* has not sent its text for the fence */
	MEMBER_IN_FENCE,
	MEMBER_JOINED,
	MEMBER_LOST /* out of its last init round, and did not leave it */
};

/* A rank of this host. */
struct member {
	uint32_t init_round;      /* how often it has joined */
	struct init_round *round; /* the last of these; NULL: freed */
	uint32_t place;           /* of those of this host in it */
	enum member_state state;
	bool ended;
	bool has_worked; /* in this life: an operation began */
	bool is_elastic; /* it has said so */
	bool joins; /* a later life, in no world yet: it comes to the others' next */
	struct client *client; /* from JOINING to JOINED */
	char *text;            /* of its last fence */
	uint64_t stalled_ms;   /* when it last said that it waits */
	bool asks_missing;     /* and has no answer yet */
	_Atomic uint32_t
		*alive; /* the word of its mutex (boot.def); NULL: it has none */
	pid_t pid;      /* of the process that holds it */
	bool may_die;   /* nobody held it at the last look */
	bool dies;      /* it exits now, and its end is still to come */
};

/* The ranks' first, second, ... time in the library. */
struct init_round {
	uint32_t number;
	uint32_t *rank;  /* rank[place], of the job; NULL: all of the job, in order */
	uint32_t *place; /* the way back: place[rank]; SIZE: it is not in it */
	uint32_t np;     /* of the job when it began */
	uint32_t size, local_size;
	size_t in_fence;       /* members */
	struct buf texts;      /* of all hosts, as they come */
	struct buf fence_data; /* the frame that ends the fence, complete if */
	bool is_over;
	int memory; /* -1: not asked for */
	uint64_t bytes;
	struct boot_memory *head; /* of the memory: one page */
	bool unmarked; /* a rank is lost, and the memory has no place for that yet */
	struct init_round *next;
};

/* A rank of the job that is out of this init round; ENDED: and of all later ones. */
struct lost_rank {
	uint32_t rank, init_round;
	bool ended, secondary; /* SECONDARY: it gave up because another was lost */
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
	struct init_round *round;
	struct lost_rank *lost;
	size_t nlost;
	bool wanted;         /* ranks wait for the next world */
	struct event *dying; /* the next look at the mutexes of ranks */
	struct pmi1 *pmi1;   /* NULL: ranks get none */
	struct pmix *pmix;   /* the same */
	bool host_map_requested;
	uint32_t *host; /* of each rank, once the launcher has answered */
	size_t nhosts;
	char **host_name; /* of each host */
	char **own_name;  /* of each host, for PMIx */
	uint32_t *app;    /* app[i]: its first rank */
	size_t napps;
	struct mpi_end *end; /* of each local rank; NULL: none is to be ended */
	size_t ends_due;
};

/* ---- client.c ---- */

/* Read once from C: 1 if there was something, 0 if not, -1 if the connection is
 * over. */
int client_read(struct client *c);
/* The head of C's next frame: 1 if all of the frame is in c->in, 0 if not, -1 if it is
 * not a frame that a rank sends. */
int client_frame(const struct client *c, struct boot_head *h);
/* Queue a frame, and send what can be sent. */
void client_send(struct client *c, uint32_t number, const void *payload, size_t n);
/* Queue and send a frame together with descriptor FD.  False if not all of it could be
 * sent at once. */
bool client_send_fd(struct client *c, uint32_t number, const void *payload, size_t n,
		    int fd);
/* Send what is queued; the rest follows when there is room.  If the connection is
 * broken, reading says so. */
void client_flush(struct client *c);
/* Say why, by a frame of NUMBER, and close. */
void client_refuse(struct client *c, uint32_t number, const char *why);
/* Close C.  Its memory stays until the end of the turn: callers may still hold it. */
void client_close(struct client *c);

/* ---- host_map.c ---- */

/* Whether it is known on which host each rank is.  If not, the launcher is asked, and
 * init_round_host_map() and pmi1_host_map() are called later. */
bool host_map_known(struct server *s);
/* In a job of one host the map is known from the start. */
void host_map_alone(struct server *s);
int host_map_take(struct server *s, const struct wire_host_map *m, struct err *e);
void host_map_free(struct server *s);
uint32_t host_of(const struct server *s, uint32_t rank);
const char *host_name_of(const struct server *s, uint32_t host);
const char *own_name_of(const struct server *s, uint32_t host);
/* All ranks in the order of their hosts, on each in their own.  To be freed. */
uint32_t *ranks_by_host(const struct server *s);
/* The host map as MPI reads it: "(vector,(0,2,4))", first host, hosts, ranks on each.
 * To be freed. */
char *host_map_vector(const struct server *s);

/* ---- pmi1.c ---- */

struct pmi1 *pmi1_open(struct server *s);
void pmi1_free(struct pmi1 *p); /* takes NULL, as do the others */
/* A connection for local rank LOCAL, which loses the one that it had: *FD is the rank's
 * end.  0, or -1 with errno. */
int pmi1_connect(struct pmi1 *p, uint32_t local, int *fd);
/* As server_ended(). */
const char *pmi1_ended(struct pmi1 *p, uint32_t local);
void pmi1_host_map(struct pmi1 *p);
int pmi1_data(struct pmi1 *p, const struct wire_exchange_data *m, struct err *e);
void pmi1_failed(struct pmi1 *p, const struct wire_exchange_failed *m);
/* The bit of a request about names that is PMI-1's; the others are libpmix'. */
enum { FOUND_PMI1 = 1u << 31 };
/* False: the request was not one of PMI-1. */
bool pmi1_found(struct pmi1 *p, const struct wire_found *m);

/* ---- pmix.c: also what server.h says of PMIx ---- */

struct pmix *pmix_new(struct server *s);
void pmix_free(struct pmix *p); /* takes NULL, as do those with a result or a message */
/* As server_ended(). */
const char *pmix_ended(struct pmix *p, size_t local);
/* Messages of the launcher. */
int pmix_data(struct pmix *p, const struct wire_exchange_data *m, struct err *e);
void pmix_exchange_failed(struct pmix *p, const struct wire_exchange_failed *m);
void pmix_modex_request(struct pmix *p, const struct wire_modex_request *m);
/* Messages that go on to the PMIx server as they are. */
void pmix_pass_down(struct pmix *p, const struct wire_frame *f);

/* ---- mpi_ends.c: for server_ends() and server_aborted() ---- */

/* Local rank LOCAL is in MPI_Init, and one that it waits for has ended. */
void mpi_ends_stuck(struct server *s, size_t local);
/* Local rank LOCAL has called MPI_Abort, and waits to be ended.  The first call
 * counts. */
void mpi_ends_abort(struct server *s, size_t local, int code, const char *text);
void mpi_ends_free(struct server *s);

static inline uint32_t client_rank(const struct client *c)
{
	return c->s->job->ranks.v[c->local];
}

/* The local number of RANK of the job, or how many there are. */
static inline uint32_t local_of(const struct server *s, uint32_t rank)
{
	uint32_t local = 0;

	while (local < s->job->ranks.n && s->job->ranks.v[local] != rank)
		local++;
	return local;
}

static inline struct member *client_member(const struct client *c)
{
	return &c->s->member[c->local];
}

/* ---- init_rounds.c ---- */

/* The place of RANK of the job in ROUND; round->size: none. */
uint32_t init_round_place(const struct init_round *round, uint32_t rank);
/* And back: of less than round->size. */
uint32_t init_round_rank(const struct init_round *round, uint32_t place);
/* The round of NUMBER, or NULL; the same, made where there is none: NULL if there are
 * too many. */
struct init_round *init_round_find(const struct server *s, uint32_t number);
struct init_round *init_round_add(struct server *s, uint32_t number);
/* A new round of these RANKS of the job in their order, LOCAL_SIZE 0; NULL also if two
 * are alike, one is none, or there is such a round. */
struct init_round *init_round_add_some(struct server *s, uint32_t number,
				       const wire_u32v *ranks);
/* Ranks of ROUND, ascending, as `exchange` of wire.def has them.  Callers free it. */
wire_u32v init_round_ranks(const struct init_round *round);
/* L is lost, and then: the ranks of this host are told. */
void init_round_add_lost(struct server *s, struct lost_rank l);
void init_round_tell_lost(struct server *s);
/* ROUND, of some ranks, begins: earlier losses are of their last lives, or worlds. */
void init_round_forget_lost(struct server *s, const struct init_round *round);
/* C's rank gets its world; the host map is known. */
void init_round_send_world(struct client *c);
/* Lost ranks of ROUND in its memory, and whether others wait for its ranks to change
 * their world; or a later call does it. */
void init_round_mark(struct server *s, struct init_round *round);
/* Refuse the members that wait in ROUND's fence, if a rank will not come to it. */
void init_round_refuse_waiting(struct server *s, struct init_round *round);
/* Free the rounds that are not in use.  True if lost ranks could not be marked yet in a
 * memory: its ranks have not prepared it. */
bool init_rounds_settle(struct server *s);
void init_rounds_free(struct server *s);

/* ---- next_world.c ---- */

/* C's rank waits for the next world; EPOCH: of its last one.  NULL. */
char *next_world_wait(struct client *c, uint32_t epoch);
/* All that are left wait for it. */
void next_world_begin(struct server *s, const struct wire_world *w);
/* C's rank says whether it changes its world when that is due. */
char *next_world_elastic(struct client *c, uint32_t can);
void next_world_wanted(struct server *s);

/* ---- op_records.c ---- */

/* C's rank waits: 0, or -1 if the N bytes at P are no report of that. */
int op_records_stall(struct client *c, const unsigned char *p, size_t n);
/* C's rank asks which ranks it waits for: 0, or -1 if it has asked already. */
int op_records_missing_request(struct client *c);
void op_records_missing(struct server *s, const struct wire_missing *m);
/* Sends `rank_op` of local rank LOCAL; nothing if it never joined. */
void op_records_send(const struct server *s, uint32_t local);
void op_records_query(const struct server *s);
/* Sends `rank_ops` of local rank LOCAL, if it has done an operation. */
void op_records_tell(struct server *s, uint32_t local);
/* The process of local rank LOCAL, as it says; 0: none has joined. */
pid_t op_records_pid(const struct server *s, uint32_t local);
/* Local rank LOCAL says that it gave up because another was lost. */
bool op_records_secondary(const struct server *s, uint32_t local);

/* ---- dying.c ---- */

/* C's rank gets a memory with a mutex, at which the server looks from now on.  NULL, or
 * why not. */
char *dying_watch(struct client *c);
/* No longer: its process has ended, say. */
void dying_forget(struct member *m);
/* Has PID failed, and is each of its threads about to end? */
bool dying_exits(pid_t pid);
/* Looks at M's mutex.  True: its process has begun to die, and was so at the look
 * before.  One with little memory has ended by then, and its next life comes to the
 * others' next world. */
bool dying_look(struct member *m);
enum {
	DYING_LOOK_MS = 10, /* from one look to the next; it takes a few ns a rank */
	DYING_AGAIN_MS = 5  /* to the second */
};

/* ---- init_round.c ---- */

/* Read what C has sent, and do it.  C may be closed after it. */
void init_round_read(struct client *c);
void init_round_ended(struct server *s, uint32_t local, bool failed);
/* The process of local rank LOCAL has begun to die.  init_round_ended() follows. */
void init_round_dies(struct server *s, uint32_t local);
/* The host map is known now. */
void init_round_host_map(struct server *s);
int init_round_fence_data(struct server *s, const struct wire_exchange_data *m,
			  struct err *e);
void init_round_lost(struct server *s, const struct wire_lost *m);

#endif
