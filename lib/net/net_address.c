#include "lib/net/net_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/descriptor.h"
#include "lib/net/net.h"

enum { PORT_TRIES = 100 };

/* An address of either family as 16 bytes (IPv4 in its mapped form). */
struct bits {
	unsigned char b[16];
};

struct prefix {
	struct bits at;
	unsigned length; /* bits that count, of 128 */
};

socklen_t net_address_size(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET ? sizeof(struct sockaddr_in)
				       : sizeof(struct sockaddr_in6);
}

static struct bits address_mapped(const struct in_addr *a)
{
	struct bits r = { { [10] = 0xff, [11] = 0xff } };

	memcpy(r.b + 12, a, 4);
	return r;
}

static struct bits of_sockaddr(const struct sockaddr *a)
{
	struct bits r;

	if (a->sa_family == AF_INET)
		return address_mapped(
			&((const struct sockaddr_in *)(const void *)a)->sin_addr);
	memcpy(r.b, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 16);
	return r;
}

static void to_sockaddr(struct sockaddr_storage *s, const struct bits *b, uint16_t port)
{
	static const unsigned char v4[12] = { [10] = 0xff, [11] = 0xff };
	struct sockaddr_in *four = (struct sockaddr_in *)s;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)s;

	memset(s, 0, sizeof *s);
	if (!memcmp(b->b, v4, sizeof v4)) {
		four->sin_family = AF_INET;
		four->sin_port = htons(port);
		memcpy(&four->sin_addr, b->b + 12, 4);
		return;
	}
	six->sin6_family = AF_INET6;
	six->sin6_port = htons(port);
	memcpy(&six->sin6_addr, b->b, 16);
}

static bool address_within(const struct bits *a, const struct prefix *p)
{
	unsigned whole = p->length / 8, rest = p->length % 8;

	return !memcmp(a->b, p->at.b, whole) &&
	       (!rest || (a->b[whole] ^ p->at.b[whole]) >> (8 - rest) == 0);
}

/* "10.1.2.3/8", "fd00::1/64"; without "/", the address alone.  END: of the text. */
static int read_prefix(struct prefix *p, const char *text, const char *end)
{
	char word[64], *slash, *rest;
	size_t n = (size_t)(end - text);
	struct in_addr v4;
	unsigned long bits = 128, most;

	if (n == 0 || n >= sizeof word)
		return -1;
	memcpy(word, text, n);
	word[n] = '\0';
	slash = strchr(word, '/');
	if (slash)
		*slash++ = '\0';
	if (inet_pton(AF_INET, word, &v4) == 1) {
		p->at = address_mapped(&v4);
		most = 32;
	} else if (inet_pton(AF_INET6, word, p->at.b) == 1) {
		most = 128;
	} else {
		return -1;
	}
	if (slash) {
		bits = strtoul(slash, &rest, 10);
		if (*slash < '0' || *slash > '9' || *rest || bits > most)
			return -1;
		bits += 128 - most;
	}
	p->length = (unsigned)bits;
	return 0;
}

/* Is A in one of the networks of RANGE?  -1: RANGE is malformed. */
static int in_range(const struct bits *a, const char *range)
{
	struct prefix p;
	int found = 0;

	while (*range) {
		const char *end = range + strcspn(range, ",");

		if (read_prefix(&p, range, end))
			return -1;
		found |= address_within(a, &p);
		range = *end ? end + 1 : end;
	}
	return found;
}

int net_range_check(const char *range)
{
	struct bits none = { { 0 } };

	return in_range(&none, range) < 0 || !*range ? -1 : 0;
}

/* Is NAME in LIST, "eth0,eth1"? */
static bool is_named(const char *name, const char *list)
{
	const size_t n = strlen(name);

	for (; *list; list += strcspn(list, ","), list += *list == ',')
		if (strcspn(list, ",") == n && !memcmp(list, name, n))
			return true;
	return false;
}

static unsigned mask_length(const struct sockaddr *mask)
{
	struct bits m = { { 0 } };
	unsigned n = 0;

	if (!mask)
		return 128;
	if (mask->sa_family == AF_INET) {
		m = of_sockaddr(mask);
		memset(m.b, 0xff, 12);
	} else {
		m = of_sockaddr(mask);
	}
	while (n < 128 && m.b[n / 8] & 0x80 >> n % 8)
		n++;
	return n;
}

/* Is the interface up, with an address that other hosts can use?  A link-local one is
 * not. */
static bool is_of_use(const struct ifaddrs *i, bool loopback)
{
	const struct sockaddr_in6 *six =
		(const struct sockaddr_in6 *)(const void *)i->ifa_addr;

	if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) ||
	    !(i->ifa_flags & IFF_LOOPBACK) == loopback)
		return false;
	return i->ifa_addr->sa_family == AF_INET ||
	       (i->ifa_addr->sa_family == AF_INET6 &&
		!IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr));
}

/* Put the usable addresses that are chosen into P, each once, NET_WHERE_MAX at most. */
static size_t address_choose(struct prefix *p, const struct ifaddrs *list,
			     const char *range, const char *interfaces, bool loopback)
{
	size_t n = 0, k;

	for (const struct ifaddrs *i = list; i && n < NET_WHERE_MAX; i = i->ifa_next) {
		if (!is_of_use(i, loopback))
			continue;
		p[n].at = of_sockaddr(i->ifa_addr);
		p[n].length = mask_length(i->ifa_netmask);
		for (k = 0; k < n && memcmp(&p[k].at, &p[n].at, sizeof p->at); k++)
			;
		if (k == n &&
		    (range ? in_range(&p[n].at, range) == 1
			   : !interfaces || is_named(i->ifa_name, interfaces)))
			n++;
	}
	return n;
}

/* Listen on AT alone.  If *PORT is 0, it becomes the port that was chosen. */
static int listen_at(const struct bits *at, uint16_t *port, int backlog)
{
	struct sockaddr_storage a;
	socklen_t size = sizeof a;
	int on = 1, fd;

	to_sockaddr(&a, at, *port);
	fd = descriptor_socket(a.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	if (a.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
	if (bind(fd, (struct sockaddr *)&a, net_address_size(&a)) ||
	    listen(fd, backlog) || getsockname(fd, (struct sockaddr *)&a, &size)) {
		const int error = errno;

		descriptor_close(fd);
		errno = error;
		return -1;
	}
	*port = ntohs(a.ss_family == AF_INET ? ((struct sockaddr_in *)&a)->sin_port
					     : ((struct sockaddr_in6 *)&a)->sin6_port);
	return fd;
}

/* Listen on all N addresses of P, on one port.  An IPv6 address that the host still
 * asks for can't be used yet, and is left out.  Returns how many; -1: none. */
static int listen_at_all(struct prefix *p, size_t n, uint16_t *port, int backlog,
			 int *fd)
{
	int have = 0, error = EADDRNOTAVAIL;

	*port = 0;
	for (size_t i = 0; i < n; i++) {
		fd[have] = listen_at(&p[i].at, port, backlog);
		if (fd[have] >= 0) {
			p[have++] = p[i];
			continue;
		}
		error = errno;
		if (error == EADDRNOTAVAIL)
			continue;
		while (have)
			descriptor_close(fd[--have]);
		break;
	}
	errno = error;
	return have ? have : -1;
}

static void say_where(char *text, const struct prefix *p, int n, uint16_t port)
{
	size_t at = (size_t)snprintf(text, NET_ADDRESS_BYTES, "%u", port);

	for (int i = 0; i < n; i++) {
		struct sockaddr_storage a;
		char word[INET6_ADDRSTRLEN];
		bool four;

		to_sockaddr(&a, &p[i].at, port);
		four = a.ss_family == AF_INET;
		inet_ntop(a.ss_family, four ? p[i].at.b + 12 : p[i].at.b, word,
			  sizeof word);
		at += (size_t)snprintf(text + at, NET_ADDRESS_BYTES - at, " %s/%u",
				       word, four ? p[i].length - 96 : p[i].length);
	}
}

_Static_assert(NET_WHERE_MAX *(INET6_ADDRSTRLEN + 5) + 6 <= NET_ADDRESS_BYTES,
	       "all addresses have room");

int net_listen(const char *range, const char *interfaces, int backlog, int *fd,
	       char *text, char *why, size_t why_bytes)
{
	struct prefix p[NET_WHERE_MAX];
	struct ifaddrs *list;
	uint16_t port;
	size_t n;
	int have = -1;

	if (getifaddrs(&list)) {
		snprintf(why, why_bytes, "getifaddrs: %s", strerror(errno));
		return -1;
	}
	n = address_choose(p, list, range, interfaces, false);
	if (!n)
		n = address_choose(p, list, range, interfaces, true);
	freeifaddrs(list);
	if (!n && range)
		snprintf(why, why_bytes,
			 "no interface has an address in BERTH_NET=\"%s\"", range);
	else if (!n)
		snprintf(why, why_bytes, "no interface%s%s%s is up and has an address",
			 interfaces ? " of HOROVOD_GLOO_IFACE=\"" : "",
			 interfaces ? interfaces : "", interfaces ? "\"" : "");
	if (!n)
		return -1;
	/* the port that is free at the first address may be in use at another */
	for (int i = 0; have < 0 && i < PORT_TRIES; i++) {
		have = listen_at_all(p, n, &port, backlog, fd);
		if (have < 0 && errno != EADDRINUSE)
			break;
	}
	if (have < 0)
		snprintf(why, why_bytes, "a listening socket: %s", strerror(errno));
	else
		say_where(text, p, have, port);
	return have;
}

/* ---- peers ---- */

/* Does this host have an address in P's network? */
static bool is_near(const struct prefix *p, const struct ifaddrs *list)
{
	for (; list; list = list->ifa_next) {
		struct bits b;

		if (!list->ifa_addr || (list->ifa_addr->sa_family != AF_INET &&
					list->ifa_addr->sa_family != AF_INET6))
			continue;
		b = of_sockaddr(list->ifa_addr);
		if (address_within(&b, p))
			return true;
	}
	return false;
}

static int read_where(struct net_where *w, const char *text, const struct ifaddrs *list)
{
	char *rest;
	unsigned long port = strtoul(text, &rest, 10);
	size_t near = 0;

	w->n = 0;
	if (*text < '1' || *text > '9' || port > 65535)
		return -1;
	while (*rest == ' ' && w->n < NET_WHERE_MAX) {
		const char *word = rest + 1;
		struct sockaddr_storage a;
		struct prefix p;

		rest = (char *)(uintptr_t)word + strcspn(word, " ");
		if (read_prefix(&p, word, rest))
			return -1;
		to_sockaddr(&a, &p.at, (uint16_t)port);
		w->at[w->n] = a;
		if (is_near(&p, list)) { /* in front of those that are not near */
			memmove(w->at + near + 1, w->at + near,
				(w->n - near) * sizeof *w->at);
			w->at[near++] = a;
		}
		w->n++;
	}
	return w->n && !*rest ? 0 : -1;
}

int net_where(struct net_where *w, const char *text)
{
	struct ifaddrs *list = NULL;
	int rc;

	if (getifaddrs(&list))
		list = NULL;
	rc = read_where(w, text, list);
	if (list)
		freeifaddrs(list);
	return rc;
}
