#include "launcher/cli/options.h"

#include "common/wire.h"
#include "launcher/cli/config.h"
#include "launcher/cli/compat.h"
#include "launcher/cli/help.h"
#include "launcher/cli/values.h"

/* One option as it stands on the command line; either option or compat is set. */
struct given {
	const struct option *option;
	const struct compat *compat;
	char *typed;          /* "-np", without the value */
	const char *value[2]; /* inside argv */
	size_t app;
};

struct line {
	char **argv; /* NULL-terminated; what is still to be read */
	struct given *v;
	size_t n;
};

void options_default(struct request *r)
{
	*r = (struct request){
		.napp = 1,
		.start_timeout_s = 30,
		.host_timeout_s = 60,
		.kill_grace_s = 10,
		.show.all = true,
		.tag = true,
		.bind_count = 1,
	};
	r->app = xcalloc(1, sizeof *r->app);
	r->option_variables = options_env_names(&r->noption_variables);
}

static void app_free(struct app *a)
{
	strv_free(&a->argv);
	strv_free(&a->export);
	free(a->np_from);
	free(a->wdir);
	*a = (struct app){ 0 };
}

void options_free(struct request *r)
{
	for (size_t i = 0; i < r->napp && r->app; i++)
		app_free(&r->app[i]);
	free(r->app);
	free(r->hosts);
	free(r->hosts_from);
	free(r->hostfile);
	free(r->per_host_from);
	strv_free(&r->export);
	free(r->env_file);
	free(r->identity);
	free(r->launch_agent);
	free(r->output_dir);
	rank_set_free(&r->show);
	free(r->events_file);
	strv_free(&r->topology);
	free(r->gpus);
	*r = (struct request){ 0 };
}

/* ---- the command line to a list of what was given ---- */

/* Every spelling of every option, our own first. */
static struct strv all_names(void)
{
	struct strv names = { 0 };
	const char *list, *name;
	size_t n;

	for (size_t i = 0; i < option_count + compat_count; i++) {
		list = i < option_count ? option_table[i].names
					: compat_table[i - option_count].names;
		while ((n = option_next_name(&list, &name)))
			strv_take(&names, xstrndup(name, n));
	}
	return names;
}

/* The first of NAMES that goes on where TYPED stops, or NULL. */
static const char *longer_name(const char *typed, const struct strv *names)
{
	const char *word = typed + strspn(typed, "-");

	for (size_t i = 0; i < names->n; i++)
		if (!strncmp(names->v[i] + strspn(names->v[i], "-"), word,
			     strlen(word)))
			return names->v[i];
	return NULL;
}

/* E_OPTION with the name that was probably meant: the nearest, or a longer one. */
static int unknown_option(const char *typed, struct err *e)
{
	struct strv names = all_names();
	const char *near = NULL;

	err_set(e, E_OPTION, typed);
	if (strlen(typed + strspn(typed, "-")) > 1) { /* one letter is near to any */
		near = str_nearest(typed, (const char *const *)names.v, names.n);
		if (!near)
			near = longer_name(typed, &names);
	}
	if (near)
		err_hint(e, "did you mean '%s'?", near);
	strv_free(&names);
	return -1;
}

/* The values of G: TIED, what stood behind '=' or right behind the name, then words. */
static int take_values(struct line *l, struct given *g, int least, const char *tied,
		       const char *what, struct err *e)
{
	int n = 0;

	if (tied)
		g->value[n++] = tied;
	while (n < least) {
		if (!*l->argv)
			return err_set(e, E_OPTION_VALUE, g->typed, what);
		g->value[n++] = *l->argv++;
	}
	return 0;
}

static int given_option(struct line *l, struct given *g, bool no, const char *tied,
			struct err *e)
{
	const struct option *o = g->option;

	if (o->flags & OPTION_SWITCH) {
		if (no && tied)
			return err_set(e, E_OPTION_NO_VALUE, g->typed, tied);
		g->value[0] = no ? "no" : tied;
		return 0;
	}
	if (!o->arg && tied && !(o->flags & OPTION_OPTIONAL))
		return err_set(e, E_OPTION_NO_VALUE, g->typed, tied);
	return take_values(l, g, o->arg && !(o->flags & OPTION_OPTIONAL), tied, o->arg,
			   e);
}

static int given_compat(struct line *l, struct given *g, const char *tied,
			struct err *e)
{
	static const char *const what[] = { "", "VALUE", "NAME VALUE" };

	if (tied && !g->compat->args)
		return err_set(e, E_OPTION_NO_VALUE, g->typed, tied);
	return take_values(l, g, g->compat->args, tied, what[g->compat->args], e);
}

/* Read the option WORD and its values into a new row of L. */
static int read_option(struct line *l, const char *word, size_t app, struct err *e)
{
	size_t n = strcspn(word, "=");
	const char *tied = word[n] ? word + n + 1 : NULL;
	struct given *g;
	bool no = false;

	l->v = xreallocarray(l->v, l->n + 1, sizeof *l->v);
	g = &l->v[l->n++];
	*g = (struct given){ .typed = xstrndup(word, n), .app = app };
	g->compat = NULL;
	g->option = option_find(g->typed, &no);
	if (no) { /* a spelling that is a row of its own goes before a made-up opposite
		   */
		g->compat = compat_find(g->typed);
		if (g->compat)
			g->option = NULL;
	} else if (!g->option) {
		g->compat = compat_find(g->typed);
	}
	if (!g->option && !g->compat && !tied &&
	    (g->option = option_find_glued(word, &tied)))
		g->typed[tied - word] = '\0';
	if (g->option)
		return given_option(l, g, no, tied, e);
	if (g->compat)
		return given_compat(l, g, tied, e);
	return unknown_option(g->typed, e);
}

/* Options up to the first word that is none, or behind "--". */
static int read_options(struct line *l, size_t app, struct err *e)
{
	while (*l->argv && (*l->argv)[0] == '-' && (*l->argv)[1]) {
		const char *word = *l->argv++;

		if (!strcmp(word, "--"))
			return 0;
		if (read_option(l, word, app, e))
			return -1;
		if (l->v[l->n - 1].option &&
		    l->v[l->n - 1].option->flags & OPTION_PRINTS)
			return 0; /* whatever follows is not read */
	}
	return 0;
}

/* The program of app A and its words, up to a ":" or the end. */
static void read_program(struct line *l, struct app *a)
{
	while (*l->argv && strcmp(*l->argv, ":"))
		strv_add(&a->argv, *l->argv++);
}

static const struct given *printing(const struct line *l)
{
	const struct given *last = l->n ? &l->v[l->n - 1] : NULL;

	return last && last->option && last->option->flags & OPTION_PRINTS ? last
									   : NULL;
}

/* What may stand in a later app. */
static int check_app_option(const struct given *g, struct err *e)
{
	unsigned flags = g->option ? g->option->flags : g->compat->flags;

	if (flags & (OPTION_APP | OPTION_PRINTS))
		return 0;
	err_set(e, E_OPTION_APP, g->typed);
	return err_in(e, "app %zu", g->app + 1);
}

/* The whole command line: options to L, programs to R. */
static int read_line(struct line *l, struct request *r, struct err *e)
{
	for (;;) {
		struct app *a = &r->app[r->napp - 1];
		size_t before = l->n;

		if (read_options(l, r->napp - 1, e))
			return -1;
		for (size_t i = before; i < l->n && r->napp > 1; i++)
			if (check_app_option(&l->v[i], e))
				return -1;
		if (printing(l))
			return 0;
		read_program(l, a);
		if (!*l->argv && (a->argv.n || r->napp == 1))
			return 0; /* a job without any program is judged later */
		if (!a->argv.n) {
			err_set(e, E_PROGRAM);
			return err_in(e, "app %zu", r->napp);
		}
		l->argv++;
		r->app = xreallocarray(r->app, r->napp + 1, sizeof *r->app);
		r->app[r->napp++] = (struct app){ 0 };
	}
}

static void line_free(struct line *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i].typed);
	free(l->v);
	*l = (struct line){ 0 };
}

/* ---- values in their order ---- */

static int apply_given(const struct setting *all, const struct given *g, struct err *e)
{
	struct setting s = *all;
	int rc;

	s.app = &s.r->app[g->app];
	s.option = g->option;
	s.typed = s.from = g->typed;
	if (g->option)
		rc = g->option->set ? g->option->set(&s, g->value[0], e) : 0;
	else
		rc = g->compat->read(&s, g->compat, g->value, e);
	if (rc && e && e->id != E_FOREIGN && e->id != E_TWO_HOSTS)
		err_in(e, "%s", g->typed);
	return rc ? -1 : 0;
}

static int apply_line(const struct setting *all, const struct line *l, struct err *e)
{
	for (size_t i = 0; i < l->n; i++)
		if (apply_given(all, &l->v[i], e))
			return -1;
	return 0;
}

static const char *env_value(char *const *env, const char *name)
{
	size_t n = strlen(name);

	for (; env && *env; env++)
		if (!strncmp(*env, name, n) && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

/* One variable, parted at blanks where an option may be given many times. */
static int apply_variable(struct setting *s, const char *value, struct err *e)
{
	char *copy = xstrdup(value), *rest = copy, *part;
	int rc = 0;

	s->typed = s->from = s->option->env;
	if (!(s->option->flags & OPTION_MANY))
		rc = s->option->set(s, value, e);
	else
		while (!rc && (part = strsep(&rest, " \t\n")))
			rc = *part ? s->option->set(s, part, e) : 0;
	free(copy);
	if (rc && e && e->id != E_TWO_HOSTS)
		err_in(e, "%s", s->option->env);
	return rc;
}

/* An empty variable is as good as none: job scripts write BERTH_HOSTS=$LIST. */
static int apply_env(const struct setting *all, char *const *env, struct err *e)
{
	struct setting s = *all;

	for (size_t i = 0; i < option_count; i++) {
		const char *value;

		s.option = &option_table[i];
		if (!s.option->env || !s.option->set)
			continue;
		value = env_value(env, s.option->env);
		if (value && *value && apply_variable(&s, value, e))
			return -1;
	}
	return 0;
}

/* The file of --config-file, else BERTH_CONFIG_FILE, or NULL. */
static const char *config_file(const struct line *l, char *const *env)
{
	const char *file = env_value(env, "BERTH_CONFIG_FILE");

	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].option &&
		    option_named(l->v[i].option->names, "config-file"))
			file = l->v[i].value[0];
	return file && *file ? file : NULL;
}

/* The user's own file, NULL without a home; the caller frees it. */
static char *user_file(char *const *env)
{
	const char *config = env_value(env, "XDG_CONFIG_HOME");
	const char *home = env_value(env, "HOME");

	if (config && *config == '/')
		return xasprintf("%s/berth/config", config);
	return home && *home ? xasprintf("%s/.config/berth/config", home) : NULL;
}

static int apply_files(struct setting *s, const char *site, const struct line *l,
		       char *const *env, struct err *e)
{
	const char *file = config_file(l, env);
	char *user = user_file(env);
	int rc = 0;

	s->source = FROM_SITE;
	if (site)
		rc = config_read_file(s, site, false, e);
	s->source = FROM_USER;
	if (!rc && user)
		rc = config_read_file(s, user, false, e);
	s->source = FROM_FILE;
	if (!rc && file)
		rc = config_read_file(s, file, true, e);
	free(user);
	return rc;
}

/* -np and --wdir of variables and files, for apps that don't say it themselves.  A
 * number of ranks makes no sense for each of several apps. */
static void inherit(struct request *r, struct app *base)
{
	for (size_t i = 0; i < r->napp; i++)
		if (!r->app[i].wdir && base->wdir)
			r->app[i].wdir = xstrdup(base->wdir);
	if (r->napp > 1 || r->app->np || !base->np)
		return;
	r->app->np = base->np;
	r->app->np_from = base->np_from;
	base->np_from = NULL;
}

static int apply(struct request *r, struct strv *notes, const char *site,
		 const struct line *l, char *const *env, struct err *e)
{
	struct app base = { 0 };
	enum source hosts = FROM_DEFAULT;
	struct setting s = { .r = r, .app = &base, .hosts = &hosts, .notes = notes };
	int rc = apply_files(&s, site, l, env, e);

	s.source = FROM_ENV;
	if (!rc)
		rc = apply_env(&s, env, e);
	s.source = FROM_LINE;
	if (!rc)
		rc = apply_line(&s, l, e);
	if (!rc)
		inherit(r, &base);
	app_free(&base);
	return rc;
}

/* --help, --version, --print. */
static int print_for(struct str *print, const struct given *g, const char *next,
		     struct err *e)
{
	static const char *const tables[] = { "tables", NULL };
	const char *names = g->option->names;

	if (option_named(names, "version"))
		str_addf(print, "runner %s\n", BERTH_VERSION);
	else if (option_named(names, "help"))
		return help_print(print, g->value[0] ? g->value[0] : next, e);
	else if (!strcmp(g->value[0], tables[0]))
		help_tables(print);
	else
		return value_none_of(g->value[0], tables, e);
	return 0;
}

enum options_do options_read_site(struct request *r, struct strv *notes,
				  struct str *print, const char *site, int argc,
				  char **argv, char *const *env, struct err *e)
{
	struct line l = { .argv = argv + (argc > 0) };
	enum options_do result = OPTIONS_FAILED;
	const struct given *prints;

	options_default(r);
	if (read_line(&l, r, e))
		goto out;
	prints = printing(&l);
	if (prints) {
		if (!print_for(print, prints, *l.argv, e))
			result = OPTIONS_PRINTED;
		goto out;
	}
	if (apply(r, notes, site, &l, env, e))
		goto out;
	if (!r->app->argv.n && !r->plan && !r->topology.n)
		err_set(e, E_PROGRAM);
	else
		result = OPTIONS_RUN;
out:
	line_free(&l);
	return result;
}

enum options_do options_read(struct request *r, struct strv *notes, struct str *print,
			     int argc, char **argv, char *const *env, struct err *e)
{
	return options_read_site(r, notes, print, OPTIONS_SITE_FILE, argc, argv, env,
				 e);
}
