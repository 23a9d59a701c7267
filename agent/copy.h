/* copy.h - an agent that was sent keeps the time of its copy fresh, or removes it.
 *
 * The next agent that is sent to a host removes copies that have not run for 30 days
 * (launcher/transport/agent_install.c).  Their time of modification is the time when
 * they last ran.  A job may last longer, and hosts may share the folder: so an agent
 * sets it when it starts and once a day. */
#ifndef BERTH_AGENT_COPY_H
#define BERTH_AGENT_COPY_H

struct event;
struct event_base;

enum { COPY_PERIOD_S = 86400 };

/* The program that EXE links to is such a copy, "agent-SHA256": set its time now, and
 * then every PERIOD_S.  The caller frees the event.  NULL: it is not one; it is left
 * alone. */
struct event *copy_keep(struct event_base *base, const char *exe, int period_s);

/* The program that EXE links to is a copy that srun made for one start,
 * /tmp/berth-agent- and 64 hexadecimal digits: remove it.  Any other stays. */
void copy_remove(const char *exe);

#endif
