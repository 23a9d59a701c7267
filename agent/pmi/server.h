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
 * Files, the upper ones on top of the lower: server.c (the socket), init_round.c
 * (members, fences, losses), op_records.c (what a rank does, as its memory says),
 * client.c (one connection). */
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
/* The main process of local rank LOCAL has ended, or never ran.  To be called before
 * `exited` is sent.  FAILED: not with status 0. */
void server_ended(struct server *s, size_t local, bool failed);
/* host_map, exchange_data, lost, query, missing.  0, or -1 with E: the launcher broke the
 * protocol. */
int server_frame(struct server *s, const struct wire_frame *f, struct err *e);

#endif
