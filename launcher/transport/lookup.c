#include "launcher/transport/lookup.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

struct answer {
	char *name;
	size_t index; /* of the caller's array */
	struct sockaddr_storage *addr;
	size_t naddr;
	const char *why;
	bool done;
};

/* Shared by the caller and the threads; the last one who leaves frees it, because a
 * thread inside getaddrinfo() can't be stopped when the deadline has passed. */
struct work {
	pthread_mutex_t lock;
	pthread_cond_t ready;
	struct answer *v;
	size_t n, next, done;
	size_t users;
};

static bool same_address(const struct sockaddr_storage *a,
			 const struct sockaddr_storage *b)
{
	const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
	const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;

	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	/* fe80::1 may be another machine on each link: only the scope tells them apart.
	 */
	return a->ss_family == AF_INET6 && a6->sin6_scope_id == b6->sin6_scope_id &&
	       !memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof a6->sin6_addr);
}

static void add_address(struct sockaddr_storage **v, size_t *n,
			const struct sockaddr *sa, socklen_t len)
{
	struct sockaddr_storage a = { 0 };

	if ((sa->sa_family != AF_INET && sa->sa_family != AF_INET6) || len > sizeof a)
		return;
	memcpy(&a, sa, len);
	for (size_t i = 0; i < *n; i++)
		if (same_address(&(*v)[i], &a))
			return;
	*v = xreallocarray(*v, *n + 1, sizeof **v);
	(*v)[(*n)++] = a;
}

static void add_loopback(struct sockaddr_storage **v, size_t *n)
{
	struct sockaddr_in in4 = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6,
				    .sin6_addr = IN6ADDR_LOOPBACK_INIT };

	add_address(v, n, (struct sockaddr *)&in4, sizeof in4);
	add_address(v, n, (struct sockaddr *)&in6, sizeof in6);
}

static void look_up(struct answer *a, int flags)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags };
	struct addrinfo *list = NULL;
	int rc = getaddrinfo(a->name, NULL, &hints, &list);

	if (rc) {
		a->why = rc == EAI_SYSTEM ? "the resolver failed" : gai_strerror(rc);
		return;
	}
	for (const struct addrinfo *i = list; i; i = i->ai_next)
		add_address(&a->addr, &a->naddr, i->ai_addr, i->ai_addrlen);
	freeaddrinfo(list);
}

/* Answer what needs no resolver; false if it does. */
static bool look_up_quick(struct answer *a)
{
	if (!strcasecmp(a->name, "localhost")) {
		add_loopback(&a->addr, &a->naddr);
		return true;
	}
	look_up(a, AI_NUMERICHOST);
	return a->naddr > 0;
}

/* W's lock is held. */
static void leave(struct work *w)
{
	bool last = --w->users == 0;

	pthread_mutex_unlock(&w->lock);
	if (!last)
		return;
	for (size_t i = 0; i < w->n; i++) {
		free(w->v[i].name);
		free(w->v[i].addr);
	}
	free(w->v);
	pthread_cond_destroy(&w->ready);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* Answer what nobody has begun yet.  W's lock is held, but not while the resolver
 * works. */
static void answer_all(struct work *w)
{
	while (w->next < w->n) {
		struct answer *a = &w->v[w->next++];
		struct answer mine = { .name = a->name };

		pthread_mutex_unlock(&w->lock);
		look_up(&mine, 0);
		pthread_mutex_lock(&w->lock);
		a->addr = mine.addr;
		a->naddr = mine.naddr;
		a->why = mine.why;
		a->done = true;
		if (++w->done == w->n)
			pthread_cond_signal(&w->ready);
	}
}

static void *run(void *arg)
{
	struct work *w = arg;

	pthread_mutex_lock(&w->lock);
	answer_all(w);
	leave(w);
	return NULL;
}

/* Start threads on W, as many as it has names, RESOLVE_THREADS at most.  Signals are
 * the main thread's alone. */
static size_t start_threads(struct work *w)
{
	size_t most = w->n < RESOLVE_THREADS ? w->n : RESOLVE_THREADS, started = 0;
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_mutex_lock(&w->lock);
	for (; started < most; started++) {
		if (pthread_create(&thread, &attr, run, w))
			break;
		w->users++;
	}
	pthread_mutex_unlock(&w->lock);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return started;
}

/* Wait for W's answers until the deadline; its lock is held. */
static void wait_for(struct work *w, uint64_t deadline_ms)
{
	struct timespec until = {
		.tv_sec = (time_t)(deadline_ms / 1000),
		.tv_nsec = (long)(deadline_ms % 1000) * 1000000,
	};

	while (w->done < w->n &&
	       pthread_cond_timedwait(&w->ready, &w->lock, &until) != ETIMEDOUT)
		continue;
}

static struct work *work_new(void)
{
	struct work *w = xcalloc(1, sizeof *w);
	pthread_condattr_t attr;

	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* as clock_ms() */
	pthread_cond_init(&w->ready, &attr);
	pthread_condattr_destroy(&attr);
	w->users = 1;
	return w;
}

/* Take the answers out of W: threads that are late find only names there. */
static void collect(struct resolved *out, struct work *w)
{
	for (size_t i = 0; i < w->n; i++) {
		struct answer *a = &w->v[i];
		struct resolved *r = &out[a->index];

		r->addr = a->addr;
		r->naddr = a->naddr;
		r->why = a->done ? a->why : "the resolver did not answer in time";
		a->addr = NULL;
		a->naddr = 0;
	}
}

static struct sockaddr_storage *own_addresses(size_t *n)
{
	struct sockaddr_storage *own = NULL;
	struct ifaddrs *list, *i;

	*n = 0;
	if (getifaddrs(&list))
		return NULL;
	for (i = list; i; i = i->ifa_next)
		if (i->ifa_addr)
			add_address(&own, n, i->ifa_addr,
				    i->ifa_addr->sa_family == AF_INET
					    ? sizeof(struct sockaddr_in)
					    : sizeof(struct sockaddr_in6));
	freeifaddrs(list);
	return own;
}

/* The address inside ::ffff:a.b.c.d as itself. */
static struct sockaddr_storage unmap(const struct sockaddr_storage *a)
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
	struct sockaddr_storage a = unmap(addr);
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

bool lookup_is_local(const struct sockaddr_storage *a)
{
	size_t n;
	struct sockaddr_storage *own = own_addresses(&n);
	bool is = is_own(a, own, n);

	free(own);
	return is;
}

static void mark_local(struct resolved *r, size_t n)
{
	size_t nown;
	struct sockaddr_storage *own = own_addresses(&nown);

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < r[i].naddr && !r[i].is_local; k++)
			r[i].is_local = is_own(&r[i].addr[k], own, nown);
	free(own);
}

void lookup_all(struct resolved *out, const char *const *names, size_t n,
		uint64_t deadline_ms)
{
	struct work *w = work_new();
	size_t threads;

	w->v = xcalloc(n, sizeof *w->v);
	for (size_t i = 0; i < n; i++) {
		struct answer a = { .name = (char *)names[i], .index = i };

		out[i] = (struct resolved){ 0 };
		if (look_up_quick(&a)) {
			out[i].addr = a.addr;
			out[i].naddr = a.naddr;
			continue;
		}
		a.name = xstrdup(a.name);
		a.why = NULL;
		w->v[w->n++] = a;
	}
	threads = w->n > 0 ? start_threads(w) : 0;
	pthread_mutex_lock(&w->lock);
	if (threads == 0)
		answer_all(w); /* nothing to do, or no threads to be had */
	wait_for(w, deadline_ms);
	collect(out, w);
	leave(w);
	mark_local(out, n);
}

void lookup_free(struct resolved *r, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(r[i].addr);
		r[i] = (struct resolved){ 0 };
	}
}

static socklen_t address_len(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET ? sizeof(struct sockaddr_in)
				       : sizeof(struct sockaddr_in6);
}

int lookup_text(const struct sockaddr_storage *a, char *out, size_t n)
{
	int rc = getnameinfo((const struct sockaddr *)a, address_len(a), out,
			     (socklen_t)n, NULL, 0, NI_NUMERICHOST);

	if (rc) {
		errno = rc == EAI_OVERFLOW ? ENOSPC : EAFNOSUPPORT;
		return -1;
	}
	return 0;
}

int lookup_local_towards(const struct sockaddr_storage *peer, char *out, size_t n)
{
	struct sockaddr_storage to = unmap(peer), own = { 0 };
	socklen_t len = sizeof own;
	int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = -1, saved;

	if (fd < 0)
		return -1;
	/* Some port: a datagram socket that is connected asks the routes and sends
	 * nothing. */
	if (to.ss_family == AF_INET)
		((struct sockaddr_in *)&to)->sin_port = htons(9);
	else if (to.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&to)->sin6_port = htons(9);
	if (!connect(fd, (struct sockaddr *)&to, address_len(&to)) &&
	    !getsockname(fd, (struct sockaddr *)&own, &len))
		rc = lookup_text(&own, out, n);
	saved = errno;
	close(fd);
	errno = saved;
	return rc;
}
