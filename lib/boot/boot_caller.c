/* boot_caller.c - the ranks find each other through an allgather that the caller gives.
 *
 * An init round makes four calls of it, each with one struct message of each rank:
 *   CARDS    host, socket, and rank 0's key
 *   MEMORY   whether all ranks have settled, and the memory of each host is made
 *   TEXTS    the texts of the fence
 *   END      whether all ranks have got them
 * A rank that has failed says so, and why, in its next call.  Then no rank makes a
 * further one, and all return an error.  So all ranks make equally many calls wherever
 * one of them fails.  A failure of the last call is known to its own rank alone: the
 * others lose this rank in their first operation. */
#include "lib/boot/boot_caller.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "lib/base/callback.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/boot/boot_cards.h"

enum {
	MAGIC = 0x42435231,
	VERSION = 1,
	RANKS_MOST = 1 << 20,
	HAND_S = 30, /* ranks of a host return from a call at different times */
	WHY_BYTES = 256
};

enum call { CARDS = 1, MEMORY, TEXTS, END };

enum { GAVE_KEY = 1, GAVE_HOST = 2 };

struct message {
	uint32_t magic, version, call, rank, ranks;
	uint32_t result; /* a berth_result: not 0 if the rank has failed */
	union {
		char why[WHY_BYTES]; /* of a rank that has failed */
		struct {
			uint32_t gave; /* GAVE_KEY, GAVE_HOST */
			unsigned char key[BOOT_KEY_BYTES];
			struct boot_card card;
			/* As in the card, where "-" stands if the host was given. */
			char machine[BOOT_MACHINE_BYTES];
			uint32_t epoch[2]; /* low, high: of its last world */
		} who;
		char text[BOOT_TEXT_BYTES];
	};
};
/* Its size is the same in all versions of the library, since ranks may have different
 * ones. */
_Static_assert(sizeof(struct message) == 2072, "struct message has another size");

struct caller {
	const struct berth_bootstrap *b; /* NULL: it is not needed any more */
	enum call call;                  /* the next one */
	bool all_know;                   /* that a rank has failed: no further call */
	int listener;
	struct handoff giving; /* of the rank that makes the memory */
	bool gives;
	char maker[HANDOFF_NAME_BYTES]; /* socket of the rank that makes our memory */
	/* In one block, for all ranks.  TEXT: the texts, which fence() gives away with
	 * the block.  SAID, LAST: the messages of calls.  Nothing is allocated between
	 * two calls. */
	char **text;
	struct message *said, *last;
	uint64_t epoch; /* of this process' last world */
};

/* ---- the argument ---- */

static bool has_control(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			return true;
	return false;
}

/* Checks the members without which no call can be made. */
static const char *check_call(const struct berth_bootstrap *b)
{
	enum { SIZE_MOST = 4096 };

	if (b->size < offsetof(struct berth_bootstrap, host) + sizeof b->host ||
	    b->size > SIZE_MOST)
		return "size is not that of struct berth_bootstrap";
	if (!b->allgather)
		return "allgather of struct berth_bootstrap is NULL";
	if (b->ranks < 1 || b->ranks > RANKS_MOST)
		return "ranks of struct berth_bootstrap is not in 1 to 1048576";
	if (b->rank < 0 || b->rank >= b->ranks)
		return "rank of struct berth_bootstrap is not in 0 to ranks - 1";
	return NULL;
}

const char *boot_caller_check(const struct berth_bootstrap *b)
{
	const char *wrong = check_call(b);

	if (wrong || !b->host)
		return wrong;
	if (!*b->host || strnlen(b->host, BOOT_HOST_BYTES) == BOOT_HOST_BYTES)
		return "host of struct berth_bootstrap is empty, or longer than 255 "
		       "bytes";
	if (has_control(b->host))
		return "host of struct berth_bootstrap has control characters";
	return NULL;
}

static struct caller *open_caller(const struct berth_bootstrap *b)
{
	const size_t n = (size_t)b->ranks;
	struct caller *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->b = b;
	c->call = CARDS;
	c->listener = -1;
	c->text = calloc(n, sizeof *c->text + 2 * sizeof *c->said);
	if (!c->text) {
		free(c);
		return NULL;
	}
	c->said = (struct message *)(c->text + n);
	c->last = c->said + n;
	return c;
}

static void close_caller(struct caller *c)
{
	if (c->listener >= 0)
		close(c->listener);
	free(c->text);
	free(c);
}

/* ---- one call ---- */

static bool has_end(const char *text, size_t bytes)
{
	return strnlen(text, bytes) < bytes;
}

/* Is M, in the place of rank R, rank R's message of the same call as MINE? */
static berth_result check_message(const struct message *m, unsigned r,
				  const struct message *mine, char *why)
{
	if (m->magic != MAGIC || m->version != VERSION)
		snprintf(why, BOOT_WHY_BYTES,
			 "rank %u has another version of the library, or allgather "
			 "of struct berth_bootstrap does not give what ranks gave it",
			 r);
	else if (m->ranks != mine->ranks)
		snprintf(why, BOOT_WHY_BYTES,
			 "ranks of struct berth_bootstrap is %u on rank %u and %u on "
			 "rank %u",
			 m->ranks, r, mine->ranks, mine->rank);
	else if (m->rank != r ||
		 (r == mine->rank &&
		  memcmp((const char *)m, (const char *)mine, sizeof *m)))
		snprintf(why, BOOT_WHY_BYTES,
			 "two processes are rank %u, or allgather of struct "
			 "berth_bootstrap does not keep the order of ranks",
			 m->rank);
	else if (m->call != mine->call)
		snprintf(why, BOOT_WHY_BYTES,
			 "rank %u makes call %u of the bootstrap's allgather, this "
			 "rank call %u",
			 r, m->call, mine->call);
	else
		return BERTH_OK;
	return BERTH_SYSTEM;
}

/* Judges the messages of all ranks.  A failed rank comes first, as all ranks see it. */
static berth_result caller_judge(struct caller *c, const struct message *all,
				 const struct message *mine, char *why)
{
	berth_result rc = BERTH_OK;
	unsigned failed = 0; /* the first rank that says it has failed, in M */
	const struct message *m;
	bool is_text;

	while (failed < mine->ranks &&
	       (all[failed].magic != MAGIC || !all[failed].result))
		failed++;
	if (failed < mine->ranks) {
		c->all_know = true;
		if (failed == mine->rank && mine->result)
			return (berth_result)mine->result;
		m = &all[failed];
		is_text = has_end(m->why, sizeof m->why) && !has_control(m->why);
		snprintf(why, BOOT_WHY_BYTES, "rank %u could not join: %s", failed,
			 is_text && *m->why ? m->why : "it does not say why");
		return m->result >= BERTH_INVALID && m->result <= BERTH_SYSTEM
			       ? (berth_result)m->result
			       : BERTH_PEER_LOST;
	}
	for (unsigned r = 0; !rc && r < mine->ranks; r++)
		rc = check_message(&all[r], r, mine, why);
	return rc;
}

/* Makes the next call, with MINE for all ranks.  ALL gets the messages of all.  RC and
 * WHY: this rank has failed before, and returns RC.  If RC is BERTH_PEER_LOST, the rank
 * that it lost says why.  That rank's number is lower, since it made the memory. */
static berth_result caller_exchange(struct caller *c, struct message *mine,
				    struct message *all, berth_result rc, char *why)
{
	const struct berth_bootstrap *b = c->b;
	int error;

	if (rc) {
		memset(mine, 0, sizeof *mine);
		snprintf(mine->why, sizeof mine->why, "%s", why);
	}
	mine->magic = MAGIC;
	mine->version = VERSION;
	mine->call = c->call++;
	mine->rank = (uint32_t)b->rank;
	mine->ranks = (uint32_t)b->ranks;
	mine->result = rc;
	callback_begin();
	error = b->allgather(b->ctx, mine, all, sizeof *mine);
	callback_end();
	c->all_know = rc && !error;
	if (rc && rc != BERTH_PEER_LOST)
		return rc;
	if (!error)
		return caller_judge(c, all, mine, why);
	snprintf(why, BOOT_WHY_BYTES,
		 "the bootstrap's allgather failed on rank %d with %d", b->rank, error);
	return BERTH_SYSTEM;
}

/* This rank has failed: the others hear it in the next call, if there is one. */
static berth_result caller_tell(struct caller *c, berth_result rc, char *why)
{
	struct message mine;

	return !c->b || c->all_know || c->call > END
		       ? rc
		       : caller_exchange(c, &mine, c->last, rc, why);
}

/* If fence() has not been reached, berth_init() fails: the last error of this thread is
 * the reason. */
static void caller_leave(void *state)
{
	const struct berth_error *error = log_last();
	struct caller *c = state;
	char why[BOOT_WHY_BYTES];

	snprintf(why, sizeof why, "%s", error->text);
	caller_tell(c, error->result ? error->result : BERTH_SYSTEM, why);
	close_caller(c);
}

void boot_caller_decline(const struct berth_bootstrap *b, berth_result rc,
			 const char *text)
{
	struct caller *c = check_call(b) ? NULL : open_caller(b);
	char why[BOOT_WHY_BYTES];

	if (!c)
		return;
	snprintf(why, sizeof why, "%s", text);
	caller_tell(c, rc, why);
	close_caller(c);
}

/* ---- joining ---- */

static berth_result system_failed(char *why, const char *text)
{
	snprintf(why, BOOT_WHY_BYTES, "%s", text);
	return BERTH_SYSTEM;
}

/* Makes MINE, in which this rank tells of itself. */
static berth_result caller_prepare(struct caller *c, struct message *mine, char *why)
{
	const struct berth_bootstrap *b = c->b;
	const char *wrong = boot_caller_check(b);

	memset(mine, 0, sizeof *mine);
	if (wrong) {
		snprintf(why, BOOT_WHY_BYTES, "%s", wrong);
		return BERTH_INVALID;
	}
	boot_card_fill(&mine->who.card, b->host);
	memcpy(mine->who.machine, mine->who.card.machine, sizeof mine->who.machine);
	if (b->host)
		snprintf(mine->who.card.machine, sizeof mine->who.card.machine, "-");
	mine->who.gave = (b->key ? GAVE_KEY : 0) | (b->host ? GAVE_HOST : 0);
	mine->who.epoch[0] = (uint32_t)c->epoch;
	mine->who.epoch[1] = (uint32_t)(c->epoch >> 32);
	c->listener = handoff_listen(mine->who.card.socket);
	if (c->listener < 0)
		return system_failed(why, "no socket for the ranks of this host");
	if (b->rank || b->key)
		return BERTH_OK;
	return getrandom(mine->who.key, sizeof mine->who.key, 0) == sizeof mine->who.key
		       ? BERTH_OK
		       : system_failed(why, "no random numbers");
}

/* Checks that the texts of rank R's card can be used as such, and that all ranks give
 * the same members. */
static berth_result check_card(const struct message *m, unsigned r,
			       const struct message *of_0, char *why)
{
	const struct boot_card *card = &m->who.card;

	if (!has_end(card->host, sizeof card->host) || !*card->host ||
	    has_control(card->host) || !has_end(card->machine, sizeof card->machine) ||
	    !has_end(card->socket, sizeof card->socket) ||
	    !has_end(m->who.machine, sizeof m->who.machine)) {
		snprintf(why, BOOT_WHY_BYTES, "what rank %u told of itself is no card",
			 r);
		return BERTH_SYSTEM;
	}
	if (m->who.gave == of_0->who.gave)
		return BERTH_OK;
	snprintf(why, BOOT_WHY_BYTES,
		 "rank %u and rank 0 differ in which members of struct berth_bootstrap "
		 "are NULL",
		 r);
	return BERTH_INVALID;
}

/* Checks that ranks with equal names of hosts can share memory. */
static berth_result check_names(const struct boot_world *w, const struct message *all,
				const unsigned *first, char *why)
{
	for (unsigned r = 0; r < w->size; r++) {
		const unsigned other = first[w->host[r]];

		if (!strcmp(all[r].who.machine, all[other].who.machine))
			continue;
		snprintf(why, BOOT_WHY_BYTES,
			 "ranks %u and %u give the same host, '%s', but are on "
			 "different machines or in different network namespaces",
			 other, r, all[r].who.card.host);
		return BERTH_INVALID;
	}
	return BERTH_OK;
}

/* Sets W's epoch to one more than that of any rank's last world. */
static berth_result next_epoch(struct boot_world *w, const struct message *all,
			       char *why)
{
	for (unsigned r = 0; r < w->size; r++) {
		const uint64_t its =
			(uint64_t)all[r].who.epoch[1] << 32 | all[r].who.epoch[0];

		if (its >= BOOT_EPOCH_MOST) {
			snprintf(why, BOOT_WHY_BYTES,
				 "rank %u says what cannot be of its last world", r);
			return BERTH_SYSTEM;
		}
		w->epoch = its >= w->epoch ? its + 1 : w->epoch;
	}
	return BERTH_OK;
}

/* Makes the world from the messages of all ranks.  W has rank and size. */
static berth_result caller_settle(struct caller *c, struct boot_world *w, char *why)
{
	const struct message *all = c->said;
	struct boot_card *cards = calloc(w->size, sizeof *cards);
	unsigned *first = calloc(w->size, sizeof *first);
	berth_result rc = cards && first ? BERTH_OK : boot_out_of_memory(why);

	for (unsigned r = 0; !rc && r < w->size; r++) {
		rc = check_card(&all[r], r, &all[0], why);
		cards[r] = all[r].who.card;
	}
	if (!rc && boot_cards_settle(w, cards, first))
		rc = boot_out_of_memory(why);
	if (!rc)
		rc = check_names(w, all, first, why);
	if (!rc) {
		memcpy(c->maker, cards[first[w->host[w->rank]]].socket,
		       sizeof c->maker);
		memcpy(w->key, c->b->key ? c->b->key : all[0].who.key, sizeof w->key);
		rc = next_epoch(w, all, why);
	}
	free(cards);
	free(first);
	return rc;
}

static berth_result caller_join(void **state, struct boot_world *w,
				const struct berth_bootstrap *given, char *why)
{
	const char *wrong = check_call(given);
	const uint64_t epoch = w->epoch;
	struct message mine;
	struct caller *c;
	berth_result rc;

	*w = (struct boot_world){ .memory = -1 };
	if (wrong) {
		snprintf(why, BOOT_WHY_BYTES, "%s", wrong);
		return BERTH_INVALID;
	}
	c = open_caller(given);
	if (!c)
		return boot_out_of_memory(why);
	c->epoch = epoch;
	w->rank = (unsigned)given->rank;
	w->size = (unsigned)given->ranks;
	rc = caller_exchange(c, &mine, c->said, caller_prepare(c, &mine, why), why);
	if (!rc)
		rc = caller_settle(c, w, why);
	explicit_bzero(&mine, sizeof mine);
	explicit_bzero(c->said, w->size * sizeof *c->said);
	if (!rc) {
		*state = c;
		return BERTH_OK;
	}
	rc = caller_tell(c, rc, why);
	close_caller(c);
	boot_world_free(w);
	return rc;
}

/* ---- memory and fence ---- */

/* The first rank of the host makes the memory, and gives it to all that come from then
 * on.  The others come for it before the call.  After the call the maker does not wait
 * for any rank.  So a rank that fails now does not hold up another. */
static berth_result open_memory(struct caller *c, struct boot_world *w, size_t bytes,
				int *to_maker, char *why)
{
	berth_result rc;

	if (!w->local_rank) {
		w->memory = boot_memfd(bytes, why);
		if (w->memory < 0)
			return BERTH_SYSTEM;
		rc = w->local_size > 1
			     ? handoff_begin(&c->giving, c->listener, w->local_size - 1,
					     w->memory, why, BOOT_WHY_BYTES)
			     : BERTH_OK;
		c->gives = !rc && w->local_size > 1;
		return rc;
	}
	*to_maker = handoff_come(c->maker, clock_until(HAND_S * 1000));
	if (*to_maker >= 0)
		return BERTH_OK;
	rc = errno == ECONNREFUSED ? BERTH_PEER_LOST : BERTH_SYSTEM;
	snprintf(why, BOOT_WHY_BYTES, "cannot reach the first rank of host '%s': %s",
		 boot_host_name(w, w->rank), strerror(errno));
	return rc;
}

/* Ends the giving after the call, from which RC and WHY came. */
static berth_result caller_end_giving(struct caller *c, berth_result rc, char *why)
{
	char unused[BOOT_WHY_BYTES];

	if (!c->gives)
		return rc;
	c->gives = false;
	if (!rc)
		return handoff_end(&c->giving, clock_until(HAND_S * 1000), why,
				   BOOT_WHY_BYTES);
	handoff_end(&c->giving, 0, unused, sizeof unused);
	return rc;
}

static berth_result caller_memory(void *state, struct boot_world *w, size_t bytes,
				  char *why)
{
	struct caller *c = state;
	struct message mine = { 0 };
	int to_maker = -1;
	berth_result rc = open_memory(c, w, bytes, &to_maker, why);

	rc = caller_exchange(c, &mine, c->last, rc, why);
	rc = caller_end_giving(c, rc, why);
	if (rc && to_maker >= 0)
		close(to_maker);
	else if (!rc && w->local_rank)
		rc = handoff_receive(to_maker, bytes, &w->memory, why, BOOT_WHY_BYTES);
	close(c->listener);
	c->listener = -1;
	if (rc == BERTH_PEER_LOST) /* another rank may know more */
		rc = caller_tell(c, rc, why);
	w->memory_bytes = rc ? 0 : bytes;
	w->clock_offset_ns = (int64_t)(clock_read(CLOCK_REALTIME) - clock_ns());
	return rc;
}

static berth_result caller_fence(void *state, struct boot_world *w, const char *mine,
				 const struct boot_patience *patience, char ***all,
				 char *why)
{
	struct caller *c = state;
	struct message m = { 0 };
	berth_result rc = BERTH_OK;

	(void)patience; /* allgather has limits of its own */
	if (snprintf(m.text, sizeof m.text, "%s", mine) >= (int)sizeof m.text) {
		snprintf(why, BOOT_WHY_BYTES, "a text longer than a fence takes");
		rc = BERTH_INVALID;
	}
	rc = caller_exchange(c, &m, c->said, rc, why);
	if (rc)
		return rc;
	for (unsigned r = 0; r < w->size; r++) {
		c->text[r] = c->said[r].text;
		if (has_end(c->text[r], sizeof c->said[r].text))
			continue;
		snprintf(why, BOOT_WHY_BYTES, "the text of rank %u has no end", r);
		return BERTH_SYSTEM;
	}
	memset(&m, 0, sizeof m);
	rc = caller_exchange(c, &m, c->last, BERTH_OK, why);
	if (rc)
		return rc;
	*all = c->text;
	c->text = NULL;
	c->b = NULL;
	return BERTH_OK;
}

const struct boot boot_caller = {
	.name = "the caller",
	.join = caller_join,
	.memory = caller_memory,
	.fence = caller_fence,
	.leave = caller_leave,
};
