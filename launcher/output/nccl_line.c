#include "launcher/output/nccl_line.h"

#include <ctype.h>
#include <string.h>

/* ---- a text, from its front ---- */

static bool text_starts(const struct nccl_text *t, const char *word)
{
	const size_t n = strlen(word);

	return t->n >= n && !memcmp(t->p, word, n);
}

static void text_skip(struct nccl_text *t, size_t n)
{
	t->p += n;
	t->n -= n;
}

/* Whether WORD is in front; then it is taken away. */
static bool text_takes(struct nccl_text *t, const char *word)
{
	if (!text_starts(t, word))
		return false;
	text_skip(t, strlen(word));
	return true;
}

/* A number in front, taken away: at most what 64 bits hold. */
static bool takes_number(struct nccl_text *t, int base, uint64_t *out)
{
	const size_t most = base == 16 ? 16 : 10;
	size_t n = 0;

	*out = 0;
	for (; n < t->n && n < most && isxdigit((unsigned char)t->p[n]); n++) {
		const char c = (char)tolower((unsigned char)t->p[n]);
		const int digit = isdigit((unsigned char)c) ? c - '0' : c - 'a' + 10;

		if (digit >= base)
			break;
		*out = *out * (uint64_t)base + (uint64_t)digit;
	}
	text_skip(t, n);
	return n > 0;
}

static bool takes_u32(struct nccl_text *t, uint32_t *out)
{
	struct nccl_text rest = *t;
	uint64_t n;

	if (!takes_number(&rest, 10, &n) || n > INT32_MAX)
		return false;
	*out = (uint32_t)n;
	*t = rest;
	return true;
}

/* Whether WORD is in T; REST is the text behind it. */
static bool text_after(const struct nccl_text *t, const char *word,
		       struct nccl_text *rest)
{
	const char *at = t->n ? memmem(t->p, t->n, word, strlen(word)) : NULL;

	if (!at)
		return false;
	*rest = *t;
	text_skip(rest, (size_t)(at - t->p) + strlen(word));
	return true;
}

/* The number behind WORD. */
static bool number_after(const struct nccl_text *t, const char *word, int base,
			 uint64_t *out)
{
	struct nccl_text rest;

	if (!text_after(t, word, &rest))
		return false;
	text_takes(&rest, "0x");
	return takes_number(&rest, base, out);
}

static bool u32_after(const struct nccl_text *t, const char *word, uint32_t *out)
{
	struct nccl_text rest;

	return text_after(t, word, &rest) && takes_u32(&rest, out);
}

/* ---- "host:pid:tid [device] " ---- */

static bool is_of_name(char c)
{
	return isalnum((unsigned char)c) || c == '.' || c == '-' || c == '_';
}

/* Digits at the end of T, taken away; then the character before them. */
static bool ends_in_number(struct nccl_text *t, char before, uint32_t *out)
{
	size_t n = t->n;
	struct nccl_text digits;

	while (n && isdigit((unsigned char)t->p[n - 1]))
		n--;
	digits = (struct nccl_text){ t->p + n, t->n - n };
	if (!n || t->p[n - 1] != before || !takes_u32(&digits, out) || digits.n)
		return false;
	t->n = n - 1;
	return true;
}

/* HEAD stands before "NCCL INFO" or "NCCL WARN".  A warning has its file behind the
 * device. */
static void read_line_head(struct nccl_line *l, struct nccl_text head)
{
	const char *bracket = head.n ? memrchr(head.p, '[', head.n) : NULL;
	struct nccl_text device;
	uint32_t number, pid;

	if (!bracket || bracket == head.p || bracket[-1] != ' ')
		return;
	device = (struct nccl_text){ bracket + 1,
				     head.n - (size_t)(bracket + 1 - head.p) };
	if (!takes_u32(&device, &number) || !text_starts(&device, "]"))
		return;
	head.n = (size_t)(bracket - 1 - head.p);
	if (!ends_in_number(&head, ':', &number) || !ends_in_number(&head, ':', &pid))
		return;
	l->pid = pid;
	while (l->host.n < head.n && is_of_name(head.p[head.n - 1 - l->host.n]))
		l->host.n++;
	l->host.p = head.p + head.n - l->host.n;
}

/* ---- channels ---- */

/* "3[1b000]", or "3" of NCCL 2.3. */
static bool takes_rank(struct nccl_text *t, uint32_t *rank, uint64_t *dev)
{
	*dev = NCCL_NO_DEV;
	if (!takes_u32(t, rank))
		return false;
	return !text_takes(t, "[") || (takes_number(t, 16, dev) && text_takes(t, "]"));
}

/* "IB/0", "AWS Libfabric/3(12)/GDRDMA(PCI)/Shared": a name may have spaces. */
static bool read_net(struct nccl_line *l, struct nccl_text t)
{
	for (size_t i = 1; i < t.n; i++) {
		struct nccl_text rest = { t.p + i, t.n - i };
		uint32_t proxy;

		if (!text_takes(&rest, "/") || !takes_u32(&rest, &l->nic))
			continue;
		if (text_takes(&rest, "(") &&
		    (!takes_u32(&rest, &proxy) || !text_takes(&rest, ")")))
			continue;
		if (rest.n && *rest.p != '/' && *rest.p != ' ')
			continue;
		l->way = NCCL_NET;
		l->net = (struct nccl_text){ t.p, i };
		l->gdr = text_starts(&rest, "/GDRDMA");
		return true;
	}
	return false;
}

/* T is the text behind "via ". */
static bool read_way(struct nccl_line *l, struct nccl_text t)
{
	static const struct {
		const char *word;
		enum nccl_way way;
	} ways[] = { { "P2P/IPC", NCCL_IPC },
		     { "P2P/CUMEM", NCCL_CUMEM },
		     { "P2P/MNNVL", NCCL_MNNVL },
		     { "P2P/direct pointer", NCCL_POINTER },
		     { "P2P/common device", NCCL_POINTER }, /* until 2.4 */
		     { "P2P/indirect/", NCCL_INDIRECT },
		     { "SHM", NCCL_SHM },
		     { "direct shared memory", NCCL_SHM } }; /* until 2.12 */

	if (text_takes(&t, "NET/"))
		return read_net(l, t);
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if (text_takes(&t, ways[i].word)) {
			l->way = ways[i].way;
			return l->way == NCCL_INDIRECT || !t.n || *t.p == '/' ||
			       *t.p == ' ';
		}
	return false;
}

/* "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"; until 2.4 "Ring 00 : ...". */
static bool read_channel(struct nccl_line *l, struct nccl_text t)
{
	uint32_t number;

	if (!text_takes(&t, "Channel ") && !text_takes(&t, "Ring "))
		return false;
	if (!takes_u32(&t, &number) ||
	    (text_takes(&t, "/") && !takes_u32(&t, &number)) ||
	    !text_takes(&t, " : ") || !takes_rank(&t, &l->from, &l->from_dev) ||
	    !text_takes(&t, " -> ") || !takes_rank(&t, &l->to, &l->to_dev))
		return false;
	while (t.n && *t.p == ' ')
		text_skip(&t, 1);
	l->receives = text_takes(&t, "[receive] ");
	text_takes(&t, "[send] ");
	if (!text_takes(&t, "via ") || !read_way(l, t))
		return false;
	l->says = NCCL_CHANNEL;
	return true;
}

/* ---- communicators ---- */

/* "ncclCommInitRank comm 0x.. rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1b000 commId
 * 0x.. - Init COMPLETE"; the name since 2.21, nvmlDev since 2.19. */
static bool read_init(struct nccl_line *l, struct nccl_text t)
{
	struct nccl_text rest;
	uint64_t n;

	l->complete = text_after(&t, "- Init COMPLETE", &rest);
	if (!l->complete && !text_after(&t, "- Init START", &rest))
		return false;
	if (!number_after(&t, "comm 0x", 16, &l->comm) ||
	    !u32_after(&t, " rank ", &l->rank) ||
	    !u32_after(&t, " nranks ", &l->nranks) || l->rank >= l->nranks)
		return false;
	l->bus = l->nvml = NCCL_NO_DEV;
	if (number_after(&t, " busId ", 16, &n))
		l->bus = n;
	if (number_after(&t, " nvmlDev ", 16, &n))
		l->nvml = n;
	number_after(&t, " commId ", 16, &l->id);
	if (number_after(&t, " parent ", 16, &l->parent)) {
		if (!u32_after(&t, " childCount ", &l->child))
			u32_after(&t, " splitCount ", &l->child);
		u32_after(&t, " color ", &l->color);
	}
	l->says = NCCL_INIT;
	return true;
}

/* Seconds with two digits behind the point. */
static double read_seconds(struct nccl_text t)
{
	uint64_t whole = 0, part = 0;
	size_t left;

	if (!takes_number(&t, 10, &whole) || !text_takes(&t, "."))
		return (double)whole;
	left = t.n;
	if (left > 2)
		t.n = 2;
	takes_number(&t, 10, &part);
	return (double)whole + (double)part / (left > 1 ? 100 : 10);
}

static bool read_timings(struct nccl_line *l, struct nccl_text t)
{
	struct nccl_text rest;

	if (!text_starts(&t, "Init timings") || !u32_after(&t, " rank ", &l->rank) ||
	    !u32_after(&t, " nranks ", &l->nranks) ||
	    (!text_after(&t, " bootstrap ", &rest) &&
	     !text_after(&t, "(bootstrap ", &rest)))
		return false;
	l->bootstrap_s = read_seconds(rest);
	l->says = NCCL_TIMINGS;
	return true;
}

/* ---- networks ---- */

/* "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>".  Without a device 2.2x
 * still says "Using", and only [RO]. */
static bool read_nics(struct nccl_line *l, struct nccl_text t)
{
	struct nccl_text rest;
	uint32_t number;

	if (text_takes(&t, "Using network ")) {
		l->net = t;
		l->says = NCCL_NETWORK;
		return t.n > 0;
	}
	if (!text_takes(&t, "NET/") || !text_after(&t, ": ", &rest))
		return false;
	l->net = (struct nccl_text){ t.p, (size_t)(rest.p - 2 - t.p) };
	while (l->net.n && l->net.p[l->net.n - 1] == ' ')
		l->net.n--;
	if (text_starts(&rest, "No device found"))
		l->says = NCCL_NO_DEVICE;
	else if (text_takes(&rest, "Using ") && text_takes(&rest, "[") &&
		 takes_u32(&rest, &number) && text_takes(&rest, "]"))
		l->says = NCCL_NICS;
	text_after(&t, "Using ", &l->text);
	return l->says != NCCL_OTHER;
}

bool nccl_line_nic(const struct nccl_line *l, size_t i, uint32_t *number,
		   struct nccl_text *name)
{
	struct nccl_text t = l->text, rest;

	if (l->says != NCCL_NICS)
		return false;
	for (;; i--) {
		if (!text_takes(&t, "[") || !takes_u32(&t, number) ||
		    !text_takes(&t, "]"))
			return false;
		*name = (struct nccl_text){ t.p, 0 };
		while (name->n < t.n && is_of_name(t.p[name->n]))
			name->n++;
		if (!i)
			return name->n > 0;
		if (!text_after(&t, " ", &rest))
			return false;
		t = rest;
	}
}

static bool read_channels(struct nccl_line *l, struct nccl_text t)
{
	uint32_t coll;

	if (!takes_u32(&t, &coll) || !text_takes(&t, " coll channels, "))
		return false;
	while (t.n) {
		uint32_t n;

		if (!takes_u32(&t, &n))
			break;
		if (text_starts(&t, " collnet channels"))
			l->collnet = n;
		if (text_starts(&t, " nvls channels"))
			l->nvls = n;
		if (!text_after(&t, ", ", &t))
			break;
	}
	l->says = NCCL_CHANNELS;
	return true;
}

/* ---- a line ---- */

/* "NCCL version 2.18.1+cuda12.1", which has no head if NCCL_DEBUG is VERSION or WARN.
 * RCCL says so with its own name. */
static bool read_version(struct nccl_line *l, const struct nccl_text *line)
{
	struct nccl_text t;
	size_t n = 0;

	if (!text_after(line, "CCL version ", &t) || !t.n ||
	    !isdigit((unsigned char)*t.p))
		return false;
	while (n < t.n && (is_of_name(t.p[n]) || t.p[n] == '+'))
		n++;
	if (!memchr(t.p, '.', n))
		return false;
	l->text = (struct nccl_text){ t.p, n };
	l->says = NCCL_VERSION;
	return true;
}

void nccl_line_read(struct nccl_line *l, const char *p, size_t n)
{
	struct nccl_text line = { p, n }, t;
	bool warns;

	*l = (struct nccl_line){ .says = NCCL_NOTHING };
	while (line.n && (line.p[line.n - 1] == '\r' || line.p[line.n - 1] == '\n'))
		line.n--;
	warns = text_after(&line, "NCCL WARN ", &t);
	if (!warns && !text_after(&line, "NCCL INFO ", &t)) {
		read_version(l, &line);
		return;
	}
	l->says = NCCL_OTHER;
	read_line_head(l, (struct nccl_text){ line.p, (size_t)(t.p - line.p) - 10 });
	if (warns) {
		l->says = NCCL_WARN;
		l->text = t;
		return;
	}
	if (!read_channel(l, t) && !read_init(l, t) && !read_timings(l, t) &&
	    !read_nics(l, t) && !read_channels(l, t))
		read_version(l, &t);
}
