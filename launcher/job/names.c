#include "launcher/job/names.h"

#include <event2/event.h>
#include <sodium/crypto_shorthash.h>
#include <sys/random.h>

#include "common/loop.h"
#include "launcher/job/mpi.h"

enum {
	NAMES_MOST = 16384,
	BYTES_MOST = 16 << 20, /* of all names; of one answer */
	KEYS_MOST = 4096,      /* in one lookup */
	/* of the lookups of one host that wait */
	WAITING_KEYS_MOST = 16384,
	WAITING_BYTES_MOST = 1 << 20,
	BUCKETS = 16384, /* of each table; a power of 2 */
	/* Bytes that wait for a host; it gets no event behind those. */
	EVENTS_QUEUED_MOST = 4 << 20
};

/* A value that is published under one name. */
struct name {
	char *key, *value;
	size_t size;
	uint32_t owner;
	bool once;
	struct name *next; /* in its bucket */
};

/* A rank waits until all of KEYS are published. */
struct lookup {
	uint32_t host, rank, id;
	struct strv keys;
	size_t bytes;      /* of keys */
	const char *lacks; /* the key of its bucket, which is not published */
	uint64_t until_ms; /* 0: for ever */
	struct lookup *next;
};

/* The lookups of one host that wait. */
struct waiting {
	size_t keys, bytes;
};

struct names {
	struct epoch epoch;
	struct name *name[BUCKETS];
	size_t n, bytes;
	struct lookup *lookup[BUCKETS]; /* by a key that they lack */
	size_t nlookups;
	struct waiting *host;
	unsigned char secret[crypto_shorthash_KEYBYTES]; /* so that no agent can choose
							    keys of one bucket */
	struct event *timer;
	uint64_t timer_ms; /* when it comes; 0: it does not */
};

static void names_on_timer(evutil_socket_t fd, short what, void *ctx);

struct names *names_open(const struct epoch *e)
{
	struct names *n = xcalloc(1, sizeof *n);

	n->epoch = *e;
	n->host = xcalloc(e->hosts_most, sizeof *n->host);
	/* libsodium ends the program where there are no random bytes; zeros only let an
	 * agent choose names of one bucket */
	if (getrandom(n->secret, sizeof n->secret, 0) < 0)
		memset(n->secret, 0, sizeof n->secret);
	n->timer = event_new(e->base, -1, 0, names_on_timer, n);
	return n;
}

static size_t bucket_of(const struct names *n, const char *key)
{
	uint64_t hash;

	crypto_shorthash((unsigned char *)&hash, (const unsigned char *)key,
			 strlen(key), n->secret);
	return hash & (BUCKETS - 1);
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

/* It is in no bucket. */
static void lookup_free(struct names *n, struct lookup *one)
{
	n->nlookups--;
	n->host[one->host].keys -= one->keys.n;
	n->host[one->host].bytes -= one->bytes;
	strv_free(&one->keys);
	free(one);
}

/* Take the lookups out of their buckets that are of RANK, or without it late by NOW. */
static struct lookup *take_lookups(struct names *n, const uint32_t *rank, uint64_t now)
{
	struct lookup *taken = NULL;

	for (size_t i = 0; i < BUCKETS && n->nlookups; i++)
		for (struct lookup **at = &n->lookup[i], *one; (one = *at);) {
			if (rank ? one->rank != *rank
				 : !one->until_ms || now < one->until_ms) {
				at = &one->next;
				continue;
			}
			*at = one->next;
			one->next = taken;
			taken = one;
		}
	return taken;
}

void names_free(struct names *n)
{
	if (!n)
		return;
	for (size_t i = 0; i < BUCKETS && (n->n || n->nlookups); i++) {
		while (n->name[i])
			name_free(n, &n->name[i]);
		for (struct lookup *one; (one = n->lookup[i]);) {
			n->lookup[i] = one->next;
			lookup_free(n, one);
		}
	}
	event_free(n->timer);
	free(n->host);
	free(n);
}

static struct name **names_find(struct names *n, const char *key)
{
	struct name **at = &n->name[bucket_of(n, key)];

	while (*at && strcmp((*at)->key, key) != 0)
		at = &(*at)->next;
	return at;
}

/* ---- answers ---- */

static void names_say(struct names *n, uint32_t host, const struct wire_found *m)
{
	const struct wire_found none = { .epoch = m->epoch,
					 .id = m->id,
					 .status = FOUND_NO_ROOM };
	struct host *h = &n->epoch.agents->host[host];

	if (h->state != HOST_UP)
		return;
	AGENTS_SEND(h, found, h->out.len > MPI_QUEUED_MOST ? &none : m);
}

static void say_status(struct names *n, uint32_t host, uint32_t id,
		       enum found_status status)
{
	names_say(n, host,
		  &(struct wire_found){
			  .epoch = n->epoch.number, .id = id, .status = status });
}

/* Answers with those of KEYS that are there.  False: not all, and MUST_ALL. */
static bool names_answer(struct names *n, uint32_t host, uint32_t id,
			 const wire_strv *keys, bool must_all)
{
	uint32_t *owners = xcalloc(keys->n, sizeof *owners);
	uint32_t *sizes = xcalloc(keys->n, sizeof *sizes);
	const char **found = xcalloc(keys->n, sizeof *found);
	struct buf values = { 0 };
	size_t count = 0;
	bool done;

	for (size_t i = 0; i < keys->n; i++) {
		const struct name *one = *names_find(n, keys->v[i]);

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
		say_status(n, host, id, FOUND_NO_ROOM);
	else if (done)
		names_say(n, host,
			  &(struct wire_found){
				  .epoch = n->epoch.number,
				  .id = id,
				  .status = count == keys->n ? FOUND_ALL
					    : count          ? FOUND_SOME
							     : FOUND_NONE,
				  .keys = { found, count },
				  .owners = { owners, count },
				  .sizes = { sizes, count },
				  .values = { buf_head(&values), values.len } });
	for (size_t i = 0; done && values.len <= BYTES_MOST && i < keys->n; i++) {
		struct name **at = names_find(n, keys->v[i]);

		if (*at && (*at)->once)
			name_free(n, at);
	}
	buf_free(&values);
	free(owners);
	free(sizes);
	free(found);
	return done;
}

static bool answer_one(struct names *n, const struct lookup *one, bool must_all)
{
	const wire_strv keys = { (const char *const *)one->keys.v, one->keys.n };

	return names_answer(n, one->host, one->id, &keys, must_all);
}

/* ONE waits for the first of its keys that is not published. */
static void names_await(struct names *n, struct lookup *one)
{
	struct lookup **at;
	size_t i = 0;

	while (i + 1 < one->keys.n && *names_find(n, one->keys.v[i]))
		i++;
	one->lacks = one->keys.v[i];
	at = &n->lookup[bucket_of(n, one->lacks)];
	one->next = *at;
	*at = one;
}

/* KEY is published: the lookups that lacked it get what they asked for, or lack
 * another. */
static void answer_waiting(struct names *n, const char *key)
{
	struct lookup **at = &n->lookup[bucket_of(n, key)], *ready = NULL, *one;

	while ((one = *at)) {
		if (strcmp(one->lacks, key) != 0) {
			at = &one->next;
			continue;
		}
		*at = one->next;
		one->next = ready;
		ready = one;
	}
	while ((one = ready)) {
		ready = one->next;
		if (answer_one(n, one, true))
			lookup_free(n, one);
		else
			names_await(n, one);
	}
}

static void set_timer(struct names *n, uint64_t at_ms)
{
	const uint64_t now = clock_ms();

	if (n->timer_ms && n->timer_ms <= at_ms)
		return;
	n->timer_ms = at_ms;
	loop_after_ms(n->timer, at_ms > now ? at_ms - now : 0);
}

/* Lookups whose time is over get what is there. */
static void names_on_timer(evutil_socket_t fd, short what, void *ctx)
{
	struct names *n = ctx;
	struct lookup *late = take_lookups(n, NULL, clock_ms()), *one;
	uint64_t soonest = 0;

	(void)fd;
	(void)what;
	while ((one = late)) {
		late = one->next;
		answer_one(n, one, false);
		lookup_free(n, one);
	}
	n->timer_ms = 0;
	for (size_t i = 0; i < BUCKETS && n->nlookups; i++)
		for (one = n->lookup[i]; one; one = one->next)
			if (one->until_ms && (!soonest || one->until_ms < soonest))
				soonest = one->until_ms;
	if (soonest)
		set_timer(n, soonest);
}

/* ---- messages ---- */

static const char *wrong_rank(const struct names *n, const struct host *h,
			      uint32_t rank)
{
	if (!n)
		return "message about names out of turn";
	return epoch_has_rank(&n->epoch, h, rank)
		       ? NULL
		       : "message about a rank of another host";
}

/* All of M, or nothing. */
static enum found_status names_add(struct names *n, const struct wire_publish *m)
{
	const char *value = m->values.p;
	size_t bytes = m->values.n;

	for (size_t i = 0; i < m->keys.n; i++) {
		if (*names_find(n, m->keys.v[i]))
			return FOUND_DUPLICATE;
		bytes += strlen(m->keys.v[i]);
	}
	if (m->keys.n > NAMES_MOST - n->n || bytes > BYTES_MOST - n->bytes)
		return FOUND_NO_ROOM;
	for (size_t i = 0; i < m->keys.n; i++) {
		struct name **at = names_find(n, m->keys.v[i]), *one;

		if (*at) { /* M names it twice */
			while (i--)
				name_free(n, names_find(n, m->keys.v[i]));
			return FOUND_DUPLICATE;
		}
		one = xmalloc(sizeof *one);
		*one = (struct name){ .key = xstrdup(m->keys.v[i]),
				      .value = xmalloc(m->sizes.v[i] + 1),
				      .size = m->sizes.v[i],
				      .owner = m->rank,
				      .once = m->once };
		memcpy(one->value, value, one->size);
		value += one->size;
		*at = one;
		n->n++;
		n->bytes += one->size + strlen(one->key);
	}
	return FOUND_ALL;
}

const char *names_publish(struct names *n, struct host *h, const struct wire_publish *m)
{
	const char *wrong = wrong_rank(n, h, m->rank);
	enum found_status status;
	size_t sum = 0;

	if (wrong)
		return wrong;
	for (size_t i = 0; i < m->sizes.n; i++)
		sum += m->sizes.v[i];
	if (m->sizes.n != m->keys.n || sum != m->values.n)
		return "malformed 'publish' message";
	status = names_add(n, m);
	say_status(n, epoch_index(&n->epoch, h), m->id, status);
	for (size_t i = 0; status == FOUND_ALL && i < m->keys.n; i++)
		answer_waiting(n, m->keys.v[i]);
	return NULL;
}

/* M of HOST waits, unless that host has too many that do. */
static bool names_keep(struct names *n, uint32_t host, const struct wire_lookup *m)
{
	struct waiting *w = &n->host[host];
	struct lookup *one;
	size_t bytes = 0;

	for (size_t i = 0; i < m->keys.n; i++)
		bytes += strlen(m->keys.v[i]);
	if (m->keys.n > WAITING_KEYS_MOST - w->keys ||
	    bytes > WAITING_BYTES_MOST - w->bytes)
		return false;
	one = xmalloc(sizeof *one);
	*one = (struct lookup){
		.host = host,
		.rank = m->rank,
		.id = m->id,
		.bytes = bytes,
		.until_ms = m->timeout_s ? clock_ms() + m->timeout_s * 1000ull : 0
	};
	for (size_t i = 0; i < m->keys.n; i++)
		strv_add(&one->keys, m->keys.v[i]);
	w->keys += m->keys.n;
	w->bytes += bytes;
	n->nlookups++;
	names_await(n, one);
	if (one->until_ms)
		set_timer(n, one->until_ms);
	return true;
}

const char *names_lookup(struct names *n, struct host *h, const struct wire_lookup *m)
{
	const char *wrong = wrong_rank(n, h, m->rank);
	uint32_t host;

	if (wrong)
		return wrong;
	host = epoch_index(&n->epoch, h);
	if (m->keys.n > KEYS_MOST ||
	    (!names_answer(n, host, m->id, &m->keys, m->wait) &&
	     !names_keep(n, host, m)))
		say_status(n, host, m->id, FOUND_NO_ROOM);
	return NULL;
}

/* Take RANK's name at AT back; false: it is another's, or none. */
static bool names_drop(struct names *n, struct name **at, uint32_t rank)
{
	if (!*at || (*at)->owner != rank)
		return false;
	name_free(n, at);
	return true;
}

const char *names_unpublish(struct names *n, struct host *h,
			    const struct wire_unpublish *m)
{
	const char *wrong = wrong_rank(n, h, m->rank);
	size_t gone = 0;

	if (wrong)
		return wrong;
	for (size_t i = 0; i < m->keys.n; i++)
		gone += names_drop(n, names_find(n, m->keys.v[i]), m->rank);
	for (size_t i = 0; !m->keys.n && i < BUCKETS && n->n; i++)
		for (struct name **at = &n->name[i]; *at;)
			if (!names_drop(n, at, m->rank))
				at = &(*at)->next;
	say_status(n, epoch_index(&n->epoch, h), m->id,
		   gone || !m->keys.n ? FOUND_ALL : FOUND_NONE);
	return NULL;
}

const char *names_event(struct names *n, struct host *h, const struct wire_event *m)
{
	const char *wrong = wrong_rank(n, h, m->rank);

	if (wrong)
		return wrong;
	for (size_t i = 0; i < n->epoch.plan->nhosts; i++) {
		struct host *other = &n->epoch.agents->host[i];

		if (other == h || !epoch_reaches(&n->epoch, i) ||
		    other->out.len > EVENTS_QUEUED_MOST)
			continue;
		AGENTS_SEND(other, event, m);
	}
	return NULL;
}

void names_rank_ended(struct names *n, uint32_t rank)
{
	struct lookup *its, *one;

	if (!n || !n->nlookups)
		return;
	its = take_lookups(n, &rank, 0);
	while ((one = its)) {
		its = one->next;
		lookup_free(n, one);
	}
}
