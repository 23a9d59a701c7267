#include "launcher/hosts/allocation_load.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include "common/file.h"
#include "launcher/hosts/slurm_gpus.h"
#include "launcher/transport/child.h"
#include "launcher/transport/lookup.h"

enum { TEXT_MAX_BYTES = 64 << 20, PROGRAM_MS = 10000 };

/* ---- texts ---- */

static int load_read_text(struct str *text, const struct allocation *a, struct err *e)
{
	const char *why = NULL;

	if (file_read(text, a->value, TEXT_MAX_BYTES + 1, false))
		why = strerror(errno);
	else if (text->len > TEXT_MAX_BYTES)
		why = strerror(EFBIG);
	else if (text->len && memchr(text->s, '\0', text->len))
		why = "not a text file";
	if (!why)
		return 0;
	err_set(e, E_ALLOCATION_READ, a->name, a->value, why);
	return err_in(e, "%s", a->hosts_from);
}

/* All that comes from SOCK until its end.  0, or -1 with the reason in errno. */
static int read_answer(struct str *text, int sock)
{
	const uint64_t deadline_ms = clock_ms() + PROGRAM_MS;
	struct pollfd in = { .fd = sock, .events = POLLIN };
	char bytes[4096];
	ssize_t n = 1;

	while (n) {
		const uint64_t now = clock_ms();

		if (now >= deadline_ms || text->len > TEXT_MAX_BYTES) {
			errno = now >= deadline_ms ? ETIMEDOUT : EFBIG;
			return -1;
		}
		if (poll(&in, 1, (int)(deadline_ms - now)) <= 0)
			continue;
		n = read(sock, bytes, sizeof bytes);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return -1;
		if (n > 0)
			str_addn(text, bytes, (size_t)n);
	}
	return 0;
}

/* Reads what the command ARGV says of the job of A.  A message calls it COMMAND. */
static int load_ask(struct str *text, const struct allocation *a, char *const *argv,
		    char *const *env, const char *command, struct err *e)
{
	int sock, rc = -1;
	struct child *c = child_lend(argv[0], argv, env, &sock);

	if (c) {
		rc = read_answer(text, sock);
		close(sock);
		child_return(c);
	}
	if (rc)
		return err_set(e, E_ALLOCATION_READ, a->name, command, strerror(errno));
	if (!text->len || memchr(text->s, '\0', text->len))
		return err_set(e, E_ALLOCATION_READ, a->name, command,
			       "it names no hosts");
	return 0;
}

static int ask_slurm(struct str *text, const struct allocation *a, char *const *env,
		     struct err *e)
{
	char *argv[] = { (char[]){ "scontrol" },  (char[]){ "show" }, (char[]){ "job" },
			 (char[]){ "--details" }, xstrdup(a->job_id), NULL };
	int rc = load_ask(text, a, argv, env, "`scontrol show job --details`", e);

	free(argv[4]);
	return rc;
}

/* slurm_gpus_any_option() of the Slurm here. */
static const char *ask_version(const struct allocation *a, char *const *env)
{
	char *argv[] = { (char[]){ "scontrol" }, (char[]){ "--version" }, NULL };
	struct str text = { 0 };
	const char *option = NULL;

	if (!load_ask(&text, a, argv, env, "`scontrol --version`", NULL))
		option = slurm_gpus_any_option(text.s);
	str_free(&text);
	return option;
}

int allocation_load(struct allocation *a, char *const *env, struct err *e)
{
	/* the hosts of a Flux instance, in the order of its brokers: no variable has
	 * them */
	char *flux[] = { (char[]){ "flux" }, (char[]){ "getattr" },
			 (char[]){ "hostlist" }, NULL };
	struct str text = { 0 };
	int rc = 0;

	if (a->text == ALLOCATION_FILE)
		rc = load_read_text(&text, a, e);
	else if (a->text == ALLOCATION_PROGRAM)
		rc = load_ask(&text, a, flux, env, "`flux getattr hostlist`", e);
	if (!rc)
		rc = allocation_read(a, env, str_text(&text), e);
	str_free(&text);
	return rc;
}

int allocation_load_gpus(char **option, bool *own_gpus, const struct allocation *a,
			 char *const *env, struct err *e)
{
	const bool differ = slurm_gpus_differ(env);
	const char *any = differ ? ask_version(a, env) : NULL;
	int *gpus = xcalloc(a->hosts.n, sizeof *gpus);
	struct str text = { 0 };
	int rc = 0;

	*own_gpus = differ && !any;
	if (*own_gpus && !(rc = ask_slurm(&text, a, env, e)))
		slurm_gpus_read(gpus, &a->hosts, str_text(&text));
	for (size_t i = 0; i < a->hosts.n && !rc; i++)
		option[i] = any       ? xstrdup(any)
			    : !differ ? slurm_gpus_option(env)
			    : gpus[i] ? xasprintf("--gpus=%d", gpus[i])
				      : NULL;
	str_free(&text);
	free(gpus);
	return rc;
}

void allocation_load_config(struct str *text, const struct allocation *a,
			    char *const *env)
{
	char *argv[] = { (char[]){ "scontrol" }, (char[]){ "show" },
			 (char[]){ "config" }, NULL };

	if (load_ask(text, a, argv, env, "`scontrol show config`", NULL))
		str_free(text);
}

/* ---- addresses ---- */

struct place {
	struct sockaddr_storage addr; /* zero: this machine */
	size_t at;
};

struct places {
	struct place *v;
	size_t n;
};

static int by_address(const void *a, const void *b)
{
	return memcmp(&((const struct place *)a)->addr,
		      &((const struct place *)b)->addr,
		      sizeof(struct sockaddr_storage));
}

/* The addresses of one host; all of this machine's are one. */
static void add_places(struct places *p, const struct lookup_answer *found, size_t at)
{
	p->v = xreallocarray(p->v, p->n + found->naddr + 1, sizeof *p->v);
	for (size_t i = 0; i < found->naddr; i++) {
		struct place *place = &p->v[p->n];

		memset(place, 0, sizeof *place);
		place->at = at;
		if (!found->is_local)
			place->addr = found->addr[i];
		p->n++;
		if (found->is_local)
			return;
	}
}

void allocation_match_addresses(size_t *at, const struct hosts *asked,
				const struct allocation *a, uint64_t deadline_ms)
{
	const size_t n = a->hosts.n + asked->n;
	struct lookup_answer *found = xcalloc(n, sizeof *found);
	const char **names = xcalloc(n, sizeof *names);
	struct places known = { 0 };

	for (size_t i = 0; i < n; i++)
		names[i] = i < a->hosts.n ? a->hosts.v[i].name
					  : asked->v[i - a->hosts.n].name;
	lookup_all(found, names, n, deadline_ms);
	for (size_t i = 0; i < a->hosts.n; i++)
		add_places(&known, &found[i], i);
	if (known.n)
		qsort(known.v, known.n, sizeof *known.v, by_address);
	for (size_t i = 0; i < asked->n; i++) {
		struct places own = { 0 };

		if (at[i] == SIZE_MAX)
			add_places(&own, &found[a->hosts.n + i], i);
		for (size_t k = 0; k < own.n && at[i] == SIZE_MAX && known.n; k++) {
			const struct place *same = bsearch(&own.v[k], known.v, known.n,
							   sizeof *known.v, by_address);

			if (same)
				at[i] = same->at;
		}
		free(own.v);
	}
	for (size_t i = 0; i < n; i++)
		free(found[i].addr);
	free(found);
	free(names);
	free(known.v);
}
