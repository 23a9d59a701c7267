#include "lib/core/op.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/backend/devices.h"
#include "lib/base/fields.h"
#include "lib/base/kern.h"
#include "lib/base/names.def"

/* in signatures */
enum { MEMORY = 0x4d454d, MIXED = 0x4d495845 };

/* In a code: the memory of an operation whose ranks have different ones. */
enum { MIXED_CODE = BERTH_CUDA + 1 };

static uint64_t op_mix(uint64_t h, uint64_t x)
{
	h = (h << 23 | h >> 41) + x * 0xff51afd7ed558ccdu;
	h = (h ^ h >> 29) * 0x9e3779b97f4a7c15u;
	return h ^ h >> 32;
}

uint64_t op_hash(const void *p, size_t bytes, uint64_t seed)
{
	const unsigned char *at = p;
	uint64_t x;

	for (; bytes >= 8; bytes -= 8, at += 8) {
		memcpy(&x, at, 8);
		seed = op_mix(seed, x);
	}
	x = bytes;
	for (; bytes; bytes--)
		x = x << 8 | *at++;
	return op_mix(seed, x);
}

static uint64_t op_bits(double x)
{
	uint64_t b;

	memcpy(&b, &x, sizeof b);
	return b;
}

/* ---- the check ---- */

/* The number of elements that come to this rank, if it is known. */
static uint64_t elements_got(const struct coll *c, unsigned n, unsigned me)
{
	switch (c->kind) {
	case BERTH_ALLGATHER:
		return c->out_counts ? op_total(c->out_counts, n) : c->count * n;
	case BERTH_REDUCESCATTER:
		return coll_part(c, n, me);
	case BERTH_GATHER:
		return c->root == me ? c->count * n : 0;
	case BERTH_REDUCE:
		return c->root == me ? c->count : 0;
	case BERTH_SEND:
	case BERTH_RECV: /* it has room, and checks that itself */
		return 0;
	default:
		return c->count;
	}
}

static bool op_gives(const struct coll *c, unsigned me)
{
	if (c->kind == BERTH_BROADCAST || c->kind == BERTH_SCATTER)
		return c->root == me;
	return c->kind != BERTH_RECV;
}

static const char *check_buffers(const struct op *op, const struct berth_desc *d,
				 unsigned n, unsigned me)
{
	const struct coll *c = &op->coll;
	uint64_t got = op->own_counts ? 0 : elements_got(c, n, me);

	if (op_gives(c, me) && c->count && !c->in)
		return "in is NULL";
	if (got && !c->out)
		return "out is NULL";
	if (c->in == c->out && c->count && n > 1 &&
	    ((c->kind == BERTH_REDUCESCATTER && coll_part_at(c, n, me)) ||
	     (c->kind == BERTH_SCATTER && c->root == me && me)))
		return "in place, out is this rank's part of in";
	if (got && d->room && d->room < got)
		return "room is less than what comes";
	return NULL;
}

uint64_t op_total(const uint64_t *counts, unsigned n)
{
	uint64_t all = 0;

	for (unsigned i = 0; counts && i < n; i++)
		if (__builtin_add_overflow(all, counts[i], &all))
			return UINT64_MAX;
	return all;
}

static const char *check_counts(const struct coll *c, unsigned n, unsigned me)
{
	if (c->count > UINT64_MAX / 16 / n ||
	    op_total(c->out_counts, n) > UINT64_MAX / 16 / n)
		return "count is more than memory can hold";
	switch (c->kind) {
	case BERTH_ALLGATHER:
		if (c->out_counts && c->out_counts[me] != c->count)
			return "out_counts of this rank is not count";
		break;
	case BERTH_REDUCESCATTER:
		if (c->in_counts && op_total(c->in_counts, n) != c->count)
			return "in_counts do not add up to count";
		break;
	case BERTH_ALLTOALL:
		if (n == 1 && c->out_counts && c->in_counts &&
		    c->out_counts[0] != c->count)
			return "out_counts do not add up to count";
		if (c->out_counts && !c->in_counts)
			return "out_counts need in_counts";
		if (c->in_counts && op_total(c->in_counts, n) != c->count)
			return "in_counts do not add up to count";
		if (!c->in_counts && c->count % n)
			return "count is not a multiple of the ranks";
		break;
	default:
		break;
	}
	return NULL;
}

static bool is_float(berth_type t)
{
	const berth_type wide = kern_accumulator(t);

	return wide == BERTH_F32 || wide == BERTH_F64;
}

static bool is_scaled(const struct coll *c)
{
	return c->scale.has_prescale || c->scale.has_postscale;
}

static void take_scale(bool *has, double *scale, const double *given)
{
	*has = given && *given != 1;
	*scale = *has ? *given : 0;
}

static const char *take_op(struct op *op, const struct berth_desc *d, unsigned n)
{
	struct coll *c = &op->coll;

	c->op = d->op;
	if (d->op == BERTH_AVG && c->type != BERTH_BOOL) {
		c->op = BERTH_SUM;
		c->scale.divide = n;
	} else if (d->op == BERTH_ADASUM) {
		if (c->kind != BERTH_ALLREDUCE || !is_float(c->type))
			return "Adasum is for allreduce of floats";
		op->adasum = true;
		c->op = BERTH_SUM;
	}
	if (!coll_reduces(c->kind))
		return is_scaled(c) ? "only reductions can be scaled" : NULL;
	if (is_scaled(c) && c->op >= BERTH_BAND)
		return "band, bor and bxor can't be scaled";
	if (kern_is_defined(c->type, c->op))
		return NULL;
	return c->type == BERTH_BOOL ? "there is no average of bool"
				     : "band, bor and bxor are not for floats";
}

static bool has_root(berth_kind kind)
{
	return kind == BERTH_BROADCAST || kind == BERTH_REDUCE ||
	       kind == BERTH_GATHER || kind == BERTH_SCATTER;
}

/* A memory changes these bits of a signature, and nothing else does. */
static uint32_t op_sign_memory(berth_memory memory)
{
	return memory > BERTH_HOST ? (uint32_t)memory << 28 | MEMORY : 0;
}

/* Everything that has to be the same on all ranks.  Some 5 ns without a name. */
static uint32_t op_sign(const struct op *op, unsigned n)
{
	const struct coll *c = &op->coll;
	uint64_t h = (uint64_t)c->kind << 24 | (uint64_t)c->type << 16 |
		     (uint64_t)c->op << 8 | (unsigned)op->adasum << 1 |
		     !!c->scale.divide;

	if (op->own_counts)
		h = ~h;
	else if (c->kind != BERTH_ALLGATHER && c->kind != BERTH_ALLTOALL)
		h = op_mix(h, c->count);
	else if (!c->out_counts)
		h = op_mix(h, ~c->count);
	if (has_root(c->kind))
		h = op_mix(h, c->root);
	if (is_scaled(c))
		h = op_mix(op_mix(h, op_bits(c->scale.prescale)),
			   op_bits(c->scale.postscale) + c->scale.has_postscale);
	if (c->kind == BERTH_ALLGATHER && c->out_counts && !op->own_counts)
		h = op_hash(c->out_counts, n * sizeof *c->out_counts, h);
	if (c->kind == BERTH_REDUCESCATTER && c->in_counts)
		h = op_hash(c->in_counts, n * sizeof *c->in_counts, h);
	if (op->name)
		h = op_hash(op->name, strlen(op->name), h);
	if (op->shape)
		h = op_hash(op->shape, strlen(op->shape), ~h);
	h = op_mix(h, 1);
	return (uint32_t)(h >> 32) ^ op_sign_memory(op->memory);
}

uint32_t op_alike(const struct op *op)
{
	return op->coll.signature ^ op_sign_memory(op->memory);
}

void op_mix_memories(struct op *op)
{
	op->coll.signature = op_alike(op) ^ MIXED;
	op->mixed = true;
}

static const char *take_root(struct op *op, const struct berth_desc *d, unsigned n)
{
	const bool any = d->kind == BERTH_RECV && d->root == BERTH_ANY;

	if (!any && (d->root < 0 || (unsigned)d->root >= n))
		return d->kind == BERTH_RECV
			       ? "root is neither in the set nor BERTH_ANY"
			       : "root is not in the set";
	op->coll.root = any ? 0 : (unsigned)d->root;
	op->peer = d->root;
	return NULL;
}

/* Where what comes goes: into OUT, or where it is yet to be had. */
static void take_room(struct op *op, const struct berth_desc *d, unsigned n)
{
	op->room = d->room;
	if (!op->room && d->out && d->out_counts)
		op->room = op_total(d->out_counts, n);
	if (!op->room && d->out && d->kind == BERTH_RECV)
		op->room = d->count;
	if (!d->out && (d->alloc || d->made))
		op->room = UINT64_MAX;
	else if (!d->out)
		op->room = 0;
	else if (op->room > UINT64_MAX / 16) /* any message fits; bytes do not wrap */
		op->room = UINT64_MAX / 16;
	op->received = d->received;
	op->alloc = d->alloc;
	op->alloc_ctx = d->alloc_ctx;
	op->made = d->made;
	op->tag = d->tag;
	op->from = d->from;
}

static void take_counts(struct op *op, const struct berth_desc *d, unsigned n)
{
	struct coll *c = &op->coll;

	if (c->kind == BERTH_ALLTOALL || c->kind == BERTH_REDUCESCATTER)
		c->in_counts = d->in_counts;
	if (c->kind == BERTH_ALLTOALL || c->kind == BERTH_ALLGATHER)
		c->out_counts = d->out_counts;
	op->own_counts = c->kind == BERTH_ALLTOALL
				 ? d->in_counts || d->received
				 : c->kind == BERTH_ALLGATHER && d->received;
	if (op->own_counts || op_is_message(op))
		take_room(op, d, n);
}

/* Finds the memory of its arrays. */
static const char *take_device(struct op *op, const struct berth_desc *d)
{
	berth_memory memory = d->memory, out;
	int device = d->device;

	const bool streams = d->ready || (d->stream && d->stream != BERTH_HOST_STREAM);

	if (memory == BERTH_ANYWHERE && streams && !device_is_there)
		device_look();
	if (memory == BERTH_ANYWHERE && device_is_there) {
		memory = device_find(d->in ? d->in : d->out, &device);
		out = d->in && d->out ? device_find(d->out, &device) : memory;
		if (out != memory)
			return "in and out are of different memories";
	}
	if (memory <= BERTH_HOST)
		return streams ? "host memory has neither streams nor events" : NULL;
	if (!device_of(memory))
		return "no such memory";
	op->memory = memory;
	op->device = device;
	op->stream = d->stream;
	op->ready = d->ready;
	op->marked = false;
	op->mark = NULL;
	if (!d->out && d->made && !d->alloc)
		return op_not_there;
	return NULL;
}

static const char *op_make_checked(struct op *op, const struct berth_desc *d,
				   unsigned n, unsigned me)
{
	struct coll *c = &op->coll;
	const char *wrong = NULL;

	c->kind = d->kind;
	c->in = d->in;
	c->out = d->out;
	c->count = d->count;
	c->type = d->type;
	c->in_counts = NULL;
	c->out_counts = NULL;
	c->largest = 0;
	c->piece = NULL;
	c->npieces = 0;
	c->rows = NULL;
	c->has_none = c->scales_apart = false;
	c->root = 0;
	c->in_form = c->out_form = KERN_ELEMENTS;
	c->scale.divide = 0;
	take_scale(&c->scale.has_prescale, &c->scale.prescale, d->prescale);
	take_scale(&c->scale.has_postscale, &c->scale.postscale, d->postscale);
	op->name = d->name;
	op->shape = d->shape;
	op->adasum = false;
	op->own_counts = false;
	op->mixed = false;
	op->memory = BERTH_HOST;
	op->timeout_ms = d->timeout_ms;
	op->priority = d->priority;
	if (!d->kind || d->kind >= KIND_COUNT)
		return d->kind ? "no such kind" : "kind is not given";
	if (d->type >= TYPE_COUNT)
		return "no such type";
	if (d->op >= OP_COUNT)
		return "no such op";
	if (d->memory > BERTH_HOST || d->ready || d->stream || device_is_there)
		wrong = take_device(op, d);
	if (wrong)
		return wrong;
	if (has_root(c->kind) || op_is_message(op))
		wrong = take_root(op, d, n);
	if (c->kind >= BERTH_REDUCESCATTER)
		take_counts(op, d, n);
	if (!wrong && op_is_device(op) && op->own_counts && c->in == c->out && c->count)
		wrong = op_not_there; /* it would need memory for what is given */
	if (!wrong)
		wrong = check_counts(c, n, me);
	if (!wrong)
		wrong = check_buffers(op, d, n, me);
	return wrong ? wrong : take_op(op, d, n);
}

const char op_unknown[] = "it has fields that this version of libberth does not know";

const char op_not_there[] = "of device memory, that is not in this version";

const char *op_make(struct op *op, const struct berth_desc *d, unsigned n, unsigned me)
{
	const char *wrong;
	struct berth_desc whole;

	if (d->size > sizeof *d && fields_are_unknown(d, d->size, sizeof *d))
		return op_unknown;
	if (d->size < sizeof *d) { /* a caller of an earlier version */
		memset(&whole, 0, sizeof whole);
		memcpy(&whole, d, d->size);
		d = &whole;
	}
	wrong = op_make_checked(op, d, n, me);
	if (!wrong)
		op->coll.signature = op_sign(op, n);
	return wrong;
}

/* ---- words and records ---- */

static bool has_counts(const struct op *op)
{
	return op->coll.in_counts || op->coll.out_counts || op->own_counts;
}

static const char *const kind_name[KIND_COUNT] = { KIND_NAMES };

const char *op_kind_name(berth_kind kind)
{
	return kind_name[kind < KIND_COUNT ? kind : 0];
}

void op_words(char *text, size_t bytes, const struct op *op)
{
	const struct coll *c = &op->coll;
	const bool is_there = op_is_device(op) && !op->mixed;
	char name[80] = "", count[24] = "", rest[120] = "", shape[140] = "";

	if (op->name && !strncmp(op->name, "berth_set_", 10)) { /* as set.c calls it */
		snprintf(text, bytes, "%s", op->name);
		return;
	}
	if (op->name && *op->name)
		snprintf(name, sizeof name, " \"%.70s\"", op->name);
	if (c->kind == BERTH_BARRIER) {
		snprintf(text, bytes, "barrier%s%s", name,
			 is_there ? ", on the GPU" : "");
		return;
	}
	if (c->kind == BERTH_RECV && op->peer == BERTH_ANY)
		snprintf(rest, sizeof rest, " from any rank");
	else if (c->kind == BERTH_BROADCAST || c->kind == BERTH_SCATTER ||
		 c->kind == BERTH_RECV)
		snprintf(rest, sizeof rest, " from rank %u", c->root);
	else if (has_root(c->kind) || c->kind == BERTH_SEND)
		snprintf(rest, sizeof rest, " to rank %u", c->root);
	if (coll_reduces(c->kind)) {
		size_t n = strlen(rest);

		snprintf(rest + n, sizeof rest - n, ", %s",
			 op->adasum        ? "adasum"
			 : c->scale.divide ? "avg"
					   : kern_op_name(c->op));
	}
	if (is_scaled(c)) {
		size_t n = strlen(rest);

		snprintf(rest + n, sizeof rest - n, ", scaled by %g and %g",
			 c->scale.has_prescale ? c->scale.prescale : 1,
			 c->scale.has_postscale ? c->scale.postscale : 1);
	}
	/* COUNT is the same on all ranks, or a message's */
	if (c->kind == BERTH_REDUCESCATTER ||
	    (!has_counts(op) && c->kind != BERTH_RECV))
		snprintf(count, sizeof count, "%llu ", (unsigned long long)c->count);
	if (op->shape && *op->shape)
		snprintf(shape, sizeof shape, ", shape \"%.120s\"", op->shape);
	snprintf(text, bytes, "%s%s of %s%s%s%s%s%s", kind_name[c->kind], name, count,
		 kern_type_name(c->type), rest, shape,
		 has_counts(op) ? ", with counts" : "",
		 is_there ? ", in memory of a GPU" : "");
}

/* The bits of a scale; those of 1 where there is none. */
static unsigned long long scale_code(bool has, double scale)
{
	return op_bits(has ? scale : 1);
}

static void take_scale_code(bool *has, double *scale, unsigned long long code)
{
	double x;

	memcpy(&x, &code, sizeof x);
	take_scale(has, scale, &x);
}

void op_encode(char *text, const struct op *op)
{
	const struct coll *c = &op->coll;
	int n = snprintf(text, OP_CODE_BYTES,
			 "%d %d %d %llu %u %d %u %u %d %llx %llx\n", (int)c->kind,
			 (int)c->type, (int)c->op, (unsigned long long)c->count,
			 c->root, op->adasum, c->scale.divide, c->signature,
			 op->mixed ? MIXED_CODE : (int)op->memory,
			 scale_code(c->scale.has_prescale, c->scale.prescale),
			 scale_code(c->scale.has_postscale, c->scale.postscale));

	op_words(text + n, OP_CODE_BYTES - (size_t)n, op);
}

/* Could op_make() have made it in a set of N ranks? */
static bool is_sound(const struct op *op, unsigned n)
{
	const struct coll *c = &op->coll;

	if (!c->kind || c->kind >= BERTH_SEND || c->type >= TYPE_COUNT ||
	    op->memory > BERTH_CUDA || c->op >= OP_COUNT ||
	    c->count > UINT64_MAX / 16 / n || c->root >= n)
		return false;
	if (op->adasum && (c->kind != BERTH_ALLREDUCE || c->op != BERTH_SUM ||
			   c->scale.divide || !is_float(c->type)))
		return false;
	if (c->scale.divide &&
	    (c->scale.divide != n || c->op != BERTH_SUM || c->type == BERTH_BOOL))
		return false;
	if (!coll_reduces(c->kind))
		return !is_scaled(c);
	return kern_is_defined(c->type, c->op) &&
	       !(is_scaled(c) && c->op >= BERTH_BAND);
}

berth_result op_decode(struct op *op, const char *text, unsigned n, const char **words)
{
	int adasum;
	unsigned long long count, before, after;
	unsigned kind, type, o, root, divide, signature, memory;
	const char *line = strchr(text, '\n');

	*words = line ? line + 1 : text;
	memset(op, 0, sizeof *op);
	if (!line || sscanf(text, "%u %u %u %llu %u %d %u %u %u %llx %llx", &kind,
			    &type, &o, &count, &root, &adasum, &divide, &signature,
			    &memory, &before, &after) != 11)
		return BERTH_INVALID;
	op->coll.kind = (enum berth_kind)kind;
	op->coll.type = (berth_type)type;
	op->coll.op = (berth_op)o;
	op->coll.count = count;
	op->coll.root = root;
	op->coll.signature = signature;
	op->coll.scale.divide = divide;
	op->mixed = memory == MIXED_CODE;
	op->memory = op->mixed ? BERTH_HOST : (berth_memory)memory;
	take_scale_code(&op->coll.scale.has_prescale, &op->coll.scale.prescale, before);
	take_scale_code(&op->coll.scale.has_postscale, &op->coll.scale.postscale,
			after);
	op->adasum = adasum;
	return is_sound(op, n) ? BERTH_OK : BERTH_INVALID;
}

/* ---- what changes nothing ---- */

static void fill_bytes(unsigned char *p, size_t size, uint64_t n, const void *element)
{
	for (uint64_t i = 0; i < n; i++)
		memcpy(p + i * size, element, size);
}

static void fill_integers(void *p, const struct coll *c, uint64_t n)
{
	size_t size = kern_size(c->type);
	bool has_sign = c->type == BERTH_I8 || c->type == BERTH_I16 ||
			c->type == BERTH_I32 || c->type == BERTH_I64;
	uint64_t all = UINT64_MAX >> (64 - 8 * size), x = 0;

	if (c->type == BERTH_BOOL)
		all = 1;
	if (c->op == BERTH_BAND || (c->op == BERTH_MIN && !has_sign))
		x = all;
	else if (c->op == BERTH_MIN)
		x = all >> 1;
	else if (c->op == BERTH_MAX && has_sign)
		x = (all >> 1) + 1;
	else if (c->op == BERTH_PRODUCT)
		x = 1;
	fill_bytes(p, size, n, &x);
}

static void fill_floats(void *p, const struct coll *c, uint64_t n)
{
	enum { E4M3_LARGEST = 448 }; /* which has no infinity */
	double x = c->op == BERTH_PRODUCT ? 1 : 0;
	const double most = c->type == BERTH_F8_E4M3 ? E4M3_LARGEST : (double)INFINITY;
	float narrow;
	unsigned char one[8];
	struct kern k;

	if (c->op == BERTH_MIN || c->op == BERTH_MAX)
		x = c->op == BERTH_MIN ? most : -most;
	narrow = (float)x;
	kern_make(&k, c->type, BERTH_SUM, NULL, KERN_PARTIAL, KERN_ELEMENTS);
	kern_reduce(
		&k, &(void *){ one }, 1,
		&(const void *){ c->type == BERTH_F64 ? (const void *)&x : &narrow }, 1,
		1, false);
	fill_bytes(p, kern_size(c->type), n, one);
}

void op_fill_neutral(void *p, const struct coll *c, uint64_t n)
{
	if (!coll_reduces(c->kind))
		memset(p, 0, n * kern_size(c->type));
	else if (is_float(c->type))
		fill_floats(p, c, n);
	else
		fill_integers(p, c, n);
}
