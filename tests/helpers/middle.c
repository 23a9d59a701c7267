/* middle IFACE A B PORT DOES WHICH AT BYTES - a man in the middle of hosts A and B, on
 * a third host of their network: tells each of them by ARP that it is the other one,
 * and takes the TCP connections that iptables redirects to PORT.  What a connection
 * carries goes on, but for what is done to it once, AT bytes behind the handshake, to
 * what the side WHICH (first: the one that connects, or second) sends:
 *   none      nothing
 *   change    one bit changes
 *   replay    the BYTES in front of that are said again
 *   reorder   BYTES, and as many behind them, change places
 *   cut       BYTES are left out
 *   end       nothing follows: the stream ends on both sides
 * A and B have to be in this host's ARP table.  At its end, by SIGTERM, both are told
 * the truth.  A line for each connection that has ended: what it did. */
#include <arpa/inet.h>
#include <linux/netfilter_ipv4.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/if_ether.h>
#include <netinet/tcp.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/net/net_key.h"

enum { AGAIN_MS = 50, MOST = 1 << 16, HOLD_MS = 2000 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* ---- ARP ---- */

struct host {
	struct in_addr ip;
	unsigned char mac[ETH_ALEN];
};

static struct host find(const char *ip)
{
	char line[256], at[64], mac[64];
	unsigned b[ETH_ALEN];
	FILE *f = fopen("/proc/net/arp", "r");
	struct host h;

	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%63s %*s %*s %63s", at, mac) != 2 || strcmp(at, ip) ||
		    sscanf(mac, "%x:%x:%x:%x:%x:%x", b, b + 1, b + 2, b + 3, b + 4,
			   b + 5) != ETH_ALEN)
			continue;
		for (int i = 0; i < ETH_ALEN; i++)
			h.mac[i] = (unsigned char)b[i];
		if (!inet_aton(ip, &h.ip))
			die(ip);
		fclose(f);
		return h;
	}
	fprintf(stderr, "middle: %s is not in the ARP table\n", ip);
	exit(1);
}

static unsigned char own[ETH_ALEN];

/* TO hears that the address of AS is at MAC. */
static void claim(int fd, const struct sockaddr_ll *out, const struct host *to,
		  const struct host *as, const unsigned char *mac)
{
	struct {
		struct ether_header eth;
		struct ether_arp arp;
	} __attribute__((packed)) p = { 0 };

	memcpy(p.eth.ether_dhost, to->mac, ETH_ALEN);
	memcpy(p.eth.ether_shost, own,
	       ETH_ALEN); /* by which the bridge knows this host */
	p.eth.ether_type = htons(ETHERTYPE_ARP);
	p.arp.arp_hrd = htons(ARPHRD_ETHER);
	p.arp.arp_pro = htons(ETHERTYPE_IP);
	p.arp.arp_hln = ETH_ALEN;
	p.arp.arp_pln = 4;
	p.arp.arp_op = htons(ARPOP_REQUEST);
	memcpy(p.arp.arp_sha, mac, ETH_ALEN);
	memcpy(p.arp.arp_spa, &as->ip, 4);
	memcpy(p.arp.arp_tpa, &to->ip, 4);
	sendto(fd, &p, sizeof p, 0, (const struct sockaddr *)out, sizeof *out);
}

static volatile sig_atomic_t stops;

static void stop(int signal)
{
	(void)signal;
	stops = 1;
}

static void lie(const char *iface, const struct host *a, const struct host *b)
{
	int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ARP));
	struct sockaddr_ll out = { .sll_family = AF_PACKET, .sll_halen = ETH_ALEN };
	struct ifreq r = { 0 };
	snprintf(r.ifr_name, sizeof r.ifr_name, "%s", iface);
	out.sll_ifindex = (int)if_nametoindex(iface);
	if (fd < 0 || ioctl(fd, SIOCGIFHWADDR, &r))
		die(iface);
	memcpy(own, r.ifr_hwaddr.sa_data, sizeof own);
	while (!stops) {
		claim(fd, &out, a, b, own);
		claim(fd, &out, b, a, own);
		poll(NULL, 0, AGAIN_MS);
	}
	claim(fd, &out, a, b, b->mac);
	claim(fd, &out, b, a, a->mac);
	exit(0);
}

/* ---- a connection ---- */

static const char *does;
static int which;
static size_t at, bytes;

struct way {
	int from, to;
	size_t seen; /* behind the handshake, if positive */
	bool counts, done;
	unsigned char kept[2 * MOST];
	size_t have;
};

static bool say(int fd, const void *data, size_t n)
{
	for (size_t k = 0; k < n;) {
		ssize_t sent = send(fd, (const char *)data + k, n - k, MSG_NOSIGNAL);

		if (sent <= 0)
			return false;
		k += (size_t)sent;
	}
	return true;
}

/* N bytes that are from SEEN on.  False: it has ended. */
static bool pass(struct way *w, unsigned char *data, size_t n)
{
	size_t end = w->seen + n, before;

	w->seen = end;
	if (w->done || !w->counts || !strcmp(does, "none"))
		return say(w->to, data, n);
	if (w->have + n > sizeof w->kept) { /* long before AT: only the last count */
		size_t gone = w->have + n - sizeof w->kept;

		memmove(w->kept, w->kept + gone, w->have - gone);
		w->have -= gone;
	}
	memcpy(w->kept + w->have, data, n);
	w->have += n;
	if (!strcmp(does, "replay")) {
		if (end < at)
			return say(w->to, data, n);
		w->done = true;
		before = n - (end - at);
		return say(w->to, data, before) &&
		       say(w->to, w->kept + w->have - (end - at) - bytes, bytes) &&
		       say(w->to, data + before, n - before);
	}
	/* the others hold what they need together */
	w->have -= n;
	if (end <= at)
		return say(w->to, data, n);
	before = w->seen - n < at ? at - (w->seen - n) : 0;
	if (!say(w->to, data, before))
		return false;
	memmove(w->kept + w->have, data + before, n - before);
	w->have += n - before;
	if (!strcmp(does, "end"))
		return false;
	if (!strcmp(does, "change")) {
		*w->kept ^= 1;
	} else if (!strcmp(does, "cut")) {
		if (w->have < bytes)
			return true;
		memmove(w->kept, w->kept + bytes, w->have - bytes);
		w->have -= bytes;
	} else {
		if (w->have < 2 * bytes)
			return true;
		for (size_t i = 0; i < bytes; i++) {
			unsigned char c = w->kept[i];

			w->kept[i] = w->kept[bytes + i];
			w->kept[bytes + i] = c;
		}
	}
	w->done = true;
	return say(w->to, w->kept, w->have);
}

static bool carry(struct way *w)
{
	static unsigned char data[MOST];
	ssize_t n = recv(w->from, data, sizeof data, 0);

	return n > 0 && pass(w, data, (size_t)n);
}

/* The handshake goes through as it is. */
static bool begin(struct way *w, size_t handshake)
{
	unsigned char data[256];
	size_t have = 0;

	while (have < handshake) {
		ssize_t n = recv(w->from, data, handshake - have, 0);

		if (n <= 0 || !say(w->to, data, (size_t)n))
			return false;
		have += (size_t)n;
	}
	return true;
}

static int onward(int fd)
{
	struct sockaddr_in to;
	socklen_t size = sizeof to;
	int out = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	if (getsockopt(fd, SOL_IP, SO_ORIGINAL_DST, &to, &size) || out < 0 ||
	    connect(out, (struct sockaddr *)&to, sizeof to))
		return -1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(out, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	return out;
}

static void serve(int fd)
{
	static struct way w[2];
	const int out = onward(fd);
	bool goes_on;

	w[0] = (struct way){ .from = fd, .to = out, .counts = which == 0 };
	w[1] = (struct way){ .from = out, .to = fd, .counts = which == 1 };
	goes_on = out >= 0 && begin(&w[0], sizeof(struct net_hello)) &&
		  begin(&w[1], sizeof(struct net_answer)) &&
		  begin(&w[0], sizeof(struct net_seal));
	while (goes_on) {
		struct pollfd p[2] = { { fd, POLLIN, 0 }, { out, POLLIN, 0 } };

		poll(p, 2, -1);
		for (int i = 0; i < 2 && goes_on; i++)
			if (p[i].revents)
				goes_on = carry(&w[i]);
	}
	printf("%s: %zu and %zu bytes\n", w[which].done ? does : "carried", w[0].seen,
	       w[1].seen);
	exit(0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in here = { .sin_family = AF_INET };
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd, on = 1;
	struct host a, b;
	struct sigaction act = { .sa_handler = stop };
	pid_t liar;

	if (argc != 9) {
		fprintf(stderr, "usage: middle IFACE A B PORT DOES WHICH AT BYTES\n");
		return 2;
	}
	a = find(argv[2]);
	b = find(argv[3]);
	does = argv[5];
	which = !strcmp(argv[6], "second");
	at = strtoul(argv[7], NULL, 10);
	bytes = strtoul(argv[8], NULL, 10);
	here.sin_port = htons((uint16_t)atoi(argv[4]));
	if (listener < 0 ||
	    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
	    bind(listener, (struct sockaddr *)&here, sizeof here) ||
	    listen(listener, 100))
		die("listen");
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGCHLD, SIG_IGN);
	sigaction(SIGTERM, &act, NULL);
	liar = fork();
	if (!liar) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		lie(argv[1], &a, &b);
	}
	while (!stops && (fd = accept(listener, NULL, NULL)) >= 0) {
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(listener);
			serve(fd);
		}
		close(fd);
	}
	kill(liar, SIGTERM);
	return 0;
}
