/* boot_pmix.c - the ranks find each other through a PMIx server: srun --mpi=pmix,
 * Open MPI's mpirun, prterun. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/wait.h"
#include "lib/boot/boot.h"
#include "lib/boot/boot_cards.h"
#include "lib/boot/munge.h"
#include "lib/boot/pmix_client.h"

enum {
	COME_S = 300, /* from the first rank's coming to the last one's, as in Slurm */
	GO_ON_S = 10, /* for what comes next, when all have come */
	HAND_S = 5,
	SECRET_BYTES = 2 * BOOT_KEY_BYTES + 1 /* the key in hexadecimal digits */
};

/* A card is the text "HOST MACHINE SOCKET SECRET".  The secret of rank 0 is the job's
 * key in hexadecimal digits, that of the others "-".  A rank on whose host MUNGE makes
 * credentials has the secret MUNGE_WORKS.  If rank 0 is one of these, it publishes the
 * key after all cards: as a credential, if MUNGE works on all ranks. */
#define CARD_FORMAT "%255s %63s %32s %64s"
#define MUNGE_WORKS "munge"

/* Found out by the first joining, and used by every other.  It is not published anew,
 * since libpmix sends all that a rank ever published with each commit.  (Else 1000 init
 * rounds of 4 ranks took 214 s.) */
static struct {
	struct boot_world w; /* size 0: there was none yet */
	unsigned *first;     /* of each host: its first rank, which makes its memory */
	char maker[HANDOFF_NAME_BYTES]; /* that one's socket, here; */
	int listener;                   /* it's ours, or -1 */
	unsigned attempts, exchanges;   /* of cards, of texts */
} job = { .listener = -1 };

/* A host publishes this if one of its ranks has failed.  It has no NUL, but each text
 * has one. */
static const char no_texts[] = "-";

/* Each rank writes its own note, which has cache lines of its own. */
struct note {
	_Alignas(64) struct post written; /* the last exchange's number, from 1 */
	_Atomic uint32_t locked;          /* it has its lock, or had it */
	char text[BOOT_TEXT_BYTES];
};

struct pmix_boot {
	/* The board lies behind the host's memory.  It has two notes for each local
	 * rank, used in turn, since a quick rank may write the next while others read.
	 * A job of one host needs no more. */
	struct note *board;
	size_t board_bytes;
	int memory;    /* a lock on its byte LOCK_AT + LOCAL_RANK says: */
	off_t lock_at; /* the rank is alive */
	bool has_met;  /* it came to the fence with the other hosts */
};

/* ---- cards ---- */

/* The job's key, as all ranks are told of it. */
struct secret {
	unsigned char key[BOOT_KEY_BYTES]; /* made by rank 0 */
	char text[SECRET_BYTES];           /* in its card */
	char credential[MUNGE_TEXT_BYTES]; /* of KEY */
	bool munge_works;                  /* on all ranks, as the cards say */
};

static void key_write(char *text, const unsigned char *key)
{
	for (size_t i = 0; i < BOOT_KEY_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", key[i]);
}

static bool key_read(const char *text, unsigned char *key)
{
	unsigned byte;

	if (strlen(text) != 2 * BOOT_KEY_BYTES)
		return false;
	for (size_t i = 0; i < BOOT_KEY_BYTES; i++) {
		if (sscanf(text + 2 * i, "%2x", &byte) != 1)
			return false;
		key[i] = (unsigned char)byte;
	}
	return true;
}

/* The other ranks seal zeros, which shows whether MUNGE works.  Rank 0 without random
 * numbers has no secret, so that no rank joins. */
static void secret_make(struct secret *s, unsigned rank)
{
	snprintf(s->text, sizeof s->text, "-");
	if (rank == 0 && getrandom(s->key, sizeof s->key, 0) != sizeof s->key)
		return;
	if (munge_seal(s->key, s->credential))
		snprintf(s->text, sizeof s->text, MUNGE_WORKS);
	else if (rank == 0)
		key_write(s->text, s->key);
}

/* Takes the cards that all ranks published as KEY.  W gets the job's key if rank 0's
 * card has it. */
static berth_result take_cards(const char *key, struct boot_card *c,
			       struct boot_world *w, struct secret *s, char *why)
{
	berth_result rc = BERTH_OK;

	s->munge_works = true;
	for (unsigned r = 0; !rc && r < w->size; r++) {
		char *text, secret[SECRET_BYTES] = "";
		size_t size;
		bool works;

		rc = pmix_client_get(r, key, &text, &size, why, BOOT_WHY_BYTES);
		if (!rc && sscanf(text, CARD_FORMAT, c[r].host, c[r].machine,
				  c[r].socket, secret) != 4)
			rc = BERTH_SYSTEM;
		works = !strcmp(secret, MUNGE_WORKS);
		s->munge_works = s->munge_works && works;
		if (!r)
			w->key_in_clear = !works;
		if (!rc && !r && !works && !key_read(secret, w->key))
			rc = BERTH_SYSTEM;
		explicit_bzero(secret, sizeof secret);
		free(text);
	}
	return rc;
}

/* Publishes and takes the job's key, which was not in rank 0's card. */
static berth_result take_key(const char *key, struct boot_world *w, struct secret *s,
			     char *why)
{
	char *text = NULL, reason[BOOT_WHY_BYTES] = "it is no key";
	berth_result rc = BERTH_OK;
	size_t size;
	bool good;

	key_write(s->text, s->key);
	if (w->rank == 0)
		rc = s->munge_works ? pmix_client_publish(key, s->credential,
							  strlen(s->credential) + 1,
							  why, BOOT_WHY_BYTES)
				    : pmix_client_publish(key, s->text, sizeof s->text,
							  why, BOOT_WHY_BYTES);
	if (!rc)
		rc = pmix_client_fence(true, GO_ON_S, why, BOOT_WHY_BYTES);
	if (!rc)
		rc = pmix_client_get(0, key, &text, &size, why, BOOT_WHY_BYTES);
	if (rc)
		return rc;
	good = s->munge_works ? munge_open(text, w->key, reason)
			      : key_read(text, w->key);
	w->key_in_clear = !s->munge_works;
	explicit_bzero(text, size);
	free(text);
	if (good)
		return BERTH_OK;
	snprintf(why, BOOT_WHY_BYTES, "the job's key, as rank 0 published it: %.440s",
		 reason);
	return BERTH_NO_PEERS;
}

/* The first joining: all ranks show their cards.  W has rank and size. */
static berth_result pmix_meet(struct boot_world *w, char *why)
{
	struct boot_card mine, *cards = calloc(w->size, sizeof *cards);
	char text[BOOT_TEXT_BYTES], key[64];
	struct secret secret = { 0 };
	berth_result rc = cards ? BERTH_OK : boot_out_of_memory(why);

	boot_card_fill(&mine, getenv("PMIX_HOSTNAME"));
	job.listener = handoff_listen(mine.socket);
	if (!rc && job.listener < 0) {
		snprintf(why, BOOT_WHY_BYTES, "no socket for the ranks of this host");
		rc = BERTH_SYSTEM;
	}
	secret_make(&secret, w->rank);
	snprintf(text, sizeof text, "%s %s %s %s", mine.host, mine.machine, mine.socket,
		 secret.text);
	snprintf(key, sizeof key, "berth.card.%u", job.attempts);
	if (!rc)
		rc = pmix_client_publish(key, text, strlen(text) + 1, why,
					 BOOT_WHY_BYTES);
	if (!rc)
		rc = pmix_client_fence(true, COME_S, why, BOOT_WHY_BYTES);
	if (!rc)
		rc = take_cards(key, cards, w, &secret, why);
	snprintf(key, sizeof key, "berth.key.%u", job.attempts++);
	if (!rc && !w->key_in_clear)
		rc = take_key(key, w, &secret, why);
	if (!rc) {
		boot_out_of_memory(why);
		job.first = calloc(w->size, sizeof *job.first);
		rc = job.first ? boot_cards_settle(w, cards, job.first) : BERTH_MEMORY;
	}
	if (!rc) /* the rank that makes this host's memory */
		memcpy(job.maker, cards[job.first[w->host[w->rank]]].socket,
		       sizeof job.maker);
	if (rc == BERTH_SYSTEM && job.listener >= 0)
		snprintf(why, BOOT_WHY_BYTES, "what a rank told of itself is no card");
	explicit_bzero(text, sizeof text);
	explicit_bzero(&secret, sizeof secret);
	free(cards);
	return rc;
}

/* ---- joining ---- */

/* Copies FROM into W, for the caller. */
static berth_result copy_world(struct boot_world *w, const struct boot_world *from,
			       char *why)
{
	bool whole;

	*w = *from;
	w->host = malloc(w->size * sizeof *w->host);
	w->host_name = calloc(w->hosts, sizeof *w->host_name);
	whole = w->host && w->host_name;
	if (w->host)
		memcpy(w->host, from->host, w->size * sizeof *w->host);
	for (unsigned h = 0; whole && h < w->hosts; h++) {
		w->host_name[h] = strdup(from->host_name[h]);
		whole = w->host_name[h];
	}
	if (whole)
		return BERTH_OK;
	boot_world_free(w);
	return boot_out_of_memory(why);
}

static void exchange_key(char *key, size_t bytes)
{
	snprintf(key, bytes, "berth.%u", job.exchanges);
}

/* The other ranks of its host see that it lets go of its lock. */
static void pmix_leave(void *state)
{
	char why[BOOT_WHY_BYTES], key[64];
	struct pmix_boot *b = state;

	if (b->board)
		munmap(b->board, b->board_bytes);
	if (b->memory >= 0)
		close(b->memory);
	/* The other hosts hear at once that this one has no texts for them, in place of
	 * waiting for it. */
	if (!b->has_met && job.w.hosts > 1) {
		exchange_key(key, sizeof key);
		if (job.w.local_rank == 0)
			pmix_client_publish(key, no_texts, strlen(no_texts), why,
					    sizeof why);
		pmix_client_fence(true, GO_ON_S, why, sizeof why);
	}
	free(b);
}

/* torchrun under srun: several processes have the PMIx rank of their parent. */
static bool is_all(unsigned size, char *why)
{
	const char *text = getenv("WORLD_SIZE");
	long n = text ? strtol(text, NULL, 10) : 0;

	if (n < 2 || n == (long)size)
		return true;
	snprintf(why, BOOT_WHY_BYTES,
		 "WORLD_SIZE=%ld says that torchrun or a script started %ld processes, "
		 "but the PMIx server knows of %u; start it with runner",
		 n, n, size);
	return false;
}

static berth_result pmix_join(void **state, struct boot_world *w,
			      const struct berth_bootstrap *given, char *why)
{
	struct boot_world found = { .memory = -1 };
	struct pmix_boot *b;
	berth_result rc;

	(void)given;
	*w = found;
	rc = pmix_client_open(&found.rank, &found.size, why, BOOT_WHY_BYTES);
	if (!rc && !is_all(found.size, why))
		rc = BERTH_NO_PEERS;
	if (rc)
		return rc;
	if (job.w.size) {
		rc = pmix_client_fence(false, COME_S, why, BOOT_WHY_BYTES);
	} else {
		rc = pmix_meet(&found, why);
		job.w = found;
		if (rc) {
			boot_world_free(&job.w);
			free(job.first);
			job.first = NULL;
			if (job.listener >= 0)
				close(job.listener);
			job.listener = -1;
		}
	}
	if (!rc && job.listener >= 0 && job.w.local_rank != 0) {
		close(job.listener); /* the maker's alone is used */
		job.listener = -1;
	}
	job.exchanges++; /* whether this rank gets there or not */
	if (!rc)
		rc = copy_world(w, &job.w, why);
	w->epoch = job.exchanges;
	b = rc ? NULL : calloc(1, sizeof *b);
	if (b) {
		b->memory = -1;
		*state = b;
	} else if (!rc) {
		boot_world_free(w);
		rc = boot_out_of_memory(why);
	}
	return rc;
}

/* ---- memory ---- */

/* TAKE: takes byte LOCAL of the lock, or returns -1.  Else: does another process hold
 * it?  0: nobody does. */
static int pmix_lock(const struct pmix_boot *b, unsigned local, bool take)
{
	struct flock l = { .l_type = F_WRLCK,
			   .l_whence = SEEK_SET,
			   .l_start = b->lock_at + local,
			   .l_len = 1 };

	if (fcntl(b->memory, take ? F_SETLK : F_GETLK, &l))
		return -1;
	return take || l.l_type != F_UNLCK;
}

/* Maps the board, at AT of W's memory, and lets all see that this rank lives. */
static berth_result open_board(struct pmix_boot *b, const struct boot_world *w,
			       off_t at, char *why)
{
	void *board = mmap(NULL, b->board_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			   w->memory, at);

	if (board == MAP_FAILED)
		return boot_out_of_memory(why);
	b->board = board;
	b->lock_at = at;
	b->memory = fcntl(w->memory, F_DUPFD_CLOEXEC, 0);
	if (b->memory < 0 || pmix_lock(b, w->local_rank, true) < 0) {
		snprintf(why, BOOT_WHY_BYTES, "no lock on this host's memory: %s",
			 strerror(errno));
		return BERTH_SYSTEM;
	}
	for (unsigned turn = 0; turn < 2; turn++)
		b->board[turn * w->local_size + w->local_rank].locked = 1;
	return BERTH_OK;
}

static berth_result pmix_memory(void *state, struct boot_world *w, size_t bytes,
				char *why)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t board_at = (bytes + page - 1) / page * page;
	const uint64_t until_ns = clock_until(HAND_S * 1000);
	struct pmix_boot *b = state;
	berth_result rc;
	size_t all;

	b->board_bytes = (size_t)2 * w->local_size * sizeof *b->board;
	all = board_at + b->board_bytes;
	if (w->local_rank != 0) {
		rc = handoff_take(job.maker, all, until_ns, &w->memory, why,
				  BOOT_WHY_BYTES);
	} else {
		w->memory = boot_memfd(all, why);
		rc = w->memory < 0
			     ? BERTH_SYSTEM
			     : handoff_give(job.listener, w->local_size - 1, w->memory,
					    until_ns, why, BOOT_WHY_BYTES);
	}
	if (!rc)
		rc = open_board(b, w, (off_t)board_at, why);
	w->memory_bytes = rc ? 0 : bytes;
	w->clock_offset_ns = (int64_t)(clock_read(CLOCK_REALTIME) - clock_ns());
	return rc;
}

/* ---- texts ---- */

/* The texts of some ranks, one behind the other, each with its NUL. */
struct block {
	char *bytes;
	size_t size, at; /* of the next one to be read */
};

/* A wait for local rank LOCAL, which ends when that rank ends. */
struct watch {
	const struct pmix_boot *b;
	const struct note *note;
	unsigned local;
	_Atomic uint64_t broken;
};

static void pmix_look(void *ctx)
{
	struct watch *h = ctx;

	if (h->note->locked && pmix_lock(h->b, h->local, false) == 0)
		h->broken = BERTH_PEER_LOST;
}

/* Gets the texts that this host's ranks write on its board. */
static berth_result own_block(struct block *k, const struct pmix_boot *b,
			      struct note *note, const struct boot_world *w, char *why)
{
	k->bytes = malloc((size_t)w->local_size * sizeof note->text);
	if (!k->bytes)
		return boot_out_of_memory(why);
	for (unsigned i = 0, r = 0; i < w->local_size; i++, r++) {
		struct watch h = { .b = b, .note = &note[i], .local = i };
		struct wait wait = { .yields = 20,
				     .broken = &h.broken,
				     .idle = pmix_look,
				     .ctx = &h,
				     .deadline_ns = clock_until(GO_ON_S * 1000) };
		berth_result rc = wait_for(&wait, &note[i].written, job.exchanges);
		size_t length = strnlen(note[i].text, sizeof note[i].text - 1);

		while (w->host[r] != w->host[w->rank])
			r++; /* to the rank of the job that is local rank I here */
		if (rc) {
			snprintf(why, BOOT_WHY_BYTES,
				 "rank %u on '%s' %s before all ranks had joined", r,
				 w->host_name[w->host[w->rank]],
				 rc == BERTH_TIMEOUT ? "was silent" : "ended");
			return rc;
		}
		memcpy(k->bytes + k->size, note[i].text, length);
		k->bytes[k->size + length] = '\0';
		k->size += length + 1;
	}
	return BERTH_OK;
}

/* Gets the texts of the other hosts, from their first ranks.  K[MINE] has those of
 * ours. */
static berth_result other_blocks(struct pmix_boot *b, struct block *k,
				 const struct boot_world *w, unsigned mine, char *why)
{
	berth_result rc = BERTH_OK;
	char key[64];

	exchange_key(key, sizeof key);
	if (w->local_rank == 0)
		rc = pmix_client_publish(key, k[mine].bytes, k[mine].size, why,
					 BOOT_WHY_BYTES);
	b->has_met = true;
	if (!rc)
		rc = pmix_client_fence(true, GO_ON_S, why, BOOT_WHY_BYTES);
	for (unsigned h = 0; !rc && h < w->hosts; h++) {
		if (h == mine)
			continue;
		rc = pmix_client_get(job.first[h], key, &k[h].bytes, &k[h].size, why,
				     BOOT_WHY_BYTES);
		if (rc == BERTH_MEMORY ||
		    (!rc && k[h].size && !k[h].bytes[k[h].size - 1]))
			continue;
		snprintf(why, BOOT_WHY_BYTES,
			 "a rank on '%s' ended before all ranks had joined",
			 w->host_name[h]);
		rc = BERTH_PEER_LOST;
	}
	return rc;
}

/* Puts the texts of all ranks into one block.  NULL: out of memory. */
static char **in_order(struct block *k, const struct boot_world *w)
{
	size_t bytes = w->size * (sizeof(char *) + 1);
	char **all, *at;

	for (unsigned h = 0; h < w->hosts; h++)
		bytes += k[h].size;
	all = malloc(bytes);
	at = all ? (char *)(all + w->size) : NULL;
	for (unsigned r = 0; all && r < w->size; r++) {
		struct block *from = &k[w->host[r]];

		all[r] = at;
		*at = '\0';
		if (from->at < from->size) /* as it is, unless a rank lies */
			at = stpcpy(at, from->bytes + from->at);
		at++;
		from->at += strlen(all[r]) + 1;
	}
	return all;
}

static berth_result pmix_fence(void *state, struct boot_world *w, const char *mine,
			       const struct boot_patience *patience, char ***all,
			       char *why)
{
	struct block *k = calloc(w->hosts, sizeof *k);
	struct pmix_boot *b = state;
	unsigned host = w->host[w->rank];
	struct note *note = b->board + job.exchanges % 2 * w->local_size;
	berth_result rc;

	(void)patience; /* COME_S, GO_ON_S */
	if (!k)
		return boot_out_of_memory(why);
	snprintf(note[w->local_rank].text, sizeof note->text, "%s", mine);
	post(&note[w->local_rank].written, job.exchanges);
	rc = own_block(&k[host], b, note, w, why);
	if (!rc && w->hosts > 1)
		rc = other_blocks(b, k, w, host, why);
	*all = rc ? NULL : in_order(k, w);
	for (unsigned h = 0; h < w->hosts; h++)
		free(k[h].bytes);
	free(k);
	return rc || *all ? rc : boot_out_of_memory(why);
}

const struct boot boot_pmix = {
	.name = "PMIx",
	.seen = pmix_client_seen,
	.join = pmix_join,
	.memory = pmix_memory,
	.fence = pmix_fence,
	.leave = pmix_leave,
	.fixed =
		"a job that PMIx knows keeps its ranks: its server would wait for "
		"those "
		"that are gone; give berth_change() a bootstrap, or start the job with "
		"runner",
};
