/* launcher/job/plan_draw.h: what goes to lstopo, and what comes back.
 * takes_s: 0 */
#include <check.h>

#include "launcher/job/plan_draw.h"

START_TEST(no_markup_is_left)
{
	char text[] = "<info name=\"a\" value=\"&lt;b&gt; &#60; it's\"/>";

	plan_draw_clean(text);
	ck_assert_str_eq(text, "<info name=\"a\" value=\"_lt;b_gt; _#60; it_s\"/>");
}
END_TEST

START_TEST(images_in_a_stack)
{
	struct str v[2] = { { 0 } }, out = { 0 };

	str_add(&v[0], "<?xml?>\n<svg xmlns='x' width='30px' height='20px'>A</svg>\n");
	str_add(&v[1], "<svg width='50px' height='5px'>B</svg>");
	ck_assert(plan_draw_stack(&out, v, 2));
	ck_assert_str_eq(str_text(&out),
			 "<svg xmlns='http://www.w3.org/2000/svg' width='50px' "
			 "height='35px'>\n"
			 "<svg y='0' xmlns='x' width='30px' height='20px'>A</svg>\n\n"
			 "<svg y='30' width='50px' height='5px'>B</svg>\n"
			 "</svg>\n");
	str_free(&v[1]);
	str_add(&v[1], "<svg height='5px'>B</svg>");
	ck_assert(!plan_draw_stack(&out, v, 2));
	str_free(&v[0]);
	str_free(&v[1]);
	str_free(&out);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("job_plan_draw");
	TCase *t = tcase_create("plan_draw");
	SRunner *runner;
	int failed;

	tcase_add_test(t, no_markup_is_left);
	tcase_add_test(t, images_in_a_stack);
	suite_add_tcase(s, t);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
