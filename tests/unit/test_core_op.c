/* lib/core/op: the code by which ranks tell others what they call for.  100,000 texts,
 * each changed in a few places, are an operation that this rank can do, or none. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/core/op.h"

enum { RANKS = 256, TEXTS = 100000, ELEMENTS = 64 };

static uint64_t draw(uint64_t below)
{
	static uint64_t x = 88172645463325252u; /* xorshift64 */

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x % below;
}

static bool make(struct op *op, unsigned kind, unsigned type, unsigned o)
{
	static unsigned char room[ELEMENTS * RANKS];
	const double scale = draw(3) ? 1 : 0.5;
	struct berth_desc d = BERTH_DESC(.name = "grad", .in = room, .out = room + 8,
					 .count = RANKS, .prescale = &scale);

	d.type = (berth_type)type;
	d.op = (berth_op)o;
	d.root = (int)draw(RANKS);
	d.kind = (berth_kind)kind;
	return !op_make(op, &d, RANKS, 1);
}

START_TEST(all_come_back)
{
	char text[OP_CODE_BYTES];
	const char *words;
	struct op op, back;

	for (unsigned i = 0; i < KIND_COUNT * TYPE_COUNT * OP_COUNT; i++) {
		unsigned type = i / KIND_COUNT % TYPE_COUNT;

		if (!make(&op, i % KIND_COUNT, type, i / KIND_COUNT / TYPE_COUNT) ||
		    op_is_message(&op))
			continue;
		op_encode(text, &op);
		ck_assert_msg(!op_decode(&back, text, RANKS, &words), "%s", text);
		ck_assert_int_eq(back.coll.kind, op.coll.kind);
		ck_assert_int_eq(back.coll.op, op.coll.op);
		ck_assert_uint_eq(back.coll.scale.divide, op.coll.scale.divide);
		ck_assert_int_eq(back.adasum, op.adasum);
	}
}
END_TEST

/* Of one operation in two memories: signatures differ, and no more.  When the ranks
 * have mixed them, all say the same. */
START_TEST(memories_are_mixed)
{
	char text[2][OP_CODE_BYTES];
	static float x[4];
	struct berth_desc d = BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32,
					 .in = x, .out = x, .count = 4);
	const char *words;
	struct op op[2], back;

	for (int i = 0; i < 2; i++) {
		d.memory = i ? BERTH_CUDA : BERTH_HOST;
		ck_assert_ptr_null(op_make(&op[i], &d, RANKS, 1));
		op_encode(text[i], &op[i]);
		ck_assert(!op_decode(&back, text[i], RANKS, &words));
		ck_assert_uint_eq(op_alike(&back), op_alike(&op[0]));
		ck_assert(!back.mixed && op_is_work(&back) == (i == 1));
	}
	ck_assert_uint_ne(op[0].coll.signature, op[1].coll.signature);
	for (int i = 0; i < 2; i++) {
		op_mix_memories(&op[i]);
		op_encode(text[i], &op[i]);
	}
	ck_assert_uint_eq(op[0].coll.signature, op[1].coll.signature);
	ck_assert_str_eq(text[0], text[1]);
	ck_assert(!op_decode(&back, text[0], RANKS, &words));
	ck_assert(back.mixed && !op_is_device(&back) && op_is_work(&back));
}
END_TEST

/* Numbers that are near a limit, or anything. */
static void change(char *text)
{
	static const char *const values[] = {
		"0", "1", "7", "256", "4294967295", "-1", "9", "18446744073709551615"
	};
	char *at = text, rest[OP_CODE_BYTES];
	size_t field = draw(10);

	if (!draw(4)) {
		text[draw(strlen(text) + 1)] = (char)draw(256);
		return;
	}
	while (field-- && strchr(at, ' '))
		at = strchr(at, ' ') + 1;
	snprintf(rest, sizeof rest, "%s", at + strcspn(at, " \n"));
	snprintf(at, OP_CODE_BYTES - (size_t)(at - text), "%s%s", values[draw(8)],
		 rest);
}

/* What a rank that has joined does with it, but for the number of elements. */
static void take_part(const struct op *op)
{
	_Alignas(64) unsigned char in[ELEMENTS * 8], out[ELEMENTS * 8];
	const struct coll *c = &op->coll;
	struct kern k;

	ck_assert_uint_lt(c->kind, KIND_COUNT);
	ck_assert_uint_lt(c->type, TYPE_COUNT);
	ck_assert_uint_lt(c->root, RANKS);
	ck_assert_uint_le(c->count, UINT64_MAX / 16 / RANKS);
	ck_assert(!c->scale.divide || c->scale.divide == RANKS);
	ck_assert(!op->adasum || c->kind == BERTH_ALLREDUCE);
	op_fill_neutral(in, c, ELEMENTS);
	if (!coll_reduces(c->kind))
		return;
	ck_assert(coll_kern(&k, c, KERN_ELEMENTS, KERN_ELEMENTS));
	kern_reduce(&k, &(void *){ out }, 1, (const void *[]){ in, in }, 2, ELEMENTS,
		    false);
}

START_TEST(changed_texts)
{
	char text[OP_CODE_BYTES];
	const char *words;
	struct op op;
	size_t sound = 0;

	for (size_t i = 0; i < TEXTS; i++) {
		while (!make(&op, (unsigned)draw(KIND_COUNT),
			     (unsigned)draw(TYPE_COUNT), (unsigned)draw(OP_COUNT)))
			;
		op_encode(text, &op);
		for (uint64_t n = 1 + draw(3); n; n--)
			change(text);
		if (op_decode(&op, text, RANKS, &words))
			continue;
		ck_assert(words > text && words <= text + strlen(text));
		take_part(&op);
		sound++;
	}
	ck_assert_uint_gt(sound, TEXTS / 100);
	ck_assert_uint_lt(sound, TEXTS);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("op");
	TCase *t = tcase_create("op");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, all_come_back);
	tcase_add_test(t, memories_are_mixed);
	tcase_add_test(t, changed_texts);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
