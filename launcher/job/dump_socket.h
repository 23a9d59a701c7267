/* dump_socket.h - the socket by which `runner --dump` finds this job.
 *
 * Callers are of this user or root, as the kernel says; a few at a time.  One that does
 * not read its text for 10 s loses it, and holds nothing up. */
#ifndef BERTH_LAUNCHER_JOB_DUMP_SOCKET_H
#define BERTH_LAUNCHER_JOB_DUMP_SOCKET_H

struct dump;
struct dump_socket;
struct event_base;

/* For job JOB_ID.  NULL with errno. */
struct dump_socket *dump_socket_open(struct dump *d, struct event_base *base,
				     const char *job_id);
void dump_socket_free(struct dump_socket *s); /* takes NULL */

#endif
