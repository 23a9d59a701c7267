/* sshtrue HOST,HOST,... COMMAND: run COMMAND on every host at once with libssh, and
 * wait.
 *
 * The least that ssh alone costs from one thread: a session per host, non-blocking,
 * host keys verified, one key of the user's, nothing read or sent but the exit status.
 * A launcher is measured against it.  Two 40 ms waits are avoided as a launcher has to:
 * Nagle's algorithm here, and delayed acknowledgements while sshd still has it on. */
#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum step { CONNECT, AUTHENTICATE, OPEN, EXECUTE, WAIT, DONE };

struct host {
	const char *name;
	ssh_session session;
	ssh_channel channel;
	ssh_event pump;
	struct ssh_channel_callbacks_struct callbacks;
	enum step step;
	bool closed;
	int status;
};

static ssh_key key;
static const char *command;

static void fail(const struct host *h, const char *what)
{
	fprintf(stderr, "sshtrue: %s: %s: %s\n", h->name, what,
		ssh_get_error(h->session));
	exit(1);
}

static void on_status(ssh_session s, ssh_channel c, int status, void *host)
{
	(void)s;
	(void)c;
	((struct host *)host)->status = status;
}

static void on_close(ssh_session s, ssh_channel c, void *host)
{
	(void)s;
	(void)c;
	((struct host *)host)->closed = true;
}

static void begin(struct host *h)
{
	int on = 1;

	h->session = ssh_new();
	ssh_options_set(h->session, SSH_OPTIONS_HOST, h->name);
	ssh_options_set(h->session, SSH_OPTIONS_NODELAY, &on);
	ssh_set_blocking(h->session, 0);
}

static void open_channel(struct host *h)
{
	h->channel = ssh_channel_new(h->session);
	h->callbacks.userdata = h;
	h->callbacks.channel_exit_status_function = on_status;
	h->callbacks.channel_close_function = on_close;
	ssh_callbacks_init(&h->callbacks);
	ssh_set_channel_callbacks(h->channel, &h->callbacks);
}

/* One call of libssh for the step that H is at.  Returns false when it has to wait. */
static bool advance(struct host *h)
{
	int rc;

	switch (h->step) {
	case CONNECT:
		rc = ssh_connect(h->session);
		if (rc == SSH_OK &&
		    ssh_session_is_known_server(h->session) != SSH_KNOWN_HOSTS_OK)
			fail(h, "host key");
		break;
	case AUTHENTICATE:
		rc = ssh_userauth_publickey(h->session, NULL, key);
		if (rc == SSH_AUTH_SUCCESS)
			open_channel(h);
		else if (rc != SSH_AUTH_AGAIN)
			fail(h, "authentication");
		rc = rc == SSH_AUTH_SUCCESS ? SSH_OK : SSH_AGAIN;
		break;
	case OPEN:
		rc = ssh_channel_open_session(h->channel);
		break;
	case EXECUTE:
		rc = ssh_channel_request_exec(h->channel, command);
		if (rc == SSH_OK) {
			h->pump = ssh_event_new();
			ssh_event_add_session(h->pump, h->session);
		}
		break;
	case WAIT:
		ssh_event_dopoll(h->pump, 0);
		rc = h->closed ? SSH_OK : SSH_AGAIN;
		if (!h->closed && !ssh_is_connected(h->session))
			fail(h, "lost");
		break;
	default:
		return false;
	}
	if (rc == SSH_AGAIN)
		return false;
	if (rc != SSH_OK)
		fail(h, "session");
	h->step++;
	return true;
}

/* As far as it goes without waiting. */
static void step(struct host *h)
{
	int on = 1;

	if (h->step > CONNECT && h->step < WAIT)
		setsockopt(ssh_get_fd(h->session), IPPROTO_TCP, TCP_QUICKACK, &on,
			   sizeof on);
	while (advance(h))
		;
}

/* What H waits for. */
static struct pollfd wish(const struct host *h)
{
	struct pollfd p = { .fd = ssh_get_fd(h->session), .events = POLLIN };

	if (ssh_get_poll_flags(h->session) & SSH_WRITE_PENDING)
		p.events |= POLLOUT;
	return p;
}

static void load_key(void)
{
	char path[4096];

	snprintf(path, sizeof path, "%s/.ssh/id_ed25519", getenv("HOME"));
	if (ssh_pki_import_privkey_file(path, NULL, NULL, NULL, &key) != SSH_OK) {
		fprintf(stderr, "sshtrue: no usable key %s\n", path);
		exit(1);
	}
}

static size_t parse_hosts(struct host *hosts, size_t most, char *list)
{
	size_t n = 0;
	char *name;

	while (n < most && (name = strsep(&list, ",")))
		hosts[n++].name = name;
	return n;
}

int main(int argc, char **argv)
{
	static struct host hosts[1024], *waits[1024];
	static struct pollfd fds[1024];
	size_t n, live;
	int bad = 0;

	if (argc != 3)
		return 2;
	command = argv[2];
	ssh_init();
	load_key();
	n = parse_hosts(hosts, 1024, argv[1]);
	for (size_t i = 0; i < n; i++) {
		begin(&hosts[i]);
		step(&hosts[i]);
	}
	for (;;) {
		live = 0;
		for (size_t i = 0; i < n; i++) {
			if (hosts[i].step == DONE)
				continue;
			fds[live] = wish(&hosts[i]);
			waits[live++] = &hosts[i];
		}
		if (!live)
			break;
		poll(fds, live, 200);
		for (size_t i = 0; i < live; i++)
			if (fds[i].revents || fds[i].fd < 0) /* closed by libssh */
				step(waits[i]);
	}
	for (size_t i = 0; i < n; i++)
		bad |= hosts[i].status;
	return bad != 0;
}
