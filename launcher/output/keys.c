#include "launcher/output/keys.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include "common/loop.h"
#include "common/str.h"

struct keys {
	struct event *readable;
	void (*pressed)(void *ctx, char key);
	void *ctx;
};

/* of the process: atexit() has no argument */
static struct termios keys_before;
static bool keys_are_taken;

static void keys_restore(void)
{
	if (keys_are_taken)
		tcsetattr(STDIN_FILENO, TCSANOW, &keys_before);
	keys_are_taken = false;
}

static bool keys_take(void)
{
	struct termios now;

	if (tcgetpgrp(STDIN_FILENO) != getpgrp() ||
	    tcgetattr(STDIN_FILENO, &keys_before))
		return false;
	now = keys_before;
	now.c_lflag &= ~(tcflag_t)(ICANON | ECHO); /* ISIG stays: ^C, ^Z, ^\ */
	now.c_cc[VMIN] = 1;
	now.c_cc[VTIME] = 0;
	keys_are_taken = !tcsetattr(STDIN_FILENO, TCSANOW, &now);
	return keys_are_taken;
}

static void keys_on_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct keys *k = ctx;
	char key[64];
	ssize_t n;

	(void)what;
	if (tcgetpgrp(fd) != getpgrp())
		return; /* a read from the background would stop runner */
	n = read(fd, key, sizeof key);
	if (n <= 0)
		event_del(k->readable);
	for (ssize_t i = 0; i < n; i++)
		k->pressed(k->ctx, key[i]);
}

struct keys *keys_open(struct event_base *base, void (*pressed)(void *ctx, char key),
		       void *ctx)
{
	static bool at_exit;
	struct keys *k;

	if (!isatty(STDIN_FILENO) || !keys_take())
		return NULL;
	if (!at_exit)
		atexit(keys_restore);
	at_exit = true;
	k = xcalloc(1, sizeof *k);
	*k = (struct keys){ .pressed = pressed, .ctx = ctx };
	k->readable = event_new(base, STDIN_FILENO, EV_READ | EV_PERSIST,
				keys_on_readable, k);
	loop_watch(k->readable);
	return k;
}

void keys_pause(struct keys *k)
{
	if (k)
		keys_restore();
}

void keys_resume(struct keys *k)
{
	if (k)
		keys_take();
}

void keys_close(struct keys *k)
{
	if (!k)
		return;
	keys_restore();
	event_free(k->readable);
	free(k);
}
