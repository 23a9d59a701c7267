/* engine_messages.c - the messages of a set: made when they are needed, freed when
 * nobody uses them any more. */
#include "lib/core/engine_internal.h"

struct messages *engine_use_messages(struct engine *e)
{
	struct messages *m;

	pthread_mutex_lock(&e->queue);
	m = e->messages;
	if (m)
		messages_enter(m);
	pthread_mutex_unlock(&e->queue);
	return m;
}

/* LATE: also while E is to end. */
static struct messages *messages_need(struct engine *e, bool late)
{
	struct messages *m;

	pthread_mutex_lock(&e->queue);
	if (!e->messages && (late || !atomic_load(&e->comm->aborted)))
		e->messages = messages_make(e->comm);
	m = e->messages;
	if (m)
		messages_enter(m);
	pthread_mutex_unlock(&e->queue);
	if (!m || messages_start(m))
		return m;
	messages_leave(m);
	return NULL;
}

struct messages *engine_need_messages(struct engine *e)
{
	return messages_need(e, false);
}

struct messages *engine_need_last_messages(struct engine *e)
{
	return messages_need(e, true);
}

/* Has a rank of another host something to say to a rank that has said nothing yet? */
static bool is_spoken_to(struct engine *e)
{
	bool is;

	pthread_mutex_lock(&e->queue);
	is = e->comm->messages_net && net_has_come(e->comm->messages_net);
	pthread_mutex_unlock(&e->queue);
	return is;
}

void engine_hear(void *engine)
{
	struct messages *m = engine_use_messages(engine);

	if (!m && is_spoken_to(engine))
		m = engine_need_last_messages(engine);
	if (!m)
		return;
	messages_hear(m);
	messages_leave(m);
}

void engine_tell_other_hosts(struct engine *e)
{
	struct messages *m =
		e->comm->net ? engine_need_last_messages(e) : engine_use_messages(e);

	if (!m)
		return;
	messages_abort(m);
	messages_leave(m);
}

void engine_tidy_messages(struct engine *e)
{
	pthread_mutex_lock(&e->queue); /* no use begins */
	if (e->messages)
		messages_tidy(e->messages);
	pthread_mutex_unlock(&e->queue);
}

void engine_free_messages(struct engine *e)
{
	struct messages *m;

	pthread_mutex_lock(&e->queue);
	m = e->messages;
	e->messages = NULL;
	pthread_mutex_unlock(&e->queue);
	if (m)
		messages_free(m);
	else
		messages_decline(e->comm);
}
