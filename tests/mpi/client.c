/* What the ranks of tests/cluster/pmix.bats do as clients of PMIx, without MPI:
 * `client CASE[=ARG]...`, one case after the other.
 *
 *   versions   the major releases of libpmix here and in the server
 *   ids        is what PMIx says of the job what Berth says of it?  ARG: our app
 *   info       the same, and are hosts known by their own names?
 *   fence      ARG times: put, commit, fence with data, get from all ranks
 *   nodata     the same once, with a fence that carries no data
 *   big        the same once, with more data than a fence carries
 *   some       fences of all ranks, half of them and two, at one time; then ARG fences
 *              of half of them
 *   connect    PMIx_Connect and PMIx_Disconnect, of all ranks and of half of them
 *   group      groups of all ranks and of half of them, with ids
 *   abort      rank 1 calls PMIx_Abort with ARG, the others wait
 *   log        PMIx_Log to stdout and to stderr
 *   spawn, alloc, control, table      what Berth does not do: names the error
 *   publish    PMIx_Publish, PMIx_Lookup, PMIx_Unpublish
 *   event      the last rank notifies rank 0
 *   query      namespaces and process sets
 *   leave      rank 1 exits with 0, the others wait in a fence
 *   die        rank 1 kills itself, the others wait in ARG: fence, list (a fence of
 *              listed ranks), connect, group, get or lookup, and name its result
 *   late       the same, but the others begin when they have heard of its end
 *   wait       rank 1 sleeps, the others wait in a fence
 *
 * Half of the ranks: the even ones, or the odd ones.  A case that does not say anything
 * else prints "rank R: CASE: ok". */
#include <pmix.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MOST = 64, BIG_BYTES = 600 << 10, WAIT_S = 30, DIES_MS = 300 };

static pmix_proc_t me, everybody;
static pmix_proc_t half[RANKS_MOST]; /* the ranks that are even, or odd, as we are */
static size_t halves;
static uint32_t size;
static const char *what; /* the case */

static void ok(void)
{
	printf("rank %u: %s: ok\n", me.rank, what);
	fflush(stdout);
}

static void __attribute__((noreturn, format(printf, 1, 2)))
wrong(const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fprintf(stderr, "rank %u: %s: ", me.rank, what);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(4);
}

static void check(pmix_status_t status, const char *call)
{
	if (status != PMIX_SUCCESS)
		wrong("%s: %s", call, PMIx_Error_string(status));
}

static void say_error(pmix_status_t status)
{
	printf("rank %u: %s: %s\n", me.rank, what, PMIx_Error_string(status));
	fflush(stdout);
}

static long number(const char *arg, long otherwise)
{
	return arg ? strtol(arg, NULL, 10) : otherwise;
}

static pmix_proc_t proc_of(pmix_rank_t rank)
{
	pmix_proc_t p;

	PMIX_LOAD_PROCID(&p, me.nspace, rank);
	return p;
}

/* ---- what PMIx says ---- */

static pmix_value_t *get(pmix_rank_t rank, const char *key)
{
	const pmix_proc_t p = proc_of(rank);
	pmix_value_t *v = NULL;
	pmix_status_t status = PMIx_Get(&p, key, NULL, 0, &v);

	if (status != PMIX_SUCCESS || !v)
		wrong("%s of rank %d: %s", key, (int)rank, PMIx_Error_string(status));
	return v;
}

static uint32_t get_number(pmix_rank_t rank, const char *key)
{
	pmix_value_t *v = get(rank, key);
	uint32_t n = 0;

	switch (v->type) {
	case PMIX_UINT16:
		n = v->data.uint16;
		break;
	case PMIX_UINT32:
		n = v->data.uint32;
		break;
	case PMIX_PROC_RANK:
		n = v->data.rank;
		break;
	default:
		wrong("%s is of type %d", key, v->type);
	}
	PMIX_VALUE_RELEASE(v);
	return n;
}

/* The caller's to free. */
static char *get_text(pmix_rank_t rank, const char *key)
{
	pmix_value_t *v = get(rank, key);
	char *text;

	if (v->type != PMIX_STRING)
		wrong("%s is of type %d", key, v->type);
	text = strdup(v->data.string);
	PMIX_VALUE_RELEASE(v);
	return text;
}

static void versions(const char *arg)
{
	const char *server = getenv("PMIX_VERSION");
	const char *client = strpbrk(PMIx_Get_version(), "0123456789");

	(void)arg;
	printf("rank %u: client %c, server %c\n", me.rank, client ? *client : '?',
	       server ? *server : '?');
}

static void must_be(const char *key, uint32_t is, const char *name)
{
	const char *text = getenv(name);

	if (!text || strtoul(text, NULL, 10) != is)
		wrong("%s is %u, but %s is %s", key, is, name, text ? text : "not set");
}

/* LIST: "0,1,4".  Its ranks are on this host, others are on another one. */
static void check_peers(const char *list, const char *host)
{
	bool is_peer[RANKS_MOST] = { false };
	const uint32_t local = get_number(me.rank, PMIX_LOCAL_RANK);
	uint32_t n = 0;

	for (const char *at = list; *at; at += strspn(at, ",")) {
		char *end;
		const unsigned long rank = strtoul(at, &end, 10);

		if (end == at || rank >= size || is_peer[rank] ||
		    (n == local && rank != me.rank))
			wrong("local peers are %s", list);
		is_peer[rank] = true;
		at = end;
		n++;
	}
	must_be(PMIX_LOCAL_PEERS, n, "BERTH_LOCAL_SIZE");
	for (uint32_t rank = 0; rank < size; rank++) {
		char *its = get_text(rank, PMIX_HOSTNAME);

		if (!strcmp(its, host) != is_peer[rank])
			wrong("local peers are %s, but rank %u is on %s", list, rank,
			      its);
		/* libpmix has the hosts of all ranks, but not the number of each */
		if (is_peer[rank] &&
		    get_number(rank, PMIX_NODEID) != get_number(me.rank, PMIX_NODEID))
			wrong("rank %u is on node %u", rank,
			      get_number(rank, PMIX_NODEID));
		free(its);
	}
}

static void ids(const char *arg)
{
	char *its = get_text(me.rank, PMIX_HOSTNAME),
	     *peers = get_text(PMIX_RANK_WILDCARD, PMIX_LOCAL_PEERS);

	must_be("the rank", me.rank, "BERTH_RANK");
	must_be(PMIX_JOB_SIZE, size, "BERTH_SIZE");
	must_be(PMIX_LOCAL_RANK, get_number(me.rank, PMIX_LOCAL_RANK),
		"BERTH_LOCAL_RANK");
	must_be(PMIX_NODE_RANK, get_number(me.rank, PMIX_NODE_RANK),
		"BERTH_LOCAL_RANK");
	must_be(PMIX_LOCAL_SIZE, get_number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE),
		"BERTH_LOCAL_SIZE");
	must_be(PMIX_UNIV_SIZE, get_number(PMIX_RANK_WILDCARD, PMIX_UNIV_SIZE),
		"BERTH_SIZE");
	must_be(PMIX_NUM_NODES, get_number(PMIX_RANK_WILDCARD, PMIX_NUM_NODES),
		"BERTH_NODES");
	must_be(PMIX_NODEID, get_number(me.rank, PMIX_NODEID), "BERTH_NODE_RANK");
	if (get_number(me.rank, PMIX_APPNUM) != (uint32_t)number(arg, 0))
		wrong("app %u", get_number(me.rank, PMIX_APPNUM));
	check_peers(peers, its);
	free(its);
	free(peers);
	printf("rank %u of %u: ok\n", me.rank, size);
	fflush(stdout);
}

static void info(const char *arg)
{
	char host[256] = "", *its = get_text(me.rank, PMIX_HOSTNAME);

	gethostname(host, sizeof host - 1);
	if (strcmp(its, host))
		wrong("on %s, not on %s", its, host);
	free(its);
	ids(arg);
}

/* ---- what ranks tell one another ---- */

/* The value of RANK under KEY: BYTES bytes, which other ranks and keys do not have. */
static void put(const char *key, size_t bytes)
{
	char *all = malloc(bytes);
	pmix_value_t v = { .type = PMIX_BYTE_OBJECT, .data.bo = { all, bytes } };

	for (size_t i = 0; i < bytes; i++)
		all[i] = (char)(me.rank + i + bytes);
	check(PMIx_Put(PMIX_GLOBAL, key, &v), "PMIx_Put");
	check(PMIx_Commit(), "PMIx_Commit");
	free(all);
}

/* NOW: servers are not to ask one another. */
static void get_all(const char *key, size_t bytes, bool now)
{
	pmix_info_t directive;

	PMIX_INFO_LOAD(&directive, PMIX_IMMEDIATE, NULL, PMIX_BOOL);
	for (uint32_t i = 0; i < size; i++) {
		const pmix_proc_t p = proc_of((me.rank + i) % size);
		pmix_value_t *v = NULL;
		pmix_status_t status = PMIx_Get(&p, key, &directive, now, &v);

		if (status != PMIX_SUCCESS || !v)
			wrong("%s of rank %u: %s", key, p.rank,
			      PMIx_Error_string(status));
		if (v->type != PMIX_BYTE_OBJECT || v->data.bo.size != bytes)
			wrong("%s of rank %u: not %zu bytes", key, p.rank, bytes);
		for (size_t k = 0; k < bytes; k++)
			if (v->data.bo.bytes[k] != (char)(p.rank + k + bytes))
				wrong("%s of rank %u: byte %zu", key, p.rank, k);
		PMIX_VALUE_RELEASE(v);
	}
}

static void fence_all(bool data)
{
	pmix_info_t directive;

	PMIX_INFO_LOAD(&directive, PMIX_COLLECT_DATA, NULL, PMIX_BOOL);
	check(PMIx_Fence(&everybody, 1, &directive, data), "PMIx_Fence");
}

static void fence(const char *arg)
{
	const long times = number(arg, 1);

	for (long i = 0; i < times; i++) {
		const size_t bytes = 1 + (size_t)(i * i * 37 % 4096);
		char key[32];

		snprintf(key, sizeof key, "fence%ld", i);
		put(key, bytes);
		fence_all(true);
		get_all(key, bytes, true);
	}
	ok();
}

static void nodata(const char *arg)
{
	(void)arg;
	put("nodata", 1000);
	fence_all(false);
	get_all("nodata", 1000, false);
	fence_all(false); /* nobody leaves who is asked for data */
	ok();
}

static void big(const char *arg)
{
	(void)arg;
	put("big", BIG_BYTES);
	fence_all(true);
	get_all("big", BIG_BYTES, false);
	fence_all(false);
	ok();
}

/* ---- some of the ranks ---- */

/* A call that another thread ends. */
struct done {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int n;
	pmix_status_t status; /* of one that failed */
};
#define DONE_NONE                                                                      \
	{                                                                              \
		.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER \
	}

static void on_done(pmix_status_t status, void *arg)
{
	struct done *d = arg;

	pthread_mutex_lock(&d->lock);
	d->n++;
	if (status != PMIX_SUCCESS)
		d->status = status;
	pthread_cond_signal(&d->changed);
	pthread_mutex_unlock(&d->lock);
}

static bool wait_done(struct done *d, int n)
{
	struct timespec until;
	int late = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_S;
	pthread_mutex_lock(&d->lock);
	while (d->n < n && !late)
		late = pthread_cond_timedwait(&d->changed, &d->lock, &until);
	pthread_mutex_unlock(&d->lock);
	return !late;
}

static void some(const char *arg)
{
	const pmix_rank_t first = me.rank & ~1u, both = first + 1 < size ? 2 : 1;
	const pmix_proc_t pair[2] = { proc_of(first), proc_of(first + 1) };
	const long times = number(arg, 1000);
	static struct done done = DONE_NONE;

	done.n = 0;
	for (int i = 1; i <= 20; i++) {
		check(PMIx_Fence_nb(half, halves, NULL, 0, on_done, &done),
		      "PMIx_Fence_nb of half");
		check(PMIx_Fence_nb(pair, both, NULL, 0, on_done, &done),
		      "PMIx_Fence_nb of two");
		check(PMIx_Fence_nb(&everybody, 1, NULL, 0, on_done, &done),
		      "PMIx_Fence_nb of all");
		if (!wait_done(&done, 3 * i))
			wrong("%d of 3 fences have ended", done.n - 3 * i + 3);
		check(done.status, "PMIx_Fence_nb");
	}
	for (long i = 0; i < times; i++)
		check(PMIx_Fence(half, halves, NULL, 0), "PMIx_Fence");
	printf("rank %u: %ld fences\n", me.rank, times);
	fflush(stdout);
}

static void connect_ranks(const char *arg)
{
	(void)arg;
	for (int i = 0; i < 3; i++) {
		check(PMIx_Connect(&everybody, 1, NULL, 0), "PMIx_Connect");
		check(PMIx_Disconnect(&everybody, 1, NULL, 0), "PMIx_Disconnect");
		check(PMIx_Connect(half, halves, NULL, 0), "PMIx_Connect of half");
		check(PMIx_Disconnect(half, halves, NULL, 0),
		      "PMIx_Disconnect of half");
	}
	ok();
}

static size_t construct(const char *name, const pmix_proc_t *procs, size_t n)
{
	pmix_info_t directive, *results = NULL;
	size_t nresults = 0, id = 0;
	bool found = false;

	PMIX_INFO_LOAD(&directive, PMIX_GROUP_ASSIGN_CONTEXT_ID, NULL, PMIX_BOOL);
	check(PMIx_Group_construct(name, procs, n, &directive, 1, &results, &nresults),
	      "PMIx_Group_construct");
	for (size_t i = 0; i < nresults; i++)
		if (PMIX_CHECK_KEY(&results[i], PMIX_GROUP_CONTEXT_ID)) {
			found = true;
			id = results[i].value.data.size;
		}
	if (!found)
		wrong("group %s has no id", name);
	PMIX_INFO_FREE(results, nresults);
	return id;
}

static void group(const char *arg)
{
	pmix_proc_t all[RANKS_MOST];
	const char *name = me.rank % 2 ? "odd" : "even";
	size_t id, ids[2];

	(void)arg;
	for (uint32_t i = 0; i < size; i++)
		all[i] = proc_of(i);
	for (int i = 0; i < 2; i++) {
		id = construct("all", all, size);
		ids[i] = construct(name, half, halves);
		printf("group all-%d %zu\ngroup %s-%d %zu\n", i, id, name, i, ids[i]);
		check(PMIx_Group_destruct(name, NULL, 0),
		      "PMIx_Group_destruct of half");
		check(PMIx_Group_destruct("all", NULL, 0), "PMIx_Group_destruct");
	}
	ok();
}

/* ---- words, and what is refused ---- */

static void abort_all(const char *arg)
{
	if (me.rank == 1)
		PMIx_Abort((int)number(arg, 1), "because of a test", NULL, 0);
	fence_all(false);
}

static void log_text(const char *key, const char *name)
{
	pmix_info_t text;
	char line[64];

	snprintf(line, sizeof line, "rank %u logs to %s\n", me.rank, name);
	PMIX_INFO_LOAD(&text, key, line, PMIX_STRING);
	check(PMIx_Log(&text, 1, NULL, 0), "PMIx_Log");
	PMIX_INFO_DESTRUCT(&text);
}

static void log_texts(const char *arg)
{
	(void)arg;
	log_text(PMIX_LOG_STDOUT, "stdout");
	log_text(PMIX_LOG_STDERR, "stderr");
	ok();
}

static void spawn(const char *arg)
{
	pmix_nspace_t nspace;
	static char program[] = "true", *argv[] = { program, NULL };
	const pmix_app_t app = { .cmd = program, .argv = argv, .maxprocs = 1 };

	(void)arg;
	say_error(PMIx_Spawn(NULL, 0, &app, 1, nspace));
}

static void alloc(const char *arg)
{
	pmix_info_t nodes, *results = NULL;
	size_t nresults = 0;
	uint64_t n = 1;

	(void)arg;
	PMIX_INFO_LOAD(&nodes, PMIX_ALLOC_NUM_NODES, &n, PMIX_UINT64);
	say_error(PMIx_Allocation_request(PMIX_ALLOC_EXTEND, &nodes, 1, &results,
					  &nresults));
}

static void control(const char *arg)
{
	pmix_info_t pause, *results = NULL;
	size_t nresults = 0;

	(void)arg;
	PMIX_INFO_LOAD(&pause, PMIX_JOB_CTRL_PAUSE, NULL, PMIX_BOOL);
	say_error(PMIx_Job_control(&everybody, 1, &pause, 1, &results, &nresults));
}

static pmix_status_t query_for(const char *key, pmix_info_t **results, size_t *n)
{
	char *keys[] = { strdup(key), NULL };
	pmix_query_t q = { .keys = keys };
	pmix_status_t status;

	*results = NULL;
	*n = 0;
	status = PMIx_Query_info(&q, 1, results, n);
	free(keys[0]);
	return status == PMIX_SUCCESS && !*n ? PMIX_ERR_NOT_FOUND : status;
}

/* As a tool asks. */
static void table(const char *arg)
{
	pmix_info_t *results;
	size_t n;

	(void)arg;
	say_error(query_for(PMIX_QUERY_PROC_TABLE, &results, &n));
}

/* ---- what ranks publish ---- */

enum { LOOKUP_S = 1, LATE_S = 10 };

/* The value that rank 0 publishes. */
#define KEY "client.key"
#define VALUE "what rank 0 has to say"

static pmix_status_t publish_value(void)
{
	pmix_info_t one;
	pmix_status_t status;

	PMIX_INFO_LOAD(&one, KEY, VALUE, PMIX_STRING);
	status = PMIx_Publish(&one, 1);
	PMIX_INFO_DESTRUCT(&one);
	return status;
}

/* Of KEY by rank 0; WAIT until there is one, TIMEOUT seconds at most (0: for ever). */
static pmix_status_t lookup(const char *key, bool wait, int timeout)
{
	pmix_info_t directives[2];
	pmix_pdata_t found;
	pmix_status_t status;
	int all = 0;

	PMIX_PDATA_CONSTRUCT(&found);
	PMIX_LOAD_KEY(found.key, key);
	PMIX_INFO_LOAD(&directives[0], PMIX_WAIT, &all, PMIX_INT);
	PMIX_INFO_LOAD(&directives[1], PMIX_TIMEOUT, &timeout, PMIX_INT);
	status = PMIx_Lookup(&found, 1, directives, wait ? timeout ? 2 : 1 : 0);
	if (status == PMIX_SUCCESS &&
	    (found.value.type != PMIX_STRING || strcmp(found.value.data.string, VALUE)))
		wrong("another value");
	if (status == PMIX_SUCCESS &&
	    (found.proc.rank || strcmp(found.proc.nspace, me.nspace)))
		wrong("published by rank %u of %s", found.proc.rank, found.proc.nspace);
	PMIX_PDATA_DESTRUCT(&found);
	return status;
}

static void must_fail(pmix_status_t status, pmix_status_t with, const char *call)
{
	if (status != with)
		wrong("%s: %s", call, PMIx_Error_string(status));
}

static void publish(const char *arg)
{
	char *keys[] = { (char[]){ KEY }, NULL };
	time_t begun;
	pmix_status_t status;

	(void)arg;
	if (me.rank == 0)
		usleep(DIES_MS * 1000); /* the others wait */
	if (me.rank == 0)
		check(publish_value(), "PMIx_Publish");
	else
		check(lookup(KEY, true, 0), "PMIx_Lookup that waits");
	fence_all(false);
	check(lookup(KEY, false, 0), "PMIx_Lookup");
	if (me.rank < 2)
		must_fail(publish_value(), PMIX_ERR_DUPLICATE_KEY,
			  "PMIx_Publish again");
	fence_all(false);
	if (me.rank == 0)
		check(PMIx_Unpublish(keys, NULL, 0), "PMIx_Unpublish");
	fence_all(false);
	must_fail(lookup(KEY, false, 0), PMIX_ERR_NOT_FOUND,
		  "PMIx_Lookup after PMIx_Unpublish");
	must_fail(lookup("client.other", false, 0), PMIX_ERR_NOT_FOUND,
		  "PMIx_Lookup of an unknown key");
	begun = time(NULL);
	status = lookup("client.other", true, LOOKUP_S);
	if (status == PMIX_SUCCESS || time(NULL) - begun > LATE_S)
		wrong("PMIx_Lookup with a timeout: %s after %ld s",
		      PMIx_Error_string(status), (long)(time(NULL) - begun));
	ok();
}

/* ---- events ---- */

enum { EVENT = PMIX_EXTERNAL_ERR_BASE - 7 };
static struct done notified = DONE_NONE;
static char heard[128]; /* by rank 0: code, rank that notified, text */

static void on_event(size_t handler, pmix_status_t status, const pmix_proc_t *source,
		     pmix_info_t all[], size_t n, pmix_info_t *results, size_t nresults,
		     pmix_event_notification_cbfunc_fn_t done, void *ctx)
{
	const char *text = "";

	(void)handler;
	(void)results;
	(void)nresults;
	for (size_t i = 0; i < n; i++)
		if (PMIX_CHECK_KEY(&all[i], KEY) && all[i].value.type == PMIX_STRING)
			text = all[i].value.data.string;
	snprintf(heard, sizeof heard, "%d %s %u %s", status,
		 strcmp(source->nspace, me.nspace) ? "foreign" : "own", source->rank,
		 text);
	done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, ctx);
	on_done(PMIX_SUCCESS, &notified);
}

static void event(const char *arg)
{
	pmix_status_t code = EVENT, status;
	pmix_info_t text;
	char expected[128];

	(void)arg;
	if (me.rank == 0) {
		status = PMIx_Register_event_handler(&code, 1, NULL, 0, on_event, NULL,
						     NULL);
		if (status < 0)
			wrong("PMIx_Register_event_handler: %s",
			      PMIx_Error_string(status));
	}
	fence_all(false);
	if (me.rank == size - 1) {
		PMIX_INFO_LOAD(&text, KEY, VALUE, PMIX_STRING);
		status = PMIx_Notify_event(EVENT, &me, PMIX_RANGE_NAMESPACE, &text, 1,
					   NULL, NULL);
		if (status != PMIX_OPERATION_SUCCEEDED)
			check(status, "PMIx_Notify_event");
	}
	snprintf(expected, sizeof expected, "%d own %u %s", EVENT, size - 1, VALUE);
	if (me.rank == 0 && !wait_done(&notified, 1))
		wrong("no event");
	if (me.rank == 0 && strcmp(heard, expected))
		wrong("heard '%s', not '%s'", heard, expected);
	fence_all(false);
	ok();
}

/* ---- queries ---- */

static bool is_in(const char *name, const char *list)
{
	const size_t n = strlen(name);

	for (; *list; list += strcspn(list, ","), list += *list == ',')
		if (!strncmp(list, name, n) && (!list[n] || list[n] == ','))
			return true;
	return false;
}

static void query(const char *arg)
{
	pmix_info_t *results;
	size_t n, psets = 0, names = 0;
	pmix_status_t status;

	(void)arg;
	check(query_for(PMIX_QUERY_NAMESPACES, &results, &n), PMIX_QUERY_NAMESPACES);
	if (results[0].value.type != PMIX_STRING ||
	    !is_in(me.nspace, results[0].value.data.string))
		wrong("this namespace is none");
	check(query_for(PMIX_QUERY_NUM_PSETS, &results, &n), PMIX_QUERY_NUM_PSETS);
	if (results[0].value.type != PMIX_SIZE)
		wrong("the number of process sets is of type %d",
		      results[0].value.type);
	psets = results[0].value.data.size;
	status = query_for(PMIX_QUERY_PSET_NAMES, &results, &n);
	if (psets || status != PMIX_ERR_NOT_FOUND)
		check(status, PMIX_QUERY_PSET_NAMES);
	if (status == PMIX_SUCCESS && results[0].value.type == PMIX_STRING &&
	    results[0].value.data.string)
		for (const char *at = results[0].value.data.string; *at; names++)
			at += strcspn(at, ","), at += *at == ',';
	if (names != psets)
		wrong("%zu process sets, %zu names", psets, names);
	ok();
}

/* ---- ends ---- */

static void leave(const char *arg)
{
	(void)arg;
	if (me.rank == 1)
		exit(0);
	say_error(PMIx_Fence(&everybody, 1, NULL, 0));
}

static void wait_for_rank_1(const char *arg)
{
	(void)arg;
	printf("rank %u: waits\n", me.rank);
	fflush(stdout);
	while (me.rank == 1)
		pause();
	say_error(PMIx_Fence(&everybody, 1, NULL, 0));
}

/* In a call that rank 1 is to take part in, which is dead or dies. */
static void wait_in(const char *in)
{
	const pmix_proc_t dead = proc_of(1);
	pmix_proc_t all[RANKS_MOST];
	pmix_value_t *v;
	pmix_info_t *results;
	size_t n;

	for (uint32_t i = 0; i < size; i++)
		all[i] = proc_of(i);
	if (!in)
		wrong("in what?");
	else if (!strcmp(in, "fence"))
		say_error(PMIx_Fence(&everybody, 1, NULL, 0));
	else if (!strcmp(in, "list"))
		say_error(PMIx_Fence(all, size, NULL, 0));
	else if (!strcmp(in, "connect"))
		say_error(PMIx_Connect(&everybody, 1, NULL, 0));
	else if (!strcmp(in, "group"))
		say_error(
			PMIx_Group_construct("all", all, size, NULL, 0, &results, &n));
	else if (!strcmp(in, "get"))
		say_error(PMIx_Get(&dead, "never", NULL, 0, &v));
	else if (!strcmp(in, "lookup"))
		say_error(lookup("client.never", true, 0));
	else
		wrong("in what?");
}

static void die(const char *in)
{
	if (me.rank == 1) {
		usleep(DIES_MS * 1000); /* the others wait */
		kill(getpid(), SIGKILL);
	}
	wait_in(in);
}

static void late(const char *in)
{
	pmix_status_t code = PMIX_ERR_PROC_TERM_WO_SYNC, status;

	status = PMIx_Register_event_handler(&code, 1, NULL, 0, on_event, NULL, NULL);
	if (status < 0)
		wrong("PMIx_Register_event_handler: %s", PMIx_Error_string(status));
	fence_all(false);
	if (me.rank == 1)
		kill(getpid(), SIGKILL);
	if (!wait_done(&notified, 1))
		wrong("no event");
	wait_in(in);
}

static const struct {
	const char *name;
	void (*run)(const char *arg);
} cases[] = {
	{ "versions", versions }, { "ids", ids },
	{ "info", info },         { "fence", fence },
	{ "nodata", nodata },     { "big", big },
	{ "some", some },         { "connect", connect_ranks },
	{ "group", group },       { "abort", abort_all },
	{ "log", log_texts },     { "spawn", spawn },
	{ "alloc", alloc },       { "control", control },
	{ "table", table },       { "publish", publish },
	{ "event", event },       { "query", query },
	{ "leave", leave },       { "die", die },
	{ "late", late },         { "wait", wait_for_rank_1 },
};

static void run_case(char *name)
{
	char *arg = strchr(name, '=');

	if (arg)
		*arg++ = '\0';
	what = name;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (!strcmp(name, cases[i].name)) {
			cases[i].run(arg);
			return;
		}
	wrong("no such case");
}

int main(int argc, char **argv)
{
	what = "PMIx_Init";
	check(PMIx_Init(&me, NULL, 0), "PMIx_Init");
	everybody = proc_of(PMIX_RANK_WILDCARD);
	size = get_number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
	if (size > RANKS_MOST)
		wrong("too many ranks");
	for (uint32_t i = me.rank % 2; i < size; i += 2)
		half[halves++] = proc_of(i);
	for (int i = 1; i < argc; i++)
		run_case(argv[i]);
	what = "PMIx_Finalize";
	check(PMIx_Finalize(NULL, 0), "PMIx_Finalize");
	return 0;
}
