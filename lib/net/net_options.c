#include "lib/net/net_state.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#ifndef TCP_RTO_MAX_MS /* Linux 6.15 */
#define TCP_RTO_MAX_MS 44
#endif

enum {
	NEAR_US = 1000,  /* bytes to nearer peers are not paced */
	QUIET_S = 20,    /* of a peer, before it is asked for a sign of life */
	GONE_MS = 60000, /* without one; as long as runner waits for a host */
	AGAIN_MS = 2000  /* between two retries, at most: links come back */
};

void net_disable_pacing(char control[16], int fd)
{
	char name[16] = "";
	socklen_t size = sizeof name - 1;

	if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) ||
	    strncmp(name, "bbr", 3))
		return;
	if (control)
		memcpy(control, name, sizeof name);
	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5))
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

void net_settle(const struct net *n, int fd)
{
	struct tcp_info info = { 0 };
	socklen_t size = sizeof info;

	const char *control = n->door->pacing_control;

	if (*control && !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) &&
	    info.tcpi_rtt >= NEAR_US)
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control,
			   (socklen_t)strlen(control));
}

static void options_set(int fd, int level, int name, int value)
{
	setsockopt(fd, level, name, &value, sizeof value);
}

int net_set_up(int fd)
{
	options_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	options_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	options_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, QUIET_S);
	options_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, QUIET_S / 4);
	options_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, GONE_MS);
	options_set(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, AGAIN_MS);
	return fd;
}
