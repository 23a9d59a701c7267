#include "agent/pmi/pmix_accept.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/file.h"

static atomic_bool guarded;
static bool owners_are_told; /* before guarded */

/* A line is "0: ADDRESS:PORT PEER:PORT STATE queues timer retransmits UID timeout INODE
 * ..."; the first one names the columns. */
bool pmix_owner_of_line(struct pmix_owner *o, const char *line, const char *ends)
{
	const size_t n = strlen(ends);
	int at = 0;

	sscanf(line, " %*u: %n", &at);
	return at && !strncmp(line + at, ends, n) &&
	       sscanf(line + at + n,
		      " %" SCNx32 " %*s %*s %*s %" SCNu32 " %*u %" SCNu64, &o->state,
		      &o->uid, &o->inode) == 3;
}

/* Our end is open, so a peer that has not closed its own is ESTABLISHED.  A socket in
 * another state may have come to the port later: one that listens, or that begins to
 * connect.  One that its process has closed may be shown as root's: it has no inode. */
bool pmix_owner_is(const struct pmix_owner *o, uint32_t us)
{
	return o->state == TCP_ESTABLISHED && o->inode && o->uid == us;
}

/* ---- addresses ---- */

/* A socket, by its own address and that of its peer; as inet_diag has it, AF_INET also
 * for addresses of IPv4 that are mapped to IPv6. */
struct ends {
	int family;
	struct inet_diag_sockid id;
};

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static int end_get(uint32_t *to, uint16_t *port, const union address *a)
{
	if (a->any.sa_family == AF_INET) {
		to[0] = a->v4.sin_addr.s_addr;
		*port = a->v4.sin_port;
		return AF_INET;
	}
	*port = a->v6.sin6_port;
	if (IN6_IS_ADDR_V4MAPPED(&a->v6.sin6_addr)) {
		to[0] = a->v6.sin6_addr.s6_addr32[3];
		return AF_INET;
	}
	memcpy(to, &a->v6.sin6_addr, sizeof a->v6.sin6_addr);
	return AF_INET6;
}

/* The socket at the other end of FD, which is at OWN.  false: it is gone. */
static bool ends_of_peer(struct ends *e, int fd, const union address *own)
{
	const uint32_t any = INET_DIAG_NOCOOKIE;
	union address peer;
	socklen_t bytes = sizeof peer;

	if (getpeername(fd, &peer.any, &bytes))
		return false;
	*e = (struct ends){ 0, { 0, 0, { 0 }, { 0 }, 0, { any, any } } };
	e->family = end_get(e->id.idiag_src, &e->id.idiag_sport, &peer);
	if (e->family == AF_INET6)
		e->id.idiag_if = peer.v6.sin6_scope_id;
	return end_get(e->id.idiag_dst, &e->id.idiag_dport, own) == e->family;
}

static struct ends ends_turned(const struct ends *e)
{
	struct ends t = *e;

	memcpy(t.id.idiag_src, e->id.idiag_dst, sizeof t.id.idiag_src);
	memcpy(t.id.idiag_dst, e->id.idiag_src, sizeof t.id.idiag_dst);
	t.id.idiag_sport = e->id.idiag_dport;
	t.id.idiag_dport = e->id.idiag_sport;
	return t;
}

/* ---- sock_diag ---- */

enum answer { NO_ANSWER, ABSENT, FOUND };

static pthread_mutex_t diag_mutex = PTHREAD_MUTEX_INITIALIZER;
static int diag = -1; /* its socket, kept */
static uint32_t diag_seq;
static bool diag_knows; /* it has found a socket */

static bool diag_open(void)
{
	const struct timeval most = { .tv_sec = 1 };

	if (diag >= 0)
		return true;
	diag = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (diag >= 0)
		setsockopt(diag, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
	return diag >= 0;
}

static bool diag_send(const struct ends *e)
{
	struct {
		struct nlmsghdr header;
		struct inet_diag_req_v2 socket;
	} q = { .header = { .nlmsg_len = sizeof q,
			    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			    .nlmsg_flags = NLM_F_REQUEST,
			    .nlmsg_seq = ++diag_seq },
		.socket = { .sdiag_family = (uint8_t)e->family,
			    .sdiag_protocol = IPPROTO_TCP,
			    .idiag_states = ~0u,
			    .id = e->id } };

	return send(diag, &q, sizeof q, 0) == (ssize_t)sizeof q;
}

/* An answer that came after its time is not that to this question. */
static enum answer diag_read(struct pmix_owner *o)
{
	enum { MOST_OTHERS = 8 };
	union {
		struct nlmsghdr header;
		char bytes[4096];
	} a;

	for (int i = 0; i <= MOST_OTHERS; i++) {
		struct sockaddr_nl from = { 0 };
		socklen_t bytes = sizeof from;
		ssize_t n = recvfrom(diag, &a, sizeof a, 0, (struct sockaddr *)&from,
				     &bytes);
		const struct nlmsgerr *wrong = NLMSG_DATA(&a.header);
		const struct inet_diag_msg *m = NLMSG_DATA(&a.header);

		if (n < 0 && errno != EINTR)
			return NO_ANSWER;
		if (n < (ssize_t)NLMSG_LENGTH(sizeof *wrong) || from.nl_pid ||
		    a.header.nlmsg_seq != diag_seq)
			continue;
		if (a.header.nlmsg_type == NLMSG_ERROR)
			return wrong->error == -ENOENT ? ABSENT : NO_ANSWER;
		if (n < (ssize_t)NLMSG_LENGTH(sizeof *m))
			return NO_ANSWER;
		*o = (struct pmix_owner){ m->idiag_state, m->idiag_uid,
					  m->idiag_inode };
		return FOUND;
	}
	return NO_ANSWER;
}

static enum answer diag_ask(struct pmix_owner *o, const struct ends *e)
{
	const enum answer a = diag_open() && diag_send(e) ? diag_read(o) : NO_ANSWER;

	diag_knows |= a == FOUND;
	return a;
}

/* ENOENT says that there is no such socket, or no inet_diag in the kernel.  Our own end
 * is there: with inet_diag it is found. */
static enum answer owner_by_diag(struct pmix_owner *o, const struct ends *e)
{
	const struct ends turned = ends_turned(e);
	struct pmix_owner own;
	enum answer a;

	pthread_mutex_lock(&diag_mutex);
	a = diag_ask(o, e);
	if (a == ABSENT && !diag_knows && diag_ask(&own, &turned) != FOUND)
		a = NO_ANSWER;
	pthread_mutex_unlock(&diag_mutex);
	return a;
}

/* ---- /proc ---- */

/* Line by line: there may be any number of sockets. */
static bool owner_in_file(struct pmix_owner *o, const char *path, const char *ends)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t bytes = 0;
	bool found = false;

	while (f && !found && getline(&line, &bytes, f) > 0)
		found = pmix_owner_of_line(o, line, ends);
	free(line);
	if (f)
		fclose(f);
	return found;
}

/* tcp6 has each 4 bytes of an address as a number of this processor, and addresses of
 * IPv4 as mapped ones. */
static void address_text_v6(char *to, size_t bytes, int family, const uint32_t *address)
{
	const uint32_t mapped[] = { 0, 0, htonl(0xffff), address[0] };
	const uint32_t *v = family == AF_INET ? mapped : address;

	snprintf(to, bytes, "%08X%08X%08X%08X", v[0], v[1], v[2], v[3]);
}

static bool owner_by_proc(struct pmix_owner *o, const struct ends *e)
{
	const unsigned from = ntohs(e->id.idiag_sport), to = ntohs(e->id.idiag_dport);
	char src[33], dst[33], ends[90];

	if (e->family == AF_INET) {
		snprintf(ends, sizeof ends, "%08X:%04X %08X:%04X ", e->id.idiag_src[0],
			 from, e->id.idiag_dst[0], to);
		if (owner_in_file(o, "/proc/net/tcp", ends))
			return true;
	}
	address_text_v6(src, sizeof src, e->family, e->id.idiag_src);
	address_text_v6(dst, sizeof dst, e->family, e->id.idiag_dst);
	snprintf(ends, sizeof ends, "%s:%04X %s:%04X ", src, from, dst, to);
	return owner_in_file(o, "/proc/net/tcp6", ends);
}

/* ---- accept ---- */

/* A user namespace shows each user that it does not have as one and the same, "nobody".
 * If that is also our name, no owner is told. */
static bool owners_have_names(void)
{
	enum { MOST_BYTES = 4096 };
	struct str nobody = { 0 }, map = { 0 };
	uint32_t number = 65534, users = 0;

	file_read(&nobody, "/proc/sys/kernel/overflowuid", MOST_BYTES, false);
	file_read(&map, "/proc/self/uid_map", MOST_BYTES, false);
	sscanf(str_text(&nobody), "%" SCNu32, &number);
	sscanf(str_text(&map), "%*u %*u %" SCNu32, &users);
	str_free(&nobody);
	str_free(&map);
	return geteuid() != number || users == UINT32_MAX;
}

void pmix_accept_guard(void)
{
	owners_are_told = owners_have_names();
	atomic_store(&guarded, true);
}

static bool is_ours(int fd)
{
	union address own;
	socklen_t bytes = sizeof own;
	struct ends e;
	struct pmix_owner o;
	enum answer a;

	if (!owners_are_told || getsockname(fd, &own.any, &bytes))
		return false;
	if (own.any.sa_family == AF_UNIX) {
		struct ucred peer;
		socklen_t n = sizeof peer;

		return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) &&
		       peer.uid == geteuid();
	}
	if ((own.any.sa_family != AF_INET && own.any.sa_family != AF_INET6) ||
	    !ends_of_peer(&e, fd, &own))
		return false;
	a = owner_by_diag(&o, &e);
	if (a == NO_ANSWER)
		a = owner_by_proc(&o, &e) ? FOUND : ABSENT;
	return a == FOUND && pmix_owner_is(&o, geteuid());
}

/* In place of libc's.  A stranger's address has changed *BYTES. */
int accept(int listener, __SOCKADDR_ARG address, socklen_t *restrict bytes)
{
	const socklen_t room = bytes ? *bytes : 0;

	for (;;) {
		int fd = accept4(listener, address, bytes, 0);

		if (fd < 0 || !atomic_load(&guarded) || is_ours(fd))
			return fd;
		close(fd);
		if (bytes)
			*bytes = room;
	}
}
