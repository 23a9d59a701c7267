#include "launcher/transport/ssh_pool.h"

#ifdef HAVE_LIBSSH

#include <errno.h>
#include <event2/event.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
	HOSTS_A_THREAD =
		8, /* with fewer, 2 to 4 ms of work hide behind the hosts' 20 */
	THREADS_MAX = 64,
	QUIT = -1 /* as an id */
};

struct ssh_pool_task {
	struct ssh_pool *pool;
	struct ssh_login *login;
	int id;
	bool stepping;          /* a thread is inside it */
	enum login_phase phase; /* after its last step */
	enum login_result got;
	struct ssh_pool_task *next; /* in that queue */
	void (*ended)(void *ctx, enum login_result got);
	void *ctx;
};

struct ssh_pool {
	int ready;        /* epoll: sockets of waiting tasks, each for one thread */
	int quit, news;   /* eventfds: to the threads, to the loop */
	struct event *on; /* of news */

	pthread_mutex_t lock;     /* of all below and of every task */
	pthread_cond_t changed;   /* fewer steps */
	struct ssh_pool_task **v; /* by id; NULL: gone.  Ids are never used again, as
				     epoll may still have one in hand */
	int n, room, steps;       /* ids; room for; steps under way */
	struct ssh_pool_task *first, **last;

	size_t nthreads;
	pthread_t thread[THREADS_MAX];
};

/* ---- the threads ---- */

/* Wake one thread when T's socket is ready; -1: it is closed. */
static int pool_watch(struct ssh_pool_task *t, int how)
{
	struct ssh_login *l = t->login;
	struct epoll_event e = { .events = EPOLLIN | EPOLLONESHOT, .data.fd = t->id };

	if (how == EPOLL_CTL_ADD ||
	    (l->lib->ssh_get_poll_flags(l->session) & SSH_WRITE_PENDING))
		e.events |= EPOLLOUT;
	if (how != EPOLL_CTL_ADD && l->lib->ssh_get_fd(l->session) != l->fd)
		return -1;
	return epoll_ctl(t->pool->ready, how, l->fd, &e);
}

static void put_end(struct ssh_pool_task *t, enum login_result got)
{
	struct ssh_pool *p = t->pool;
	const uint64_t one = 1;

	if (p->v[t->id] != t) /* cancelled: ssh_pool_cancel() waits and frees it */
		return;
	t->got = got;
	*p->last = t;
	p->last = &t->next;
	if (write(p->news, &one, sizeof one) < 0)
		abort(); /* the counter holds 2^64 of them */
}

/* Step the task ID once.  P's lock is held, but not during the step. */
static void run_step(struct ssh_pool *p, int id)
{
	struct ssh_pool_task *t;
	struct ssh_login *l;
	enum login_result got;

	t = p->v[id];
	if (!t)
		return;
	l = t->login;
	t->stepping = true;
	p->steps++;
	pthread_mutex_unlock(&p->lock);
	ssh_login_ack_now(l);
	got = ssh_login_step(l);
	/* if libssh closed the socket itself, only one more call tells why */
	if (got == LOGIN_WAIT && l->lib->ssh_get_fd(l->session) != l->fd)
		got = ssh_login_step(l);
	pthread_mutex_lock(&p->lock);
	if (got == LOGIN_WAIT && p->v[id] && pool_watch(t, EPOLL_CTL_MOD)) {
		err_set(&l->err, E_SSH_CONNECT, l->where, "connection closed");
		got = LOGIN_RETRY;
	}
	if (got != LOGIN_WAIT)
		put_end(t, got);
	t->stepping = false;
	t->phase = l->phase;
	p->steps--;
	pthread_cond_broadcast(&p->changed);
}

static void *pool_run(void *arg)
{
	struct ssh_pool *p = arg;
	struct epoll_event e;

	for (;;) {
		if (epoll_wait(p->ready, &e, 1, -1) != 1)
			continue;
		if (e.data.fd == QUIT)
			return NULL;
		pthread_mutex_lock(&p->lock);
		run_step(p, e.data.fd);
		pthread_mutex_unlock(&p->lock);
	}
}

/* ---- the loop's side ---- */

static void on_news(evutil_socket_t fd, short what, void *ctx)
{
	struct ssh_pool *p = ctx;
	struct ssh_pool_task *t, end;
	uint64_t n;

	(void)what;
	if (read(fd, &n, sizeof n) < 0)
		return;
	for (;;) {
		pthread_mutex_lock(&p->lock);
		t = p->first;
		if (t) {
			p->first = t->next;
			if (!p->first)
				p->last = &p->first;
			p->v[t->id] = NULL;
		}
		pthread_mutex_unlock(&p->lock);
		if (!t)
			return;
		end = *t;
		free(t);
		end.ended(end.ctx, end.got);
	}
}

struct ssh_pool_task *ssh_pool_login(struct ssh_pool *p, struct ssh_login *l,
				     void (*ended)(void *ctx, enum login_result got),
				     void *ctx)
{
	struct ssh_pool_task *t = xcalloc(1, sizeof *t);

	*t = (struct ssh_pool_task){
		.pool = p, .login = l, .ended = ended, .ctx = ctx
	};
	pthread_mutex_lock(&p->lock);
	if (p->n == p->room) {
		p->room = p->room ? 2 * p->room : 64;
		p->v = xreallocarray(p->v, (size_t)p->room,
				     sizeof(struct ssh_pool_task *));
	}
	t->id = p->n++;
	p->v[t->id] = t;
	/* a connected socket is writable: the first step comes at once */
	if (pool_watch(t, EPOLL_CTL_ADD)) {
		err_set(&l->err, E_SSH_CONNECT, l->where, strerror(errno));
		put_end(t, LOGIN_RETRY);
	}
	pthread_mutex_unlock(&p->lock);
	return t;
}

void ssh_pool_cancel(struct ssh_pool_task *t)
{
	struct ssh_pool_task **at;
	struct ssh_pool *p;

	if (!t)
		return;
	p = t->pool;
	pthread_mutex_lock(&p->lock);
	p->v[t->id] = NULL;
	while (t->stepping)
		pthread_cond_wait(&p->changed, &p->lock);
	for (at = &p->first; *at && *at != t;)
		at = &(*at)->next;
	if (*at)
		*at = t->next;
	if (p->last == &t->next)
		p->last = at;
	pthread_mutex_unlock(&p->lock);
	free(t);
}

enum login_phase ssh_pool_phase(struct ssh_pool_task *t)
{
	enum login_phase phase;

	pthread_mutex_lock(&t->pool->lock);
	phase = t->phase;
	pthread_mutex_unlock(&t->pool->lock);
	return phase;
}

/* ---- begin and end ---- */

struct ssh_pool *ssh_pool_open(struct event_base *base, size_t hosts)
{
	struct epoll_event e = { .events = EPOLLIN, .data.fd = QUIT };
	size_t ncores = 1, most = hosts / HOSTS_A_THREAD;
	struct ssh_pool *p;
	sigset_t all, old;
	cpu_set_t set;

	if (!sched_getaffinity(0, sizeof set, &set))
		ncores = (size_t)CPU_COUNT(&set);
	if (ncores < 2 || most < 1)
		return NULL;
	most = most < ncores ? most : ncores;
	most = most < THREADS_MAX ? most : THREADS_MAX;
	p = xcalloc(1, sizeof *p);
	p->ready = epoll_create1(EPOLL_CLOEXEC);
	p->quit = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p->last = &p->first;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->changed, NULL);
	p->on = event_new(base, p->news, EV_READ | EV_PERSIST, on_news, p);
	if (p->ready < 0 || p->quit < 0 || p->news < 0 || event_add(p->on, NULL) ||
	    epoll_ctl(p->ready, EPOLL_CTL_ADD, p->quit, &e))
		most = 0;
	/* signals are the loop's thread's alone */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	while (p->nthreads < most &&
	       !pthread_create(&p->thread[p->nthreads], NULL, pool_run, p))
		p->nthreads++;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (p->nthreads)
		return p;
	ssh_pool_close(p); /* no descriptor or thread can be had: the loop logs in */
	return NULL;
}

void ssh_pool_close(struct ssh_pool *p)
{
	const uint64_t one = 1;

	if (!p)
		return;
	if (p->nthreads && write(p->quit, &one, sizeof one) < 0)
		abort(); /* it is empty */
	for (size_t i = 0; i < p->nthreads; i++)
		pthread_join(p->thread[i], NULL);
	event_free(p->on);
	close(p->ready);
	close(p->quit);
	close(p->news);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p->v);
	free(p);
}

#else

struct ssh_pool *ssh_pool_open(struct event_base *base, size_t hosts)
{
	(void)base;
	(void)hosts;
	return NULL;
}

void ssh_pool_close(struct ssh_pool *p)
{
	(void)p;
}

#endif
