#include "launcher/trace/trace_perfetto.h"

#include <stdlib.h>
#include <string.h>

#include "common/str.h"

/* Numbers of Perfetto's fields. */
enum {
	TRACE_PACKET = 1,
	PACKET_TIMESTAMP = 8,
	PACKET_SEQUENCE = 10,
	PACKET_TRACK_EVENT = 11,
	PACKET_INTERNED = 12,
	PACKET_FLAGS = 13,
	PACKET_DESCRIPTOR = 60,
	EVENT_CATEGORY = 3,
	EVENT_ANNOTATION = 4,
	EVENT_TYPE = 9,
	EVENT_NAME = 10,
	EVENT_TRACK = 11,
	EVENT_DOUBLE = 44,
	EVENT_FLOW = 47,
	ANNOTATION_NAME = 1,
	ANNOTATION_UINT = 3,
	ANNOTATION_JSON = 9,
	TRACK_UUID = 1,
	TRACK_NAME = 2,
	TRACK_PROCESS = 3,
	TRACK_PARENT = 5,
	TRACK_COUNTER = 8,
	PROCESS_PID = 1,
	PROCESS_NAME = 6,
	FLAG_CLEARED = 1,
	FLAG_NEEDS = 2,
	TYPE_BEGIN = 1,
	TYPE_END = 2,
	TYPE_INSTANT = 3,
	TYPE_COUNTER = 4
};

/* Kinds of interned texts: fields of InternedData. */
enum intern { INTERN_CATEGORY = 1, INTERN_NAME = 2, INTERN_KEY = 3, INTERNS };

enum { SLOTS = 1 << 16, SLOTS_MOST = SLOTS / 2 };

/* Bytes of a message. */
struct message {
	unsigned char *p;
	size_t n, room;
};

struct perfetto {
	struct trace_file *file;
	struct message packet, event, interned, entry;
	struct str text; /* a name without escapes */
	bool cleared;    /* the next packet says that the table is empty */
	size_t used;
	uint64_t last[INTERNS]; /* numbers given */
	struct slot {
		uint64_t hash; /* 0: none */
		uint64_t number;
	} slot[SLOTS];
};

/* ---- messages ---- */

static unsigned char *message_room(struct message *m, size_t n)
{
	if (m->n + n > m->room) {
		m->room = 2 * (m->n + n) + 256;
		m->p = xrealloc(m->p, m->room);
	}
	return m->p + m->n;
}

static void add_varint(struct message *m, uint64_t v)
{
	unsigned char *p = message_room(m, 10);

	while (v > 127) {
		*p++ = (unsigned char)(v | 128);
		v >>= 7;
	}
	*p++ = (unsigned char)v;
	m->n = (size_t)(p - m->p);
}

static void add_number(struct message *m, unsigned field, uint64_t v)
{
	add_varint(m, field << 3);
	add_varint(m, v);
}

static void add_fixed(struct message *m, unsigned field, uint64_t v)
{
	add_varint(m, field << 3 | 1);
	memcpy(message_room(m, 8), &v, 8); /* little-endian, as every machine of ours */
	m->n += 8;
}

static void add_bytes(struct message *m, unsigned field, const void *bytes, size_t n)
{
	add_varint(m, field << 3 | 2);
	add_varint(m, n);
	if (n)
		memcpy(message_room(m, n), bytes, n);
	m->n += n;
}

static void add_message(struct message *m, unsigned field, const struct message *part)
{
	add_bytes(m, field, part->p, part->n);
}

/* ---- texts ---- */

static unsigned hex_of(const char *p)
{
	unsigned v = 0;

	for (int i = 0; i < 4; i++)
		v = v << 4 | (unsigned)((p[i] & 15) + (p[i] > '9' ? 9 : 0));
	return v;
}

static void add_utf8(struct str *s, unsigned code)
{
	const char four[] = { (char)(0xf0 | code >> 18),
			      (char)(0x80 | (code >> 12 & 63)),
			      (char)(0x80 | (code >> 6 & 63)),
			      (char)(0x80 | (code & 63)) };
	const char three = (char)(0xe0 | code >> 12), two = (char)(0xc0 | code >> 6);

	if (code >= 0x10000) {
		str_addn(s, four, 4);
	} else if (code >= 0x800) {
		str_addn(s, &three, 1);
		str_addn(s, four + 2, 2);
	} else if (code >= 0x80) {
		str_addn(s, &two, 1);
		str_addn(s, four + 3, 1);
	} else {
		str_addn(s, &(char){ (char)code }, 1);
	}
}

/* The escape at P, of a text that ends at END.  Returns its bytes.  A half of a
 * surrogate pair stands for no character. */
static size_t add_escape(struct str *s, const char *p, const char *end)
{
	static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
	const char *known = strchr(from, p[1]);
	unsigned code, low;

	if (p[1] != 'u') {
		str_addn(s, known ? to + (known - from) : p + 1, 1);
		return 2;
	}
	code = hex_of(p + 2);
	if (code >> 10 == 54 && end - p >= 12 && p[6] == '\\' && p[7] == 'u') {
		low = hex_of(p + 8);
		if (low >> 10 == 55) {
			add_utf8(s, 0x10000 + ((code & 1023) << 10 | (low & 1023)));
			return 12;
		}
	}
	add_utf8(s, code >> 11 == 27 ? 0xfffd : code);
	return 6;
}

/* T without its escapes, valid until the next call. */
static struct trace_text name_plain(struct perfetto *f, const struct trace_text *t)
{
	const char *p = t->s, *end;

	if (!t->n || !memchr(t->s, '\\', t->n))
		return *t;
	end = p + t->n;
	f->text.len = 0;
	while (p < end) {
		const char *next = memchr(p, '\\', (size_t)(end - p));

		str_addn(&f->text, p, (size_t)((next ? next : end) - p));
		p = next ? next : end;
		if (next)
			p += add_escape(&f->text, next, end);
	}
	return (struct trace_text){ f->text.s, f->text.len };
}

/* The number of TEXT among those of its kind. */
static uint64_t name_intern(struct perfetto *f, enum intern kind,
			    const struct trace_text *t)
{
	uint64_t hash = 14695981039346656037u ^ kind;
	struct trace_text text;
	size_t i;

	for (size_t k = 0; k < t->n; k++)
		hash = (hash ^ (unsigned char)t->s[k]) * 1099511628211u;
	hash += !hash;
	for (i = (hash >> 40) % SLOTS; f->slot[i].hash; i = (i + 1) % SLOTS)
		if (f->slot[i].hash == hash)
			return f->slot[i].number;
	f->used++;
	f->slot[i] = (struct slot){ hash, ++f->last[kind] };
	text = name_plain(f, t);
	f->entry.n = 0;
	add_number(&f->entry, 1, f->last[kind]);
	add_bytes(&f->entry, 2, text.s, text.n);
	add_message(&f->interned, kind, &f->entry);
	return f->last[kind];
}

/* ---- packets ---- */

/* f->packet is complete but for what every packet has. */
static void packet_end(struct perfetto *f)
{
	unsigned char head[16];
	struct message m = { head, 0, sizeof head };

	if (f->interned.n)
		add_message(&f->packet, PACKET_INTERNED, &f->interned);
	f->interned.n = 0;
	add_number(&f->packet, PACKET_SEQUENCE, 1);
	add_number(&f->packet, PACKET_FLAGS,
		   FLAG_NEEDS | (f->cleared ? FLAG_CLEARED : 0));
	f->cleared = false;
	add_varint(&m, TRACE_PACKET << 3 | 2);
	add_varint(&m, f->packet.n);
	trace_file_add(f->file, head, m.n);
	trace_file_add(f->file, f->packet.p, f->packet.n);
	f->packet.n = 0;
}

static void event_end(struct perfetto *f, int64_t ts_ns)
{
	add_number(&f->packet, PACKET_TIMESTAMP, ts_ns < 0 ? 0 : (uint64_t)ts_ns);
	add_message(&f->packet, PACKET_TRACK_EVENT, &f->event);
	f->event.n = 0;
	packet_end(f);
}

static uint64_t process_uuid(uint32_t pid)
{
	return (uint64_t)pid << 34;
}

/* The track of P: of a thread, of an id, or of a counter. */
static uint64_t uuid_of(const struct trace_put *p)
{
	const bool apart = p->ph == 'b' || p->ph == 'n' || p->ph == 'e';

	if (apart)
		return process_uuid(p->pid) | 1ull << 33 | (p->id & 0xffffffff);
	return (process_uuid(p->pid) | (p->tid & 0xffffffff)) + 1;
}

static void put_process(struct perfetto *f, const struct trace_put *p)
{
	const struct trace_text name = name_plain(f, &p->name);

	f->entry.n = f->event.n = 0;
	add_number(&f->entry, PROCESS_PID, p->pid);
	add_bytes(&f->entry, PROCESS_NAME, name.s, name.n);
	add_number(&f->event, TRACK_UUID, process_uuid(p->pid));
	add_bytes(&f->event, TRACK_NAME, name.s, name.n);
	add_message(&f->event, TRACK_PROCESS, &f->entry);
	add_message(&f->packet, PACKET_DESCRIPTOR, &f->event);
	f->event.n = 0;
	packet_end(f);
}

static void put_track(struct perfetto *f, uint64_t uuid, uint32_t pid,
		      const struct trace_text *raw, bool counter)
{
	const struct trace_text name = name_plain(f, raw);

	f->event.n = 0;
	add_number(&f->event, TRACK_UUID, uuid);
	add_number(&f->event, TRACK_PARENT, process_uuid(pid));
	add_bytes(&f->event, TRACK_NAME, name.s, name.n);
	if (counter)
		add_bytes(&f->event, TRACK_COUNTER, "", 0);
	add_message(&f->packet, PACKET_DESCRIPTOR, &f->event);
	f->event.n = 0;
	packet_end(f);
}

static void event_annotate(struct perfetto *f, const char *key, uint64_t value)
{
	const struct trace_text t = { key, strlen(key) };
	const uint64_t number = name_intern(f, INTERN_KEY, &t);

	f->entry.n = 0;
	add_number(&f->entry, ANNOTATION_NAME, number);
	add_number(&f->entry, ANNOTATION_UINT, value);
	add_message(&f->event, EVENT_ANNOTATION, &f->entry);
}

static void event_annotate_all(struct perfetto *f, const struct trace_put *p)
{
	static const struct trace_text args = { "args", 4 };
	uint64_t number;

	if (p->op.is) {
		event_annotate(f, "step", p->op.step);
		event_annotate(f, "seq", p->op.seq);
		event_annotate(f, "bytes", p->op.bytes);
		return;
	}
	if (!p->args.n)
		return;
	number = name_intern(f, INTERN_KEY, &args);
	f->entry.n = 0;
	add_number(&f->entry, ANNOTATION_NAME, number);
	add_bytes(&f->entry, ANNOTATION_JSON, p->args.s, p->args.n);
	add_message(&f->event, EVENT_ANNOTATION, &f->entry);
}

/* A slice begins, or an instant is. */
static void put_named(struct perfetto *f, const struct trace_put *p, unsigned type)
{
	f->event.n = 0;
	add_number(&f->event, EVENT_TYPE, type);
	add_number(&f->event, EVENT_TRACK, uuid_of(p));
	add_number(&f->event, EVENT_NAME, name_intern(f, INTERN_NAME, &p->name));
	if (p->cat.n)
		add_number(&f->event, EVENT_CATEGORY,
			   name_intern(f, INTERN_CATEGORY, &p->cat));
	if (p->flow)
		add_fixed(&f->event, EVENT_FLOW, p->flow);
	event_annotate_all(f, p);
	event_end(f, p->ts_ns);
}

static void put_slice_end(struct perfetto *f, const struct trace_put *p, int64_t ts_ns)
{
	f->event.n = 0;
	add_number(&f->event, EVENT_TYPE, TYPE_END);
	add_number(&f->event, EVENT_TRACK, uuid_of(p));
	event_end(f, ts_ns);
}

/* Each number of its "args" is a counter of the process. */
static void put_counter(struct perfetto *f, const struct trace_put *p)
{
	struct trace_text key, value;
	int64_t v;

	for (size_t at = 0; trace_member(&p->args, &at, &key, &value);) {
		uint64_t uuid = 14695981039346656037u, bits;
		double number;

		if (!trace_thousandths(&value, &v))
			continue;
		for (size_t i = 0; i < p->name.n; i++)
			uuid = (uuid ^ (unsigned char)p->name.s[i]) * 1099511628211u;
		for (size_t i = 0; i < key.n; i++)
			uuid = (uuid ^ (unsigned char)key.s[i]) * 1099511628211u;
		uuid = (uuid ^ p->pid) * 1099511628211u | 1ull << 63;
		put_track(f, uuid, p->pid, key.n > 4 ? &key : &p->name, true);
		number = (double)v / 1000;
		memcpy(&bits, &number, sizeof bits);
		f->event.n = 0;
		add_number(&f->event, EVENT_TYPE, TYPE_COUNTER);
		add_number(&f->event, EVENT_TRACK, uuid);
		add_fixed(&f->event, EVENT_DOUBLE, bits);
		event_end(f, p->ts_ns);
	}
}

/* ---- the form ---- */

static void *perfetto_begin(struct trace_file *file)
{
	struct perfetto *f = xcalloc(1, sizeof *f);

	f->file = file;
	f->cleared = true;
	return f;
}

static void perfetto_put(void *state, const struct trace_put *p)
{
	struct perfetto *f = state;

	if (f->used > SLOTS_MOST) {
		memset(f->slot, 0, sizeof f->slot);
		memset(f->last, 0, sizeof f->last);
		f->used = 0;
		f->cleared = true;
	}
	switch (p->ph) {
	case 'P':
		put_process(f, p);
		break;
	case 'T':
		put_track(f, uuid_of(p), p->pid, &p->name, false);
		break;
	case 'b':
		put_track(f, uuid_of(p), p->pid, &p->name, false);
		put_named(f, p, TYPE_BEGIN);
		break;
	case 'X':
		put_named(f, p, TYPE_BEGIN);
		put_slice_end(f, p, p->ts_ns + p->dur_ns);
		break;
	case 'B':
		put_named(f, p, TYPE_BEGIN);
		break;
	case 'E':
	case 'e':
		put_slice_end(f, p, p->ts_ns);
		break;
	case 'i':
	case 'n':
		put_named(f, p, TYPE_INSTANT);
		break;
	case 'C':
		put_counter(f, p);
		break;
	default: /* arrows: flows have numbers */
		break;
	}
}

static void perfetto_end(void *state, const struct trace_text *about)
{
	struct perfetto *f = state;

	(void)about; /* stands in an event, too */
	free(f->packet.p);
	free(f->event.p);
	free(f->interned.p);
	free(f->entry.p);
	str_free(&f->text);
	free(f);
}

const struct trace_form trace_perfetto = { perfetto_begin, perfetto_put, perfetto_end,
					   false };
