/* libFuzzer on hosts.h: the input as -H, and as a host file.  What parses obeys the
 * limits, holds no byte that a name may not have, unfolds to itself, and is the list
 * that its text gives. */
#include <sys/mman.h>
#include <unistd.h>

#include "launcher/hosts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_name(const char *name)
{
	if (!*name || *name == '-' || strlen(name) > 255 ||
	    name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
			      "0123456789._-:%")])
		abort();
}

/* As -H takes it. */
static void add_text(struct str *s, const struct host_spec *v)
{
	str_addf(s, "%s%s%s", s->len ? "," : "", v->user ? v->user : "",
		 v->user ? "@" : "");
	hosts_fold(s, (const char *const *)&v->name, 1);
	if (v->port)
		str_addf(s, ":%d", v->port);
	if (v->slots == SLOTS_GPUS)
		str_add(s, ":gpus");
	else
		str_addf(s, ":%d", v->slots);
}

/* The text of the list is that list. */
static void check_text(const struct hosts *h)
{
	struct hosts again = { 0 };
	struct str s = { 0 };

	for (size_t i = 0; i < h->n; i++)
		add_text(&s, &h->v[i]);
	if (hosts_parse(&again, str_text(&s), NULL) || again.n != h->n)
		abort();
	for (size_t i = 0; i < h->n; i++) {
		const struct host_spec *a = &h->v[i], *b = &again.v[i];

		if (strcmp(a->name, b->name) || !a->user != !b->user ||
		    (a->user && strcmp(a->user, b->user)) || a->slots != b->slots ||
		    a->port != b->port)
			abort();
	}
	hosts_free(&again);
	str_free(&s);
}

static void check(struct hosts *h)
{
	const char **names = xcalloc(h->n, sizeof *names);
	struct hosts again = { 0 };
	struct str s = { 0 };

	if (h->n == 0 || h->n > HOSTS_MAX)
		abort();
	for (size_t i = 0; i < h->n; i++) {
		const struct host_spec *v = &h->v[i];

		names[i] = v->name;
		check_name(v->name);
		if (v->user)
			check_name(v->user);
		if (v->slots != SLOTS_GPUS &&
		    (v->slots < 1 || v->slots > HOST_SLOTS_MAX))
			abort();
		if (v->max_slots && v->max_slots < v->slots)
			abort();
		if (v->port < 0 || v->port > HOST_PORT_MAX)
			abort();
	}
	check_text(h);
	hosts_fold(&s, names, h->n);
	if (hosts_parse(&again, str_text(&s), NULL) || again.n != h->n)
		abort();
	for (size_t i = 0; i < h->n; i++)
		if (strcmp(again.v[i].name, names[i]))
			abort();
	hosts_free(&again);
	str_free(&s);
	free(names);
}

static void read_as_file(const uint8_t *data, size_t size)
{
	int fd = memfd_create("hosts", MFD_CLOEXEC);
	char path[64];
	struct hosts h = { 0 };
	struct err e = { 0 };

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (!hosts_read_file(&h, path, &e))
		check(&h);
	else if (h.v || h.n || !e.id || !*e.text)
		abort();
	hosts_free(&h);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *spec = xstrndup((const char *)data, size);
	struct hosts h = { 0 };
	struct err e = { 0 };

	if (!hosts_parse(&h, spec, &e))
		check(&h);
	else if (h.v || h.n || !e.id || !*e.text)
		abort();
	hosts_free(&h);
	free(spec);
	read_as_file(data, size);
	return 0;
}
