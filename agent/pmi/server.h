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
 * main process ends, or if it leaves before the fence is over.  The server then
 * refuses the ranks that wait in the fence with a sentence that names the lost rank,
 * and sets its byte of lost[] in the memory.
 *
 * MPI programs get PMI-1 of it, too: a socket each, as the variable PMI_FD.
 *
 * Files, the upper ones on top of the lower: server.c (the socket), init_round.c
 * (members, fences, losses), pmi1.c (PMI-1; pmi1_line.c, a line of it), host_map.c
 * (where all ranks are), op_records.c (what a rank does, as its memory says), client.c
 * (one connection). */
#ifndef BERTH_AGENT_PMI_SERVER_H
#define BERTH_AGENT_PMI_SERVER_H

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
/* The main process of local rank LOCAL has ended, or never ran.  To be called before
 * `exited` is sent.  FAILED: not with status 0.  Why it has failed also if its status
 * is 0, or NULL. */
const char *server_ended(struct server *s, size_t local, bool failed);
/* A rank has called MPI_Abort since the last time, and waits to be ended: *LOCAL. */
bool server_aborts(struct server *s, size_t *local);
/* Local rank LOCAL has called MPI_Abort with *CODE. */
bool server_aborted(const struct server *s, size_t local, int *code);
/* host_map, exchange_data, exchange_failed, lost, query, missing.  0, or -1 with E: the
 * launcher broke the protocol. */
int server_frame(struct server *s, const struct wire_frame *f, struct err *e);

#endif
