/* port.h - TCP ports kept free for a job: one for its rendezvous, and one for each rank
 * if TF_CONFIG is to name them.
 *
 * Bound but not listening.  A program that probes it by a plain bind finds it taken.  A
 * program that listens with SO_REUSEADDR, as TCPStore and TensorFlow's server do, may
 * use it.  Outside the kernel's ephemeral range and the well-known 29400 and 29500. */
#ifndef BERTH_AGENT_PORT_H
#define BERTH_AGENT_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PORT_FIRST = 20000, PORT_LAST = 29499 };

struct port {
	int fd;          /* -1: none */
	uint32_t number; /* 0: none */
};

struct ports {
	int *fd;
	uint32_t *number; /* number[local rank] */
	size_t n;
};

/* Find a free port from a random place on and hold it, for IPv4, and for IPv6 if the
 * machine has it.  Number 0: no port is free. */
void port_hold(struct port *p);
/* Give it up.  Takes a released one too. */
void port_release(struct port *p);

/* Hold N ports in place of those that P holds, none of which is among them: an earlier
 * epoch's may still have connections.  False: there are too few, and P holds none. */
bool ports_hold(struct ports *p, size_t n);
void ports_release(struct ports *p);

#endif
