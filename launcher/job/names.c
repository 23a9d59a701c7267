#include "launcher/job/names.h"

#include <event2/event.h>

#include "common/loop.h"
#include "launcher/job/mpi.h"

enum {
	NAMES_MOST = 16384,
	BYTES_MOST = 16 << 20, /* of all names; of one answer */
	LOOKUPS_MOST = 65536
};

/* What is published under one name. */
struct name {
	char *key, *value;
	size_t size;
	uint32_t owner;
	bool once;
	struct name *next;
};

/* A rank waits until all of KEYS are published. */
struct lookup {
	uint32_t host, rank, id;
	struct strv keys;
	uint64_t until_ms; /* 0: for ever */
	struct lookup *next;
};

struct names {
	struct name *first;
	size_t n, bytes;
	struct lookup *lookup;
	size_t nlookups;
	struct event *timer;
};

static void on_timer(evutil_socket_t fd, short what, void *ctx);

struct names *names_open(struct job *j)
{
	struct names *n = xcalloc(1, sizeof *n);

	n->timer = event_new(j->base, -1, 0, on_timer, j);
	return n;
}

static void name_free(struct names *n, struct name **at)
{
	struct name *one = *at;

	*at = one->next;
	n->n--;
	n->bytes -= one->size + strlen(one->key);
	free(one->key);
	free(one->value);
	free(one);
}

static void lookup_free(struct names *n, struct lookup **at)
{
	struct lookup *one = *at;

	*at = one->next;
	n->nlookups--;
	strv_free(&one->keys);
	free(one);
}

void names_free(struct names *n)
{
	if (!n)
		return;
	while (n->first)
		name_free(n, &n->first);
	while (n->lookup)
		lookup_free(n, &n->lookup);
	event_free(n->timer);
	free(n);
}

static struct name **find(struct names *n, const char *key)
{
	struct name **at = &n->first;

	while (*at && strcmp((*at)->key, key) != 0)
		at = &(*at)->next;
	return at;
}

/* ---- answers ---- */

static void say(struct job *j, uint32_t host, const struct wire_found *m)
{
	const struct wire_found none = { .epoch = m->epoch,
					 .id = m->id,
					 .status = FOUND_NO_ROOM };
	struct host *h = &j->agents.host[host];

	if (h->state != HOST_UP)
		return;
	wire_pack_found(&h->out, h->out.len > MPI_QUEUED_MOST ? &none : m);
	agents_flush(h);
}

static void say_status(struct job *j, uint32_t host, uint32_t id,
		       enum found_status status)
{
	say(j, host,
	    &(struct wire_found){ .epoch = j->epoch, .id = id, .status = status });
}

/* What there is of KEYS.  False: not all, and MUST_ALL. */
static bool answer(struct job *j, uint32_t host, uint32_t id, const wire_strv *keys,
		   bool must_all)
{
	struct names *n = j->names;
	uint32_t *owners = xcalloc(keys->n, sizeof *owners);
	uint32_t *sizes = xcalloc(keys->n, sizeof *sizes);
	const char **found = xcalloc(keys->n, sizeof *found);
	struct buf values = { 0 };
	size_t count = 0;
	bool done;

	for (size_t i = 0; i < keys->n; i++) {
		const struct name *one = *find(n, keys->v[i]);

		if (!one)
			continue;
		if (values.len > BYTES_MOST) { /* it names one again and again */
			count++;
			continue;
		}
		found[count] = one->key;
		owners[count] = one->owner;
		sizes[count++] = (uint32_t)one->size;
		buf_add(&values, one->value, one->size);
	}
	done = !must_all || count == keys->n;
	if (done && values.len > BYTES_MOST)
		say_status(j, host, id, FOUND_NO_ROOM);
	else if (done)
		say(j, host,
		    &(struct wire_found){
			    .epoch = j->epoch,
			    .id = id,
			    .status = count == keys->n ? FOUND_ALL
				      : count          ? FOUND_SOME
						       : FOUND_NONE,
			    .keys = { found, count },
			    .owners = { owners, count },
			    .sizes = { sizes, count },
			    .values = { buf_head(&values), values.len } });
	for (size_t i = 0; done && values.len <= BYTES_MOST && i < keys->n; i++) {
		struct name **at = find(n, keys->v[i]);

		if (*at && (*at)->once)
			name_free(n, at);
	}
	buf_free(&values);
	free(owners);
	free(sizes);
	free(found);
	return done;
}

/* Those who wait get what is there by now; those whose time is over, what there is. */
static void answer_waiting(struct job *j)
{
	struct lookup **at = &j->names->lookup;
	const uint64_t now = clock_ms();
	uint64_t soonest = 0;

	while (*at) {
		struct lookup *one = *at;
		const wire_strv keys = { (const char *const *)one->keys.v,
					 one->keys.n };
		const bool late = one->until_ms && now >= one->until_ms;

		if (answer(j, one->host, one->id, &keys, !late)) {
			lookup_free(j->names, at);
			continue;
		}
		if (one->until_ms && (!soonest || one->until_ms < soonest))
			soonest = one->until_ms;
		at = &one->next;
	}
	if (soonest)
		loop_after_ms(j->names->timer, soonest - now);
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	answer_waiting(ctx);
}

/* ---- messages ---- */

static const char *wrong_rank(struct job *j, const struct host *h, uint32_t rank)
{
	if (!j->names || j->phase < JOB_RUN)
		return "message about names out of turn";
	return job_has_rank(j, h, rank) ? NULL : "message about a rank of another host";
}

static enum found_status publish(struct names *n, const struct wire_publish *m)
{
	const char *value = m->values.p;
	size_t bytes = m->values.n;

	for (size_t i = 0; i < m->keys.n; i++) {
		if (*find(n, m->keys.v[i]))
			return FOUND_DUPLICATE;
		for (size_t k = 0; k < i; k++)
			if (!strcmp(m->keys.v[k], m->keys.v[i]))
				return FOUND_DUPLICATE;
		bytes += strlen(m->keys.v[i]);
	}
	if (m->keys.n > NAMES_MOST - n->n || bytes > BYTES_MOST - n->bytes)
		return FOUND_NO_ROOM;
	for (size_t i = 0; i < m->keys.n; i++) {
		struct name *one = xmalloc(sizeof *one);

		*one = (struct name){ .key = xstrdup(m->keys.v[i]),
				      .value = xmalloc(m->sizes.v[i] + 1),
				      .size = m->sizes.v[i],
				      .owner = m->rank,
				      .once = m->once,
				      .next = n->first };
		memcpy(one->value, value, one->size);
		value += one->size;
		n->first = one;
		n->n++;
		n->bytes += one->size + strlen(one->key);
	}
	return FOUND_ALL;
}

const char *names_publish(struct job *j, struct host *h, const struct wire_publish *m)
{
	const char *wrong = wrong_rank(j, h, m->rank);
	size_t sum = 0;

	if (wrong)
		return wrong;
	for (size_t i = 0; i < m->sizes.n; i++)
		sum += m->sizes.v[i];
	if (m->sizes.n != m->keys.n || sum != m->values.n)
		return "malformed 'publish' message";
	say_status(j, job_index(j, h), m->id, publish(j->names, m));
	answer_waiting(j);
	return NULL;
}

const char *names_lookup(struct job *j, struct host *h, const struct wire_lookup *m)
{
	const char *wrong = wrong_rank(j, h, m->rank);
	struct names *n = j->names;
	struct lookup *one;

	if (wrong)
		return wrong;
	if (answer(j, job_index(j, h), m->id, &m->keys, m->wait))
		return NULL;
	if (n->nlookups >= LOOKUPS_MOST) {
		say_status(j, job_index(j, h), m->id, FOUND_NO_ROOM);
		return NULL;
	}
	one = xmalloc(sizeof *one);
	*one = (struct lookup){
		.host = job_index(j, h),
		.rank = m->rank,
		.id = m->id,
		.until_ms = m->timeout_s ? clock_ms() + m->timeout_s * 1000ull : 0,
		.next = n->lookup
	};
	for (size_t i = 0; i < m->keys.n; i++)
		strv_add(&one->keys, m->keys.v[i]);
	n->lookup = one;
	n->nlookups++;
	answer_waiting(j); /* sets the timer */
	return NULL;
}

const char *names_unpublish(struct job *j, struct host *h,
			    const struct wire_unpublish *m)
{
	const char *wrong = wrong_rank(j, h, m->rank);
	struct name **at;
	size_t gone = 0;

	if (wrong)
		return wrong;
	at = &j->names->first;
	while (*at) {
		bool is_named = !m->keys.n;

		for (size_t i = 0; i < m->keys.n; i++)
			is_named |= !strcmp((*at)->key, m->keys.v[i]);
		if (is_named && (*at)->owner == m->rank) {
			name_free(j->names, at);
			gone++;
		} else {
			at = &(*at)->next;
		}
	}
	say_status(j, job_index(j, h), m->id,
		   gone || !m->keys.n ? FOUND_ALL : FOUND_NONE);
	return NULL;
}

const char *names_event(struct job *j, struct host *h, const struct wire_event *m)
{
	const char *wrong = wrong_rank(j, h, m->rank);

	if (wrong)
		return wrong;
	for (size_t i = 0; i < j->agents.n; i++) {
		struct host *other = &j->agents.host[i];

		if (other == h || !job_reaches(j, i) ||
		    other->out.len > MPI_QUEUED_MOST)
			continue;
		wire_pack_event(&other->out, m);
		agents_flush(other);
	}
	return NULL;
}

void names_rank_ended(struct job *j, uint32_t rank)
{
	struct lookup **at;

	if (!j->names)
		return;
	at = &j->names->lookup;
	while (*at)
		if ((*at)->rank == rank)
			lookup_free(j->names, at);
		else
			at = &(*at)->next;
}
