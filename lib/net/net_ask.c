#include "lib/net/net_ask.h"

#include <errno.h>
#include <sys/socket.h>

static void ask_stop(struct net_ask *k, int error)
{
	k->refused = error == ECONNREFUSED ? k->refused + 1 : 0;
	if (k->refused)
		k->next_ns = 0; /* the next address at once */
	descriptor_close(k->fd);
	k->fd = -1;
}

static void ask_begin(struct net *n, unsigned peer, struct net_ask *k)
{
	const struct net_where *w = net_where_is(n, peer);
	const struct sockaddr_storage *at = &w->at[k->refused % w->n];

	k->next_ns = clock_ns() + LISTENER_PROBE_MS * 1000000ull;
	k->said = false;
	k->got = 0;
	k->fd = descriptor_socket(at->ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (k->fd >= 0 &&
	    connect(k->fd, (const struct sockaddr *)at, net_address_size(at)) &&
	    errno != EINPROGRESS)
		ask_stop(k, errno);
}

static void ask_hear(struct net *n, struct net_ask *k)
{
	ssize_t got = recv(k->fd, (char *)&k->answer + k->got,
			   sizeof k->answer - k->got, MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got > 0)
		k->got += (size_t)got;
	if (got > 0 && k->got < sizeof k->answer)
		return;
	/* a peer in another epoch has left this one */
	k->left = k->got == sizeof k->answer &&
		  (k->answer.verdict == NET_LEFT ||
		   k->answer.verdict == NET_OTHER_EPOCH) &&
		  net_answer_is_good(&k->answer, n->door->key, &k->hello);
	ask_stop(k, 0);
}

bool net_ask_left(struct net *n, unsigned peer, struct net_ask *k)
{
	struct pollfd p = { k->fd, k->said ? POLLIN : POLLOUT, 0 };
	const size_t addresses = net_where_is(n, peer)->n;
	socklen_t size = sizeof(int);
	int error = 0;

	if (k->fd < 0 && clock_ns() >= k->next_ns && addresses) {
		ask_begin(n, peer, k);
	} else if (k->fd >= 0 && poll(&p, 1, 0) > 0) {
		getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &error, &size);
		if (error) {
			ask_stop(k, error);
		} else if (k->said) {
			ask_hear(n, k);
		} else {
			k->hello = net_own_hello(n, peer, NET_ASKS);
			net_hello_make(&k->hello, n->door->key);
			k->said = true;
			if (send(k->fd, &k->hello, sizeof k->hello,
				 MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
				ask_stop(k, errno);
		}
	}
	return k->left || (k->refused && k->refused >= addresses);
}

void net_ask_end(struct net_ask *k)
{
	if (k->fd >= 0)
		descriptor_close(k->fd);
	k->fd = -1;
}
