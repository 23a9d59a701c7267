#include "launcher/cli/roles.h"

#include "launcher/cli/values.h"

int value_tf_config(const struct setting *s, const char *value, struct err *e)
{
	const char *const *choices = s->option->choices; /* from TF_OUT on */

	if (value_choice(s, value ? value : choices[TF_WORKER - TF_OUT], e))
		return -1;
	s->app->tf_role += TF_OUT;
	return 0;
}

static const char variable[] = "TF_CONFIG";

/* One of WORDS, which are of -x or --export, gives the variable a value.  HERE: it has
 * one in this environment. */
static bool any_gives_variable(const struct strv *words, bool here)
{
	bool any = false;

	for (size_t i = 0; i < words->n; i++) {
		const char *word = words->v[i];
		const size_t n = strcspn(word, "=*");

		if (word[n] == '*')
			any |= here && !strncmp(word, variable, n);
		else if (n == sizeof variable - 1 && !memcmp(word, variable, n))
			any |= word[n] || here;
	}
	return any;
}

/* The ranks of some program get a value for the variable from the user. */
static bool has_own_variable(const struct request *r, char *const *env)
{
	bool here = false, any;

	for (; env && *env; env++)
		here |= !strncmp(*env, variable, sizeof variable - 1) &&
			(*env)[sizeof variable - 1] == '=';
	any = (here && !r->env.forward_listed) ||
	      any_gives_variable(&r->env.forward, here) ||
	      any_gives_variable(&r->env.export, here);
	for (size_t i = 0; i < r->napp; i++)
		any |= any_gives_variable(&r->app[i].export, here);
	return any;
}

int roles_settle(struct request *r, struct strv *notes, char *const *env, struct err *e)
{
	bool trains = false;
	struct err given;

	for (size_t i = 0; i < r->napp; i++)
		r->env.tf_config |= r->app[i].tf_role > TF_OUT;
	if (!r->env.tf_config)
		return 0;
	for (size_t i = 0; i < r->napp; i++) {
		if (r->app[i].tf_role == TF_UNSAID)
			r->app[i].tf_role = TF_WORKER;
		trains |=
			r->app[i].tf_role == TF_WORKER || r->app[i].tf_role == TF_CHIEF;
	}
	if (r->horovod == HOROVOD_BERTH)
		return err_set(e, E_TF_HOROVOD);
	if (!trains)
		return err_set(e, E_TF_ROLES, "no program is a worker or a chief");
	if (has_own_variable(r, env)) {
		err_set(&given, E_TF_GIVEN);
		value_warn(notes, &given);
	}
	return 0;
}
