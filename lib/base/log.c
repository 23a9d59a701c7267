#include "lib/base/log.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/apart.h"
#include "lib/base/callback.h"

/* ---- lines ---- */

static struct {
	pthread_mutex_t lock;
	void (*say)(void *ctx, enum berth_log_level level, const char *text);
	void *ctx;
} to = { .lock = PTHREAD_MUTEX_INITIALIZER };

void log_to(void (*say)(void *ctx, enum berth_log_level level, const char *text),
	    void *ctx)
{
	pthread_mutex_lock(&to.lock);
	to.say = say;
	to.ctx = ctx;
	pthread_mutex_unlock(&to.lock);
}

void log_in_child(void)
{
	pthread_mutex_init(&to.lock, NULL);
	to.say = NULL;
}

struct log_call {
	void (*say)(void *ctx, enum berth_log_level level, const char *text);
	void *ctx;
	enum berth_log_level level;
	const char *text;
};

static void log_tell(void *call)
{
	const struct log_call *c = call;

	callback_begin();
	c->say(c->ctx, c->level, c->text);
	callback_end();
}

void log_say(enum berth_log_level level, const char *fmt, ...)
{
	struct log_call c = { .level = level };
	char text[LOG_TEXT_BYTES];
	va_list ap;

	pthread_mutex_lock(&to.lock);
	c.say = to.say;
	c.ctx = to.ctx;
	pthread_mutex_unlock(&to.lock);
	if (!c.say)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	c.text = text;
	apart_call(log_tell, &c);
}

/* ---- errors ---- */

struct last {
	struct berth_error e;
	char tensor[LOG_TENSOR_BYTES], text[LOG_TEXT_BYTES];
	int missing[LOG_MISSING];
};

/* Shared by threads without an error, and by threads without memory for one. */
static const struct berth_error none = { sizeof none, BERTH_OK, "", NULL, 0, "" };
static struct last no_memory = { .e = { sizeof no_memory.e, BERTH_MEMORY, "", NULL, 0,
					"out of memory" } };

/* A key, not _Thread_local.  A library that a program loads while it runs gets little
 * _Thread_local memory.  The C library ends a thread that finds none left.  The key is
 * never deleted: the library is linked so that it stays (-z nodelete). */
static pthread_key_t key;
static bool has_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void log_forget(void *l)
{
	if (l != &no_memory)
		free(l);
}

static void make_key(void)
{
	has_key = !pthread_key_create(&key, log_forget);
}

static struct last *log_slot(void)
{
	pthread_once(&once, make_key);
	return has_key ? pthread_getspecific(key) : NULL;
}

static struct last *log_make(void)
{
	struct last *l = log_slot();

	if (!has_key || (l && l != &no_memory))
		return l;
	l = malloc(sizeof *l);
	if (!pthread_setspecific(key, l ? l : &no_memory))
		return l;
	free(l);
	return NULL;
}

berth_result log_error(berth_result rc, const char *tensor, const unsigned *missing,
		       size_t n, const char *fmt, ...)
{
	char text[LOG_TEXT_BYTES]; /* FMT's arguments may point into the last one */
	struct last *l = log_make();
	size_t bytes;
	va_list ap;

	if (!l)
		return rc;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	memcpy(l->text, text, strlen(text) + 1);
	bytes = tensor ? strnlen(tensor, LOG_TENSOR_BYTES - 1) : 0;
	memmove(l->tensor, tensor ? tensor : "", bytes); /* it may be this text */
	l->tensor[bytes] = '\0';
	n = n < LOG_MISSING ? n : LOG_MISSING;
	for (size_t i = 0; i < n; i++)
		l->missing[i] = (int)missing[i];
	l->e = (struct berth_error){
		.size = sizeof l->e,
		.result = rc,
		.tensor = l->tensor,
		.missing = l->missing,
		.nmissing = n,
		.text = l->text,
	};
	return rc;
}

const struct berth_error *log_last(void)
{
	const struct last *l = log_slot();

	return l ? &l->e : &none;
}

const char *berth_result_text(berth_result result)
{
	static const char *const text[] = {
		[BERTH_OK] = "done",
		[BERTH_BUSY] = "not done yet",
		[BERTH_INVALID] = "an argument is wrong",
		[BERTH_STATE] = "called at the wrong time",
		[BERTH_NO_PEERS] = "no way to the other ranks",
		[BERTH_MISMATCH] = "the ranks called for different things",
		[BERTH_PEER_LOST] = "a rank has ended",
		[BERTH_TIMEOUT] = "a rank did not come in time",
		[BERTH_ABORTED] = "the set was removed, or shut down, meanwhile",
		[BERTH_MEMORY] = "out of memory",
		[BERTH_AUTH] =
			"a connection is not with the rank that it seems to be with",
		[BERTH_UNSUPPORTED] = "not supported here",
		[BERTH_SYSTEM] = "a system call failed",
	};

	return (size_t)result < sizeof text / sizeof *text && text[result]
		       ? text[result]
		       : "no such result";
}
