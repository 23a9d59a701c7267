#include "launcher/transport/lookup.h"

#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Shared by its owner and the threads inside it; the last of them frees it. */
struct lookup {
	struct lookup_answer *answer;
	size_t n;
	char **name;               /* those that need a thread ... */
	size_t *index;             /* ... and where the answer of each goes */
	size_t nnames, next, done; /* next: the first name that no thread has taken */
	size_t users;
	int family, news;
	struct lookup *queued; /* the next one in the pool's queue */
};

static struct {
	pthread_mutex_t lock; /* of all below and of every struct lookup */
	struct lookup *first; /* look-ups with names that no thread has taken */
	size_t threads;       /* they end when the queue is empty */
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER };

static socklen_t address_len(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET ? sizeof(struct sockaddr_in)
					: sizeof(struct sockaddr_in6);
}

static bool same_address(const struct sockaddr_storage *a,
			 const struct sockaddr_storage *b)
{
	const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
	const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;

	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	/* fe80::1 may be another machine on each link; the scope tells them apart */
	return a->ss_family == AF_INET6 && a6->sin6_scope_id == b6->sin6_scope_id &&
	       !memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof a6->sin6_addr);
}

static void lookup_add_address(struct sockaddr_storage **v, size_t *n,
			       const struct sockaddr *sa)
{
	struct sockaddr_storage a = { 0 };

	if (sa->sa_family != AF_INET && sa->sa_family != AF_INET6)
		return;
	memcpy(&a, sa, address_len(sa));
	for (size_t i = 0; i < *n; i++)
		if (same_address(&(*v)[i], &a))
			return;
	*v = xreallocarray(*v, *n + 1, sizeof **v);
	(*v)[(*n)++] = a;
}

static void ask_resolver(struct lookup_answer *a, const char *name, int family,
			 int flags)
{
	struct addrinfo hints = { .ai_family = family,
				  .ai_socktype = SOCK_STREAM,
				  .ai_flags = flags };
	struct addrinfo *list = NULL;
	int rc = getaddrinfo(name, NULL, &hints, &list);

	if (rc) {
		a->why = rc == EAI_SYSTEM ? "the resolver failed" : gai_strerror(rc);
		return;
	}
	for (const struct addrinfo *i = list; i; i = i->ai_next)
		lookup_add_address(&a->addr, &a->naddr, i->ai_addr);
	freeaddrinfo(list);
}

bool lookup_may_come(const char *why)
{
	return getenv("KUBERNETES_SERVICE_HOST") ||
	       strstr(why, gai_strerror(EAI_AGAIN));
}

/* Answer what needs no thread; false if NAME does. */
static bool answer_at_once(struct lookup_answer *a, const char *name)
{
	const struct sockaddr_in in4 = { .sin_family = AF_INET,
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct sockaddr_in6 in6 = { .sin6_family = AF_INET6,
					  .sin6_addr = IN6ADDR_LOOPBACK_INIT };

	*a = (struct lookup_answer){ 0 };
	if (!strcasecmp(name, "localhost")) {
		lookup_add_address(&a->addr, &a->naddr, (const struct sockaddr *)&in4);
		lookup_add_address(&a->addr, &a->naddr, (const struct sockaddr *)&in6);
	} else {
		ask_resolver(a, name, AF_UNSPEC, AI_NUMERICHOST);
	}
	return a->naddr > 0;
}

/* The pool's lock is held. */
static void lookup_unref(struct lookup *l)
{
	if (--l->users)
		return;
	for (size_t i = 0; i < l->n; i++)
		free(l->answer[i].addr);
	for (size_t i = 0; i < l->nnames; i++)
		free(l->name[i]);
	free(l->answer);
	free(l->name);
	free(l->index);
	close(l->news);
	free(l);
}

/* No thread takes a name of L any more.  The pool's lock is held. */
static void lookup_unqueue(struct lookup *l)
{
	struct lookup **at = &pool.first;

	while (*at && *at != l)
		at = &(*at)->queued;
	if (*at)
		*at = l->queued;
}

static void *lookup_work(void *unused)
{
	const uint64_t one = 1;
	struct lookup *l;

	pthread_mutex_lock(&pool.lock);
	while ((l = pool.first)) {
		struct lookup_answer a = { 0 };
		const size_t i = l->next++;

		if (l->next == l->nnames)
			lookup_unqueue(l);
		l->users++;
		pthread_mutex_unlock(&pool.lock);
		ask_resolver(&a, l->name[i], l->family, 0);
		pthread_mutex_lock(&pool.lock);
		l->answer[l->index[i]] = a;
		if (++l->done == l->nnames && write(l->news, &one, sizeof one) < 0)
			abort(); /* it is empty, and written once */
		lookup_unref(l);
	}
	pool.threads--;
	pthread_mutex_unlock(&pool.lock);
	return unused;
}

/* Start up to WANTED threads, LOOKUP_THREADS in all.  Signals are the main thread's
 * alone.  The pool's lock is held. */
static void start_threads(size_t wanted)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	for (; wanted && pool.threads < LOOKUP_THREADS; wanted--) {
		if (pthread_create(&thread, &attr, lookup_work, NULL))
			break;
		pool.threads++;
	}
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

struct lookup *lookup_start(const char *const *names, size_t n, int family)
{
	struct lookup *l = xcalloc(1, sizeof *l), **last = &pool.first;
	bool alone;

	*l = (struct lookup){ .n = n, .family = family, .users = 1 };
	l->answer = xcalloc(n, sizeof *l->answer);
	l->name = xcalloc(n, sizeof *l->name);
	l->index = xcalloc(n, sizeof *l->index);
	for (size_t i = 0; i < n; i++)
		if (!answer_at_once(&l->answer[i], names[i])) {
			l->answer[i].why = "the resolver did not answer in time";
			l->index[l->nnames] = i;
			l->name[l->nnames++] = xstrdup(names[i]);
		}
	l->news = eventfd(!l->nnames, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->news < 0)
		die("eventfd", errno);
	if (!l->nnames)
		return l;
	pthread_mutex_lock(&pool.lock);
	while (*last)
		last = &(*last)->queued;
	*last = l;
	start_threads(l->nnames);
	alone = !pool.threads;
	pool.threads += alone;
	pthread_mutex_unlock(&pool.lock);
	if (alone)
		lookup_work(NULL); /* no thread can be had: block rather than fail */
	return l;
}

int lookup_fd(const struct lookup *l)
{
	return l->news;
}

struct lookup_answer *lookup_answers(struct lookup *l)
{
	return l->answer;
}

void lookup_end(struct lookup *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&pool.lock);
	lookup_unqueue(l);
	lookup_unref(l);
	pthread_mutex_unlock(&pool.lock);
}

/* The IPv4 address inside ::ffff:a.b.c.d; any other address unchanged. */
static struct sockaddr_storage lookup_unmap(const struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *in6 = (const void *)a;
	struct sockaddr_storage out = *a;
	struct sockaddr_in *in4 = (void *)&out;

	if (a->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
		return out;
	out = (struct sockaddr_storage){ .ss_family = AF_INET };
	memcpy(&in4->sin_addr, &in6->sin6_addr.s6_addr[12], 4);
	return out;
}

static bool is_own(const struct sockaddr_storage *addr,
		   const struct sockaddr_storage *own, size_t nown)
{
	struct sockaddr_storage a = lookup_unmap(addr);
	const struct sockaddr_in *in4 = (const void *)&a;
	const struct sockaddr_in6 *in6 = (const void *)&a;

	if (a.ss_family == AF_INET) {
		uint32_t ip = ntohl(in4->sin_addr.s_addr);

		if (ip == INADDR_ANY || ip >> 24 == IN_LOOPBACKNET)
			return true;
	} else if (a.ss_family == AF_INET6) {
		if (IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr) ||
		    IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr))
			return true;
	}
	for (size_t i = 0; i < nown; i++)
		if (same_address(&a, &own[i]))
			return true;
	return false;
}

void lookup_all(struct lookup_answer *out, const char *const *names, size_t n,
		uint64_t deadline_ms)
{
	struct lookup *l = lookup_start(names, n, AF_UNSPEC);
	struct pollfd news = { .fd = l->news, .events = POLLIN };
	struct sockaddr_storage *own = NULL;
	struct ifaddrs *list = NULL;
	size_t nown = 0;
	uint64_t now, left_ms;

	do {
		now = clock_ms();
		left_ms = now < deadline_ms ? deadline_ms - now : 0;
	} while (poll(&news, 1, left_ms < INT_MAX ? (int)left_ms : INT_MAX) < 0 &&
		 errno == EINTR);
	pthread_mutex_lock(&pool.lock);
	for (size_t i = 0; i < n; i++) {
		out[i] = l->answer[i];
		l->answer[i] = (struct lookup_answer){ 0 };
	}
	pthread_mutex_unlock(&pool.lock);
	lookup_end(l);
	if (!getifaddrs(&list))
		for (const struct ifaddrs *i = list; i; i = i->ifa_next)
			if (i->ifa_addr)
				lookup_add_address(&own, &nown, i->ifa_addr);
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < out[i].naddr && !out[i].is_local; k++)
			out[i].is_local = is_own(&out[i].addr[k], own, nown);
	free(own);
	if (list)
		freeifaddrs(list);
}

int lookup_text(const struct sockaddr_storage *a, char *out, size_t n)
{
	const struct sockaddr *sa = (const struct sockaddr *)a;
	int rc = getnameinfo(sa, address_len(sa), out, (socklen_t)n, NULL, 0,
			     NI_NUMERICHOST);

	if (rc) {
		errno = rc == EAI_OVERFLOW ? ENOSPC : EAFNOSUPPORT;
		return -1;
	}
	return 0;
}

int lookup_number(const char *text, struct sockaddr_storage *a)
{
	struct lookup_answer found = { 0 };

	ask_resolver(&found, text, AF_UNSPEC, AI_NUMERICHOST);
	if (!found.naddr)
		return -1;
	*a = *found.addr;
	free(found.addr);
	return 0;
}

int lookup_local_towards(const struct sockaddr_storage *peer, char *out, size_t n)
{
	struct sockaddr_storage to = lookup_unmap(peer), own = { 0 };
	socklen_t len = sizeof own;
	int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = -1, saved;

	if (fd < 0)
		return -1;
	/* A datagram socket that is connected asks the routes and sends nothing.  Any
	 * port will do. */
	if (to.ss_family == AF_INET)
		((struct sockaddr_in *)&to)->sin_port = htons(9);
	else if (to.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&to)->sin6_port = htons(9);
	if (!connect(fd, (struct sockaddr *)&to, address_len((struct sockaddr *)&to)) &&
	    !getsockname(fd, (struct sockaddr *)&own, &len))
		rc = lookup_text(&own, out, n);
	saved = errno;
	close(fd);
	errno = saved;
	return rc;
}
