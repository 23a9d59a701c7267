#include "agent/port.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/str.h"

/* A free port for FAMILY, from number FIRST on.  False: every port is taken, or
 * this machine has no address of that family.
 *
 * The plain bind proves that no other process has the port.  SO_REUSEADDR on the same
 * socket then lets the rank in, with no moment in between at which the port is free. */
static bool agent_port_hold(struct port *p, int family, uint32_t first)
{
	enum { COUNT = PORT_LAST - PORT_FIRST + 1 };
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), off = 0, on = 1;
	/* begins as a struct sockaddr_in does */
	struct sockaddr_in6 a = { .sin6_family = (sa_family_t)family };
	socklen_t n = family == AF_INET6 ? sizeof a : sizeof(struct sockaddr_in);
	bool usable = fd >= 0 &&
		      (family == AF_INET ||
		       !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off));

	for (uint32_t i = 0; usable && i < COUNT; i++) {
		uint32_t number = PORT_FIRST + (first + i) % COUNT;

		a.sin6_port = htons((uint16_t)number);
		if (!bind(fd, (const struct sockaddr *)&a, n) &&
		    !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on)) {
			*p = (struct port){ fd, number };
			return true;
		}
		usable = errno == EADDRINUSE || errno == EACCES;
	}
	if (fd >= 0)
		close(fd);
	return false;
}

void port_hold(struct port *p)
{
	uint32_t first = 0;

	*p = (struct port){ -1, 0 };
	if (getrandom(&first, sizeof first, GRND_NONBLOCK) < 0)
		first = (uint32_t)clock_ns();
	if (!agent_port_hold(p, AF_INET6, first))
		agent_port_hold(p, AF_INET, first); /* a machine without IPv6 */
}

void port_release(struct port *p)
{
	if (p->number)
		close(p->fd);
	*p = (struct port){ -1, 0 };
}

void ports_release(struct ports *p)
{
	for (size_t i = 0; i < p->n; i++)
		close(p->fd[i]);
	free(p->fd);
	free(p->number);
	*p = (struct ports){ 0 };
}

bool ports_hold(struct ports *p, size_t n)
{
	struct ports fresh = { xcalloc(n + 1, sizeof *fresh.fd),
			       xcalloc(n + 1, sizeof *fresh.number), 0 };
	struct port one;

	while (fresh.n < n) {
		port_hold(&one);
		if (!one.number)
			break;
		fresh.fd[fresh.n] = one.fd;
		fresh.number[fresh.n++] = one.number;
	}
	ports_release(p);
	*p = fresh;
	if (fresh.n == n)
		return true;
	ports_release(p);
	return false;
}
