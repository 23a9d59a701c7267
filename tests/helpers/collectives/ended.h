/* ended.h - sets and requests whose world has ended, or that another thread removes;
 * and children of fork(2). */
#ifndef BERTH_TESTS_ENDED_H
#define BERTH_TESTS_ENDED_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/helpers/collectives/asynchronous.h"
#include "tests/helpers/calls.h"
#include "tests/helpers/slow.h"

/* Each call with SET is too late.  In a child, with NULL, too. */
static bool is_over(berth_set *set)
{
	float x = 1;
	berth_set *other = NULL;
	berth_request *r = NULL;
	struct berth_desc d = BERTH_DESC(.set = set, .in = &x, .out = &x, .count = 1,
					 .type = BERTH_F32);

	return call_allreduce(&d) == BERTH_STATE && *berth_last_error()->text &&
	       call_barrier(set) == BERTH_STATE &&
	       call_submit(BERTH_ALLREDUCE, &d, 1, &r) == BERTH_STATE && !r &&
	       berth_set_split(set, 0, 0, &other) == BERTH_STATE && !other &&
	       berth_set_remove(set) == BERTH_STATE &&
	       (!set || (berth_set_rank(set) == -1 && berth_set_size(set) == -1 &&
			 berth_set_member(set, 0) == -1));
}

/* ---- of an ended world ---- */

static void old_sets(void)
{
	enum { N = 20 };
	berth_set *old[N], *set;

	for (int i = 0; i < N; i++)
		FINE(berth_set_split(NULL, 0, 0, &old[i]));
	FINE(berth_set_remove(old[0]));
	CHECK(is_over(old[0]), "a removed set");
	CHECK(sum_in(old[1], 1) == size, "another one");
	FINE(berth_shutdown());
	CHECK(is_over(old[0]) && is_over(old[1]) && is_over(NULL), "no world");
	CHECK(berth_rank() == -1 && berth_set_size(NULL) == -1, "no rank");
	FINE(berth_init(NULL));
	for (int i = 0; i < N; i++) {
		FINE(berth_set_split(NULL, 0, 0, &set));
		for (int k = 0; k < N; k++)
			CHECK(is_over(old[k]), "set %d of the world before", k);
		CHECK(sum_in(set, 1) == size && berth_set_size(set) == size,
		      "a set of this world");
	}
}

/* DONE: it is before the shutdown.  Else the last rank alone has submitted. */
static void old_request(bool done, bool anew)
{
	float x = 1;
	berth_request *r = NULL;
	berth_result rc = done || size == 1 ? BERTH_OK : BERTH_ABORTED;

	if (done || rank == size - 1)
		r = submit("old", &x, 1);
	while (r && rc == BERTH_OK && berth_poll(r) == BERTH_BUSY)
		;
	FINE(call_barrier(NULL));
	FINE(berth_shutdown());
	if (anew)
		FINE(berth_init(NULL));
	if (r) {
		CHECK(berth_poll(r) == rc, "poll of an old request");
		CHECK(berth_wait(r, -1) == rc, "wait for an old request");
		CHECK(rc || x == (float)size, "its sum: %g", (double)x);
	}
	if (!anew)
		FINE(berth_init(NULL));
}

/* ---- removed meanwhile ---- */

static _Atomic bool removing;

static void *call_until_removed(void *arg)
{
	berth_set *set = arg;
	berth_result rc;

	do {
		float x = 1;

		rc = call_allreduce(
			&(struct berth_desc)BERTH_DESC(.set = set, .in = &x, .out = &x,
						       .count = 1, .type = BERTH_F32));
		CHECK(rc || x == (float)size, "sum: %g", (double)x);
	} while (!rc);
	CHECK(rc == BERTH_ABORTED || rc == BERTH_STATE, "a call came to %d", rc);
	CHECK(removing, "before its time: %d", rc);
	return NULL;
}

static void *submit_until_removed(void *arg)
{
	berth_set *set = arg;
	char name[32];
	berth_result rc = BERTH_OK;

	for (unsigned i = 0; !rc; i++) {
		float x = 1;
		berth_request *r;
		struct berth_desc d =
			BERTH_DESC(.set = set, .name = name, .in = &x, .out = &x,
				   .count = 1, .type = BERTH_F32);

		snprintf(name, sizeof name, "until %u", i);
		rc = call_submit(BERTH_ALLREDUCE, &d, 1, &r);
		if (!rc)
			rc = berth_wait(r, -1);
	}
	CHECK(rc == BERTH_ABORTED || rc == BERTH_STATE, "a request came to %d", rc);
	CHECK(removing, "before its time: %d", rc);
	return NULL;
}

/* The ranks' threads are at different calls when one of them, then the others, remove
 * the set. */
static void remove_beside_calls(uint64_t turn)
{
	static void *(*const what[])(void *) = { call_until_removed, call_until_removed,
						 submit_until_removed };
	pthread_t thread[3];
	berth_set *set;

	FINE(berth_set_split(NULL, 0, 0, &set));
	removing = false;
	for (int i = 0; i < 3; i++)
		pthread_create(&thread[i], NULL, what[i], set);
	usleep((useconds_t)(noise(turn * 64 + (uint64_t)rank) % 3000));
	removing = true; /* before any rank removes it */
	FINE(call_barrier(NULL));
	usleep((useconds_t)(noise(turn * 64 + (uint64_t)rank + 32) % 3000));
	FINE(berth_set_remove(set));
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	CHECK(is_over(set), "removed");
}

static void ended(void)
{
	old_sets();
	for (int i = 0; i < 8; i++)
		old_request(i & 1, i & 2);
	for (uint64_t turn = 0; turn < 20; turn++)
		remove_beside_calls(turn);
	CHECK(sum_in(NULL, 1) == size, "afterwards");
}

/* ---- children ---- */

/* How many descriptors from 3 on are sockets; and are all of them closed on exec? */
static int sockets(bool *closed_on_exec)
{
	int n = 0;

	*closed_on_exec = true;
	for (int fd = 3; fd < 1024; fd++) {
		struct stat s;

		if (fstat(fd, &s) || !S_ISSOCK(s.st_mode))
			continue;
		n++;
		if (!(fcntl(fd, F_GETFD) & FD_CLOEXEC))
			*closed_on_exec = false;
	}
	return n;
}

/* What is wrong in a child of a rank that has SET, the request R and P of its heap;
 * NULL: nothing. */
static const char *childs_fault(berth_set *set, berth_request *r, void *p, int before)
{
	struct berth_metrics m = { .size = sizeof m };
	char text[100];
	bool closed;
	int at = -2;

	if (sockets(&closed) > before)
		return "it has sockets of its parent's";
	if (berth_poll(r) != BERTH_STATE || berth_wait(r, -1) != BERTH_STATE ||
	    berth_wait(r, 0) != BERTH_STATE)
		return "its parent's request";
	if (!is_over(set) || !is_over(NULL) || berth_join(NULL, &at) != BERTH_STATE)
		return "sets";
	if (berth_metrics(&m) != BERTH_STATE || berth_shutdown() != BERTH_STATE ||
	    berth_timeline_start("/nowhere/x") != BERTH_STATE ||
	    berth_timeline_stop() != BERTH_STATE || berth_algorithms(text, 100) ||
	    berth_register(p, 1, BERTH_HOST, 0) != BERTH_STATE)
		return "other calls";
	if (berth_alloc(1000, BERTH_HOST, 0))
		return "berth_alloc";
	berth_free(p);
	berth_free(NULL);
	if (berth_rank() != rank || berth_size() != size ||
	    call_world().local_rank < 0 || berth_set_rank(NULL) != rank ||
	    berth_set_member(NULL, size - 1) != size - 1)
		return "the numbers";
	return *berth_version() && berth_last_error()->result == BERTH_STATE
		       ? NULL
		       : "what asks for nothing";
}

static void fork_once(berth_set *set, berth_request *r, void *p, int before)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		const char *fault;

		alarm(slow_s(20)); /* for a lock that nobody gives back */
		fault = childs_fault(set, r, p, before);
		if (fault)
			fprintf(stderr, "child of rank %d: %s; last error: %s\n", rank,
				fault, berth_last_error()->text);
		_exit(fault ? 1 : 0);
	}
	CHECK(pid > 0, "fork: %s", strerror(errno));
	CHECK(waitpid(pid, &status, 0) == pid, "waitpid: %s", strerror(errno));
	CHECK(!status, "a child: %x", (unsigned)status);
}

/* The agent lets no child begin as the rank that its parent is. */
static void child_begins(void)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		alarm(slow_s(20));
		_exit(berth_init(NULL) != BERTH_NO_PEERS);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status,
	      "berth_init() of a child: %x", (unsigned)status);
}

/* A child has none of the threads that hold locks, and is no rank, whatever its
 * parent's threads do. */
static void children(void)
{
	static void *(*const what[])(void *) = { call_on, submit_on, look_on };
	pthread_t thread[3];
	bool closed_on_exec;
	float x = 1, y = 1;
	berth_set *set;
	berth_request *done, *waits = NULL;
	berth_result rc;
	int before;
	void *p;

	FINE(berth_shutdown());
	before = sockets(&closed_on_exec);
	FINE(berth_init(NULL));
	FINE(berth_set_split(NULL, 0, 0, &set));
	p = berth_alloc(1000, BERTH_HOST, 0);
	memset(p, 7, 1000);
	done = submit("done", &x, 1);
	while (berth_poll(done) == BERTH_BUSY)
		;
	if (rank == 0)
		waits = submit("waits", &y, 1);
	sockets(&closed_on_exec);
	CHECK(closed_on_exec, "a socket that is kept on exec");
	child_begins();
	stop_calls = false;
	for (int i = 0; i < 3; i++)
		pthread_create(&thread[i], NULL, what[i], NULL);
	for (int i = 0; i < 40; i++)
		fork_once(set, i % 2 && waits ? waits : done, p, before);
	CHECK(*(char *)p == 7, "memory of a parent");
	FINE(berth_shutdown());
	stop_calls = true;
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	CHECK(berth_wait(done, -1) == BERTH_OK && x == (float)size, "done before");
	/* another rank may have left before */
	rc = waits ? berth_wait(waits, -1) : BERTH_OK;
	CHECK(!waits || rc == (size > 1 ? BERTH_ABORTED : BERTH_OK) ||
		      (size > 1 && rc == BERTH_PEER_LOST),
	      "shut down meanwhile: %d", (int)rc);
	FINE(berth_init(NULL));
	CHECK(sum_in(NULL, 1) == size, "their parent");
}

#endif
