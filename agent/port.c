#include "agent/port.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/str.h"

static int bind_any(int fd, int family, uint32_t number)
{
	const struct sockaddr_in v4 = { .sin_family = AF_INET,
					.sin_port = htons((uint16_t)number) };
	const struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
					 .sin6_port = htons((uint16_t)number) };

	return family == AF_INET6 ? bind(fd, (const struct sockaddr *)&v6, sizeof v6)
				  : bind(fd, (const struct sockaddr *)&v4, sizeof v4);
}

static int open_any(int *family)
{
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), off = 0;

	*family = AF_INET6;
	if (fd >= 0 && !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off))
		return fd;
	if (fd >= 0)
		close(fd);
	*family = AF_INET;
	return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* The plain bind proves that nobody has the port; SO_REUSEADDR on the very same socket
 * then lets the rank in, with no moment in between at which the port is anybody's. */
static bool try_port(struct port *p, int fd, int family, uint32_t number)
{
	int on = 1;

	if (bind_any(fd, family, number) ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on))
		return false;
	*p = (struct port){ fd, number };
	return true;
}

void port_hold(struct port *p)
{
	enum { COUNT = PORT_LAST - PORT_FIRST + 1 };
	int family, fd = open_any(&family);
	uint32_t first = 0;

	*p = (struct port){ -1, 0 };
	if (getrandom(&first, sizeof first, GRND_NONBLOCK) < 0)
		first = (uint32_t)clock_ns();
	for (uint32_t i = 0; fd >= 0 && i < COUNT; i++) {
		if (try_port(p, fd, family, PORT_FIRST + (first + i) % COUNT))
			return;
		if (errno == EADDRINUSE || errno == EACCES)
			continue;
		/* no IPv6 address on this machine (EADDRNOTAVAIL): do without it */
		close(fd);
		fd = family == AF_INET6 ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)
					: -1;
		family = AF_INET;
	}
	if (fd >= 0)
		close(fd);
}

void port_release(struct port *p)
{
	if (p->number)
		close(p->fd);
	*p = (struct port){ -1, 0 };
}
