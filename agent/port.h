/* port.h - a TCP port for the job's rendezvous, kept free for it.
 *
 * Bound but not listening.  A program that probes it by a plain bind finds it taken.  A
 * program that listens with SO_REUSEADDR, as TCPStore and TensorFlow's server do, may
 * use it.  Outside the kernel's ephemeral range and the well-known 29400 and 29500. */
#ifndef BERTH_AGENT_PORT_H
#define BERTH_AGENT_PORT_H

#include <stdint.h>

enum { PORT_FIRST = 20000, PORT_LAST = 29499 };

struct port {
	int fd;          /* -1: none */
	uint32_t number; /* 0: none */
};

/* Find a free port from a random place on and hold it, for IPv4, and for IPv6 if the
 * machine has it.  Number 0: no port is free. */
void port_hold(struct port *p);
/* Give it up.  Takes a released one too. */
void port_release(struct port *p);

#endif
