/* The srun transport: agents in a job of Slurm, started by srun, which call back.
 *
 * The hosts whose agents are started in one turn of the loop get one step.  srun's
 * stdin carries `call` to its tasks; an agent then connects to the door (callback.h),
 * and its stream is that connection.  Only a host that has not called fails with srun:
 * an agent that has called is lost with its connection.
 *
 * The step starts runner's own agent where it is, if no other user can put a program
 * there.  Hosts where that fails say so, and get a copy of it in a second step. */
#include <errno.h>
#include <event2/event.h>
#include <unistd.h>

#include "common/file.h"
#include "common/key.h"
#include "common/loop.h"
#include "common/munge.h"
#include "common/wire.h"
#include "launcher/transport/agent_install.h"
#include "launcher/transport/callback.h"
#include "launcher/transport/child.h"
#include "launcher/transport/srun_command.h"

enum { SAID_LINE_MAX = 4096, CONF_BYTES = 1 << 20, STEP_TRIES = 4, AGAIN_MS = 200 };

struct step;

struct conn {
	const struct transport_setup *setup;
	const struct target *target;
	const struct transport_events *events;
	void *ctx;
	struct conn *next; /* in the gate's list, while it is awaited */
	struct step *step; /* NULL: it is to be started in the next turn */
	bool copy;         /* the agent is to be sent there */
	int tries;         /* steps that failed */
	struct sealed *stream;
	struct event *deadline;
	struct event *failed; /* tells ERR from the loop */
	struct err err;
};

/* One srun, as long as it runs or an agent of it does. */
struct step {
	struct child *srun; /* NULL: it has ended */
	size_t users;       /* connections that began in it */
	struct buf call;    /* for srun's stdin */
	struct str line;    /* of srun's stdout, yet without an end */
	char *words;        /* what srun said before it ended */
	int status;
};

/* The state that awaits calls, as long as any agent is awaited. */
static struct {
	struct event_base *base;
	struct event *wake;
	struct conn *first, **last;
	struct callback *door;
	struct strv addresses;
	unsigned char key[KEY_BYTES];
} gate;

/* How the key comes to agents; until that is chosen, by MUNGE alone. */
static struct {
	bool clear;
	char *socket;  /* munged's, or NULL for the usual one */
	char how[256]; /* for --connect=HOW */
} way = { .how = "munge" };

/* ---- the door ---- */

static void on_called(void *ctx, const char *host, struct sealed *s, const void *rest,
		      size_t n);

static void read_conf(struct str *conf)
{
	const char *const paths[] = { getenv("SLURM_CONF"), "/etc/slurm/slurm.conf",
				      "/run/slurm/conf/slurm.conf" };

	for (size_t i = 0; i < sizeof paths / sizeof *paths && !conf->len; i++)
		if (paths[i])
			file_read(conf, paths[i], CONF_BYTES, true);
}

static int open_gate(const struct transport_setup *setup, struct err *e)
{
	unsigned first = 0, last = 0;
	struct str conf = { 0 };

	if (gate.door)
		return 0;
	if (key_init())
		return err_set(e, E_SYSTEM, "libsodium", "it cannot be initialised");
	key_random(gate.key);
	read_conf(&conf);
	if (!srun_port_range(str_text(&conf), &first, &last))
		first = last = 0;
	str_free(&conf);
	callback_addresses(&gate.addresses, setup->net, setup->nnet);
	if (!gate.addresses.n)
		return err_set(e, E_SRUN_ADDRESS);
	gate.door =
		callback_open(setup->base, gate.key, first, last, on_called, NULL, e);
	return gate.door ? 0 : -1;
}

/* C has called, or failed. */
static void await_no_more(struct conn *c)
{
	struct conn **at = &gate.first;

	while (*at && *at != c)
		at = &(*at)->next;
	if (!*at)
		return;
	*at = c->next;
	for (gate.last = &gate.first; *gate.last;)
		gate.last = &(*gate.last)->next;
	if (gate.first)
		return;
	if (gate.door)
		callback_close(gate.door);
	gate.door = NULL;
	strv_free(&gate.addresses);
	explicit_bzero(gate.key, sizeof gate.key);
	event_free(gate.wake);
	gate.wake = NULL;
	gate.base = NULL;
}

/* ---- steps ---- */

static void step_leave(struct conn *c)
{
	struct step *s = c->step;

	c->step = NULL;
	if (!s || --s->users)
		return;
	if (s->srun && !c->stream)
		child_stop(s->srun); /* maybe it waits for room in the job */
	else if (s->srun)
		child_close(s->srun); /* it ends after the agents */
	buf_free(&s->call);
	str_free(&s->line);
	free(s->words);
	free(s);
}

static const char *step_words(struct step *s)
{
	if (s && s->srun) {
		free(s->words);
		s->words = srun_words(child_said(s->srun));
	}
	return s && s->words ? s->words : "";
}

static void srun_on_failed(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;
	struct transport_end end = { .err = c->err, .status = -1, .said = "" };

	(void)fd;
	(void)what;
	c->events->ended(c->ctx, &end); /* may free C */
}

/* C's agent cannot be started: ended() says c->err in a later turn. */
static void srun_fail(struct conn *c)
{
	await_no_more(c);
	event_del(c->deadline);
	if (!c->failed)
		c->failed = event_new(c->setup->base, -1, 0, srun_on_failed, c);
	event_active(c->failed, EV_TIMEOUT, 0);
}

static void fail_with_srun(struct conn *c)
{
	const char *words = step_words(c->step);

	err_set(&c->err, E_SRUN, c->target->name, c->step->status,
		*words ? words : "it said nothing");
	srun_fail(c);
}

/* Where the step's script or its agent could not go on. */
static void start_again(struct step *s, const char *host)
{
	for (struct conn *c = gate.first; c; c = c->next) {
		if (c->step != s || strcmp(c->target->node, host))
			continue;
		if (c->copy || c->setup->no_push || c->setup->agent) {
			err_set(&c->err, E_SRUN_AGENT, c->target->name,
				c->setup->agent ? c->setup->agent
						: c->setup->own_agent);
			srun_fail(c);
			return;
		}
		c->copy = true;
		step_leave(c);
		loop_after_ms(gate.wake, 0);
		return;
	}
}

static void on_srun_bytes(void *ctx, const void *data, size_t n)
{
	struct step *s = ctx;
	const char *p = data, *end = p + n;

	for (; p < end; p++) {
		const char *host;

		if (*p != '\n') {
			if (s->line.len < SAID_LINE_MAX)
				str_addn(&s->line, p, 1);
			continue;
		}
		host = srun_again(str_text(&s->line));
		s->users++; /* S stays while hosts leave it */
		if (host)
			start_again(s, host);
		str_free(&s->line);
		if (!--s->users) {
			child_stop(s->srun);
			buf_free(&s->call);
			free(s->words);
			free(s);
			return;
		}
	}
}

static void on_srun_writable(void *ctx)
{
	struct step *s = ctx;
	size_t n;

	while (s->call.len) {
		n = child_send(s->srun, buf_head(&s->call), s->call.len);
		if (!n)
			return;
		buf_drop(&s->call, n);
	}
}

/* Hosts that have called do not need srun.  Of several steps that begin at one time,
 * Slurm 22.05 fails some ("Unspecified error", in 1 of 10 rounds of 4). */
static void on_srun_ended(void *ctx, const struct transport_end *end)
{
	struct step *s = ctx;

	s->status = end->status;
	step_words(s);
	child_close(s->srun);
	s->srun = NULL;
	for (struct conn *c = gate.first, *next; c; c = next) {
		next = c->next;
		if (c->step == s && c->target->own_gpus && c->tries < STEP_TRIES) {
			step_leave(c);
			c->tries++;
			loop_after_ms(gate.wake, AGAIN_MS);
		} else if (c->step == s) {
			fail_with_srun(c);
		}
	}
}

/* All that an agent acts on is in the credential: srun's stdin is plain TCP. */
static int pack_call(struct buf *out, const struct transport_setup *setup, bool copy,
		     struct err *e)
{
	const struct wire_door d = {
		.key = { gate.key, sizeof gate.key },
		.addresses = { (const char *const *)gate.addresses.v,
			       gate.addresses.n },
		.port = callback_port(gate.door),
		.within_ms = (uint32_t)transport_left_ms(setup),
		.copy = copy
	};
	struct wire_call m = { .version = BERTH_VERSION, .wire = WIRE_VERSION };
	struct buf door = { 0 };
	struct str why = { 0 };
	char *credential = NULL;

	wire_pack_door(&door, &d);
	m.door = (wire_bytes){ buf_head(&door), door.len };
	if (!way.clear) {
		credential = munge_wrap(way.socket, buf_head(&door), door.len, &why);
		m.door =
			(wire_bytes){ credential, credential ? strlen(credential) : 0 };
	}
	if (way.clear || credential)
		wire_pack_call(out, &m);
	else
		err_set(e, E_SRUN_MUNGE, str_text(&why));
	explicit_bzero(door.data, door.cap);
	buf_free(&door);
	str_free(&why);
	free(credential);
	return out->len ? 0 : -1;
}

/* One step for the hosts C[0..N), which need the same. */
static void start_step(struct conn *const *c, size_t n)
{
	static const struct transport_events events = { on_srun_bytes, on_srun_writable,
							on_srun_ended };
	const struct transport_setup *setup = c[0]->setup;
	struct step *s = xcalloc(1, sizeof *s);
	const char **names = xcalloc(n, sizeof *names);
	unsigned char random[KEY_BYTES];
	char copy[sizeof "/tmp/berth-agent-" + 2 * sizeof random] = "/tmp/berth-agent-";
	struct strv argv = { 0 }, env = { 0 };
	struct srun_step step = { .hosts = names,
				  .n = n,
				  .het_group = c[0]->target->het_group,
				  .gpus = c[0]->target->gpus,
				  .agent = setup->agent ? setup->agent
							: setup->own_agent,
				  .any_owner = setup->agent,
				  .copy = c[0]->copy ? copy : NULL,
				  .how = way.how };
	struct err e;

	/* a name that no other user of the hosts knows beforehand */
	key_random(random);
	str_hex(copy + strlen(copy), random, sizeof random);
	s->users = n;
	for (size_t i = 0; i < n; i++) {
		names[i] = c[i]->target->node;
		c[i]->step = s;
	}
	srun_argv(&argv, &step);
	srun_environment(&env, environ);
	if (pack_call(&s->call, setup, c[0]->copy, &e)) {
		for (size_t i = 0; i < n; i++) {
			c[i]->err = e;
			srun_fail(c[i]);
		}
	} else if ((s->srun = child_start(
			    gate.base, argv.v[0], argv.v,
			    &(struct child_how){ .env = env.v, .bound = true }, &events,
			    s))) {
		on_srun_writable(s);
	} else {
		s->status = 127;
		s->words = xstrdup(strerror(errno));
		for (size_t i = 0; i < n; i++)
			fail_with_srun(c[i]);
	}
	free(names);
	strv_free(&argv);
	strv_free(&env);
}

static bool one_step(const struct conn *a, const struct conn *b)
{
	return a->copy == b->copy && a->setup == b->setup && !a->target->own_gpus &&
	       a->target->het_group == b->target->het_group;
}

/* All that are to be started, a step for those that need the same. */
static void srun_on_wake(evutil_socket_t fd, short what, void *ctx)
{
	struct conn **v, *c, *next;
	size_t all = 0, n;

	(void)fd;
	(void)what;
	(void)ctx;
	for (c = gate.first; c; c = c->next)
		all++;
	v = xcalloc(all ? all : 1, sizeof *v);
	for (;;) {
		for (c = gate.first, n = 0; c; c = c->next)
			if (!c->step && (!n || one_step(c, v[0])))
				v[n++] = c;
		if (!n)
			break;
		if (open_gate(v[0]->setup, &v[0]->err)) {
			for (c = gate.first; c; c = next) {
				next = c->next;
				if (c != v[0])
					c->err = v[0]->err;
				srun_fail(c);
			}
			break;
		}
		callback_expect(gate.door, all);
		start_step(v, n);
	}
	free(v);
}

/* ---- the stream of one agent ---- */

static void srun_on_bytes(void *ctx, const void *data, size_t n)
{
	struct conn *c = ctx;

	c->events->bytes(c->ctx, data, n);
}

static void srun_on_writable(void *ctx)
{
	struct conn *c = ctx;

	c->events->writable(c->ctx);
}

static void srun_on_ended(void *ctx, const struct transport_end *end)
{
	struct conn *c = ctx;
	struct transport_end how = *end;

	how.said = step_words(c->step);
	c->events->ended(c->ctx, &how);
}

static void on_called(void *ctx, const char *host, struct sealed *s, const void *rest,
		      size_t n)
{
	static const struct transport_events events = { srun_on_bytes, srun_on_writable,
							srun_on_ended };
	struct conn *c = gate.first;

	(void)ctx;
	while (c && (!c->step || strcmp(c->target->node, host)))
		c = c->next;
	if (!c) { /* it has called, or is not awaited any more */
		sealed_close(s);
		return;
	}
	c->stream = s;
	sealed_hand(s, &events, c);
	event_del(c->deadline);
	await_no_more(c);
	if (n)
		c->events->bytes(c->ctx, rest, n);
}

static void srun_on_deadline(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;
	struct str text = { 0 };
	const char *words;

	(void)fd;
	(void)what;
	if (!transport_is_late(c->setup, c->deadline))
		return;
	str_add(&text, "nothing called ");
	for (size_t i = 0; i < gate.addresses.n; i++)
		str_addf(&text, "%s%s", i ? ", " : "", gate.addresses.v[i]);
	if (gate.door)
		str_addf(&text, " at port %u", callback_port(gate.door));
	words = step_words(c->step);
	if (*words)
		str_addf(&text, "; srun says '%s'", words);
	err_set(&c->err, E_START_TIMEOUT, c->target->name, str_text(&text));
	str_free(&text);
	srun_fail(c);
}

static struct conn *srun_start(const struct transport_setup *setup,
			       const struct target *t,
			       const struct transport_events *events, void *ctx)
{
	struct conn *c = xcalloc(1, sizeof *c);

	*c = (struct conn){ .setup = setup, .target = t, .events = events, .ctx = ctx };
	c->deadline = event_new(setup->base, -1, 0, srun_on_deadline, c);
	loop_after_ms(c->deadline, transport_left_ms(setup));
	if (!gate.wake) {
		gate.base = setup->base;
		gate.wake = event_new(setup->base, -1, 0, srun_on_wake, NULL);
	}
	if (!gate.first)
		gate.last = &gate.first;
	*gate.last = c;
	gate.last = &c->next;
	loop_after_ms(gate.wake, 0);
	return c;
}

static size_t srun_send(struct conn *c, const void *data, size_t n)
{
	return c->stream ? sealed_send(c->stream, data, n) : 0;
}

static void srun_close(struct conn *c)
{
	await_no_more(c);
	step_leave(c);
	if (c->stream)
		sealed_close(c->stream);
	if (c->failed)
		event_free(c->failed);
	event_free(c->deadline);
	free(c);
}

static const char *srun_waits_for(const struct conn *c, bool *failed)
{
	const char *words = step_words(c->step);

	*failed = false;
	return *words ? words : c->copy ? "a copy of the agent" : "srun";
}

const struct transport transport_srun = { "srun", srun_start, srun_send, srun_close,
					  srun_waits_for };

enum srun_key transport_srun_key(const char *config, struct str *why)
{
	struct str conf = { 0 };
	char *credential;
	enum srun_auth type;

	if (config)
		str_add(&conf, config);
	else
		read_conf(&conf);
	free(way.socket);
	way.socket = srun_munge_socket(str_text(&conf));
	type = srun_auth_type(str_text(&conf));
	str_free(&conf);
	credential = munge_wrap(way.socket, "", 1, why);
	free(credential);
	way.clear = !credential && type == SRUN_AUTH_OWN;
	snprintf(way.how, sizeof way.how, "%s%s%s", way.clear ? "clear" : "munge",
		 !way.clear && way.socket ? ":" : "",
		 !way.clear && way.socket ? way.socket : "");
	return credential                          ? SRUN_KEY_MUNGE
	       : way.clear                         ? SRUN_KEY_CLEAR
	       : type == SRUN_AUTH_MUNGE || config ? SRUN_KEY_FAILS
						   : SRUN_KEY_UNKNOWN;
}
