/* server.h - the socket BERTH_AGENT: how the ranks of this host that use libberth
 * find the others.
 *
 * It serves lib/boot/boot.def: the identity of a rank, one sealed memory for all
 * ranks of the host, a fence with the ranks of other hosts (through the launcher:
 * wire.def), and later the lost ranks.  The name is an abstract one with 128 random
 * bits, and a client must belong to our user.  The server checks all that ranks
 * write to it and to their memory.  It answers a frame that is malformed, too long
 * or unexpected with REFUSED, and closes.  Limits: 4 connections for each rank and
 * 16 more, each with one frame of 8 KiB; the server waits for no client.  All of it
 * ends with the job; the next epoch has another socket.
 *
 * A rank is lost to an init round if its connection closes without LEAVE, if its
 * main process ends, if it is seen to die, or if it leaves before the fence is over.
 * The server then refuses the ranks that wait in the fence with a sentence that names
 * the lost rank, and sets its byte of lost[] in the memory.
 *
 * MPI programs get PMI-1 of it, too: a socket each, as the variable PMI_FD; and PMIx,
 * from a process of its own.
 *
 * Files, the upper ones on top of the lower: server.c (the socket), init_round.c
 * (members, fences, losses), pmi1.c (PMI-1; pmi1_line.c, a line of it; pmi1_names.c,
 * what ranks publish), pmix.c (PMIx; pmix_exchange.c, its collectives; pmix_modex.c,
 * what one rank wants of another; pmix_send.c, the connection to its process;
 * pmix_process.c, that process; pmix_folder.c, its folders), host_map.c (where all
 * ranks are), mpi_ends.c (which are to be ended), op_records.c (what a rank does, as
 * its memory says), dying.c (ranks that die), client.c (one connection).  The process
 * itself: pmix_child.h. */
#ifndef BERTH_AGENT_PMI_SERVER_H
#define BERTH_AGENT_PMI_SERVER_H

#include "agent/pmi/pmix_process.h"
#include "common/wire.h"

struct event_base;
struct server;

/* For the ranks of JOB.  OUT is the stream's send queue.  All three must stay.  NULL if
 * the system gives no socket, or not all ranks of a job of one host are here. */
struct server *server_open(struct event_base *base, struct buf *out,
			   const struct wire_job *job);
void server_free(struct server *s); /* takes NULL, as do the others */

/* The value of BERTH_AGENT. */
const char *server_name(const struct server *s);
/* *FD is the end of a socket that local rank LOCAL gets as PMI_FD, and that the caller
 * closes; -1 if ranks get no PMI-1.  Asked again, the rank has a new one.  0, or -1
 * with E. */
int server_pmi1(struct server *s, size_t local, int *fd, struct err *e);

/* Ranks get what the bits GIVEN of enum mpi_given say; before, what the job's flags
 * allow. */
void server_give(struct server *s, uint32_t given);

/* Begin to open, and then to start, a PMIx server: its state tells how it goes.  It may
 * be told to start before it is open. */
void server_pmix_open(struct server *s, const struct server_pmix *with);
void server_pmix_start(struct server *s, const struct server_pmix *with);
/* *WHY: FAILED and LOST, why. */
enum server_pmix_state server_pmix(const struct server *s, const char **why);
#define SERVER_PMIX_GONE "its process has ended"
/* The process of the PMIx server, or 0.  It may exit while its state is still READY: a
 * process closes its files one by one, so its ranks may see that before we do. */
pid_t server_pmix_pid(const struct server *s);
/* The version of its libpmix, and the file; "" before it is open. */
const char *server_pmix_version(const struct server *s, const char **library);
/* The variables of local rank LOCAL, NAME=VALUE; none unless it is ready. */
wire_strv server_pmix_environment(const struct server *s, size_t local);
/* Is a rank between PMIx_Init and PMIx_Finalize? */
bool server_pmix_in_use(const struct server *s);
/* The first text that a rank gave PMIx to show, for *STREAM of *LOCAL; NULL: none. */
const char *server_says(const struct server *s, size_t *local, uint32_t *stream);
/* The text of server_says() has been shown. */
void server_said(struct server *s);

/* The main process of local rank LOCAL has ended, or never ran.  To be called before
 * `exited` is sent.  FAILED: not with status 0.  Why it has failed also if its status
 * is 0, or NULL. */
const char *server_ended(struct server *s, size_t local, bool failed);
/* Local rank LOCAL, which has ended, starts again.  JOINS: it comes to the next world
 * of the ranks that go on. */
void server_another_life(struct server *s, size_t local, bool joins);
/* *LOCAL is to be ended, and was not named before: it has called MPI_Abort, and waits;
 * or it cannot come out of MPI_Init, as one that it waits for there has ended. */
bool server_ends(struct server *s, size_t *local);
/* Local rank LOCAL was in a world in this life or an earlier one, and has begun no
 * operation in this one. */
bool server_idle(const struct server *s, size_t local);
/* The last operation of local rank LOCAL in libberth, 0: none; of its last 64, how many
 * are not over. */
void server_progress(const struct server *s, size_t local, uint32_t *number,
		     uint32_t *pending);
/* When this host heard that local rank LOCAL had called MPI_Abort with *CODE; 0: it has
 * not.  *TEXT is what it said, or "". */
uint64_t server_aborted(const struct server *s, size_t local, int *code,
			const char **text);
/* Sends `rank_ops` of local rank LOCAL, if it has done an operation.  Returns the
 * process that has joined, as it says; 0: none has. */
pid_t server_tell_ops(struct server *s, size_t local);
/* host_map, modex_request, modex_data, found, event, exchange_data, exchange_failed,
 * lost, world, wanted, query, missing.  0, or -1 with E: the
 * launcher broke the protocol. */
int server_frame(struct server *s, const struct wire_frame *f, struct err *e);

#endif
