/* sniff OUT: write what TCP carries past this host to the file OUT, until TERM.
 *
 * For a test that looks there for what nobody may read.  Each payload of a packet of
 * any interface, in or out, is a record: a line "\n== FROM PORT TO PORT BYTES\n", then
 * the bytes.  A packet of this host itself is seen twice, as it is by tcpdump.  Says
 * "sniff: ready" on stdout once nothing can pass by unseen, and at its end how many
 * packets the kernel dropped: status 1 if it was one.  Needs root. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROOM = 64 << 20, PACKET_MOST = 1 << 17 };

static volatile sig_atomic_t ends;

static void on_term(int signo)
{
	(void)signo;
	ends = 1;
}

/* The TCP segment of the packet P[0..N): its head in *T, with the addresses of both
 * sides.  Returns the bytes of the segment, 0: it is none. */
static size_t segment(const unsigned char *p, size_t n, const struct tcphdr **t,
		      char *from, char *to)
{
	const struct ip *v4 = (const void *)p;
	const struct ip6_hdr *v6 = (const void *)p;
	size_t head, all;

	if (n >= sizeof *v4 && p[0] >> 4 == 4 && v4->ip_p == IPPROTO_TCP) {
		head = (size_t)v4->ip_hl * 4;
		all = ntohs(v4->ip_len);
		inet_ntop(AF_INET, &v4->ip_src, from, INET6_ADDRSTRLEN);
		inet_ntop(AF_INET, &v4->ip_dst, to, INET6_ADDRSTRLEN);
	} else if (n >= sizeof *v6 && p[0] >> 4 == 6 && v6->ip6_nxt == IPPROTO_TCP) {
		head = sizeof *v6;
		all = head + ntohs(v6->ip6_plen);
		inet_ntop(AF_INET6, &v6->ip6_src, from, INET6_ADDRSTRLEN);
		inet_ntop(AF_INET6, &v6->ip6_dst, to, INET6_ADDRSTRLEN);
	} else {
		return 0;
	}
	/* 0 in a length: longer than it can say (BIG TCP) */
	all = all > head && all < n ? all : n;
	if (all < head + sizeof **t)
		return 0;
	*t = (const void *)(p + head);
	return all - head;
}

static void take(FILE *out, const unsigned char *p, size_t n)
{
	char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN];
	const struct tcphdr *t;
	size_t head;

	n = segment(p, n, &t, from, to);
	head = n ? (size_t)t->doff * 4 : 0;
	if (head < sizeof *t || head >= n)
		return;
	fprintf(out, "\n== %s %u %s %u %zu\n", from, ntohs(t->source), to,
		ntohs(t->dest), n - head);
	fwrite((const unsigned char *)t + head, 1, n - head, out);
}

static unsigned dropped(int fd)
{
	struct tpacket_stats s = { 0 };
	socklen_t n = sizeof s;

	return getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &s, &n) ? 1 : s.tp_drops;
}

/* Until TERM has come and all that came before it is written. */
static void sniff(int fd, FILE *out)
{
	static _Alignas(8) unsigned char packet[PACKET_MOST];
	struct pollfd p = { .fd = fd, .events = POLLIN };

	for (;;) {
		ssize_t n = recv(fd, packet, sizeof packet, MSG_DONTWAIT);

		if (n > 0)
			take(out, packet, (size_t)n);
		else if (ends)
			return;
		else
			poll(&p, 1, 100);
	}
}

int main(int argc, char **argv)
{
	const int room = ROOM;
	FILE *out = argc == 2 ? fopen(argv[1], "we") : NULL;
	int fd;
	unsigned lost;

	if (!out) {
		fprintf(stderr, "usage: sniff OUT (which can be written)\n");
		return 2;
	}
	signal(SIGTERM, on_term);
	/* a datagram without the head of its link */
	fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_ALL));
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room)) {
		fprintf(stderr, "sniff: %s\n", strerror(errno));
		return 2;
	}
	puts("sniff: ready");
	fflush(stdout);
	sniff(fd, out);
	lost = dropped(fd);
	fprintf(stderr, "sniff: %u packets dropped\n", lost);
	return fclose(out) || lost;
}
