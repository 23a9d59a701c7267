#include "launcher/cli/options.h"

#include <unistd.h>

#include "common/wire.h"
#include "launcher/cli/build.h"
#include "launcher/cli/config.h"
#include "launcher/cli/compat.h"
#include "launcher/cli/exports.h"
#include "launcher/cli/growing.h"
#include "launcher/cli/help.h"
#include "launcher/cli/roles.h"
#include "launcher/cli/script.h"
#include "launcher/cli/values.h"
#include "launcher/cli/variables.h"

/* One option of the command line.  Either option or compat is set. */
struct given {
	const struct option *option;
	const struct compat *compat;
	char *typed;          /* "-np", without the value */
	const char *value[2]; /* inside argv */
	size_t app;
};

struct line {
	char **argv; /* NULL-terminated; words that are not read yet */
	struct given *v;
	size_t n;
	const struct given *prints; /* --help and the like; no word behind it is read */
};

static void app_free(struct app *a)
{
	strv_free(&a->argv);
	strv_free(&a->export);
	free(a->np_from);
	free(a->wdir);
	hosts_free(&a->hosts);
	free(a->hosts_from);
	free(a->per_host_from);
	*a = (struct app){ 0 };
}

void options_free(struct request *r)
{
	for (size_t i = 0; i < r->napp && r->app; i++)
		app_free(&r->app[i]);
	free(r->app);
	hosts_free(&r->hosts);
	free(r->hosts_from);
	free(r->hostfile);
	strv_free(&r->rank_hosts);
	free(r->per_host_from);
	strv_free(&r->env.export);
	strv_free(&r->env.forward);
	free(r->env.file);
	free(r->reach.identity);
	free(r->reach.agent);
	free(r->berth_folder);
	free(r->reach.net);
	free(r->output.dir);
	rank_set_free(&r->output.show);
	free(r->events_file);
	for (size_t i = 0; i < REPORT_FORMS; i++)
		free(r->insight.report[i]);
	free(r->insight.timeline.file);
	free(r->reach.health);
	free(r->growing.script);
	strv_free(&r->topology);
	strv_free(&r->topology_host);
	strv_free(&r->gpus);
	*r = (struct request){ 0 };
}

/* ---- the command line as a list of options and values ---- */

/* E_OPTION, with a name as the hint: one that begins with TYPED, else the nearest. */
static int unknown_option(const char *typed, struct err *e)
{
	const char *word = typed + strspn(typed, "-"), *near = NULL, *list, *name;
	const size_t length = strlen(word);
	struct strv names = { 0 }; /* every spelling, our own first */
	size_t n;

	for (size_t i = 0; i < option_count + compat_count; i++) {
		list = i < option_count ? option_table[i].names
					: compat_table[i - option_count].names;
		while ((n = option_next_name(&list, &name)))
			strv_take(&names, xstrndup(name, n));
	}
	for (size_t i = 0; i < names.n && !near && length > 1; i++)
		if (!strncmp(names.v[i] + strspn(names.v[i], "-"), word, length))
			near = names.v[i];
	if (!near && length > 1) /* one letter is near to any other */
		near = str_nearest(typed, (const char *const *)names.v, names.n);
	err_set(e, E_OPTION, typed);
	if (near)
		err_hint(e, "did you mean '%s'?", near);
	strv_free(&names);
	return -1;
}

/* The values of G: first TIED, which followed '=' or the name itself, then words.  NO:
 * G is the opposite of a switch. */
static int take_values(struct line *l, struct given *g, bool no, const char *tied,
		       struct err *e)
{
	static const char *const several[] = { "", "VALUE", "NAME VALUE" };
	const unsigned flags = g->option ? g->option->flags : g->compat->flags;
	const char *what = g->option ? g->option->arg : several[g->compat->args];
	int needed = g->compat ? g->compat->args : what && !(flags & OPTION_OPTIONAL);
	int n = 0;

	if (tied && (no || !(needed || flags & (OPTION_SWITCH | OPTION_OPTIONAL))))
		return err_set(e, E_OPTION_NO_VALUE, g->typed, tied);
	if (no || tied)
		g->value[n++] = no ? "no" : tied;
	while (n < needed) {
		if (!*l->argv)
			return err_set(e, E_OPTION_VALUE, g->typed, what);
		g->value[n++] = *l->argv++;
	}
	return 0;
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
	g->option = option_find(g->typed, &no);
	/* A row of its own comes before the opposite of a switch. */
	if (!g->option || no)
		g->compat = compat_find(g->typed);
	if (g->compat) {
		g->option = NULL;
		no = false;
	} else if (!g->option && !tied &&
		   (g->option = option_find_glued(word, &tied))) {
		g->typed[tied - word] = '\0';
		no = false;
	}
	return g->option || g->compat ? take_values(l, g, no, tied, e)
				      : unknown_option(g->typed, e);
}

/* Options up to the first word that is not an option, or up to "--". */
static int read_options(struct line *l, size_t app, struct err *e)
{
	while (*l->argv && (*l->argv)[0] == '-' && (*l->argv)[1] && !l->prints) {
		const char *word = *l->argv++;
		const struct given *g;
		unsigned flags;

		if (!strcmp(word, "--"))
			return 0;
		if (read_option(l, word, app, e))
			return -1;
		g = &l->v[l->n - 1];
		flags = g->option ? g->option->flags : g->compat->flags;
		if (flags & OPTION_PRINTS)
			l->prints = g;
		else if (app && !(flags & (OPTION_APP | OPTION_LATER))) {
			err_set(e, E_OPTION_APP, g->typed);
			return err_in(e, "app %zu", app + 1);
		}
	}
	return 0;
}

/* The whole command line: options to L, programs to R. */
static int options_read_line(struct line *l, struct request *r, struct err *e)
{
	for (;;) {
		struct app *a = &r->app[r->napp - 1];

		if (read_options(l, r->napp - 1, e))
			return -1;
		if (l->prints)
			return 0;
		while (*l->argv && strcmp(*l->argv, ":"))
			strv_add(&a->argv, *l->argv++);
		if (!*l->argv && (a->argv.n || r->napp == 1))
			return 0; /* options_read() judges a job without a program */
		if (!a->argv.n) {
			err_set(e, E_PROGRAM);
			return err_in(e, "app %zu", r->napp);
		}
		l->argv++;
		r->app = xreallocarray(r->app, r->napp + 1, sizeof *r->app);
		r->app[r->napp++] = (struct app){ 0 };
	}
}

/* ---- values in the order of their sources ---- */

static int apply_line(const struct setting *all, const struct line *l, struct err *e)
{
	for (size_t i = 0; i < l->n; i++) {
		const struct given *g = &l->v[i];
		struct setting s = *all;
		int rc;

		s.app = &s.r->app[g->app];
		s.option = g->option;
		s.typed = s.from = g->typed;
		if (g->compat)
			rc = g->compat->read(&s, g->compat, g->value, e);
		else
			rc = g->option->set ? g->option->set(&s, g->value[0], e) : 0;
		if (rc && e && e->id != E_FOREIGN && e->id != E_TWO_HOSTS &&
		    e->id != E_APP_FILE) {
			err_in(e, "%s", g->typed);
			if (g->app && g->option && g->option->set == value_hosts)
				err_in(e, "app %zu", g->app + 1);
		}
		if (rc)
			return -1;
	}
	return 0;
}

/* srun's -N is the number of hosts, ours is that of mpirun.  Other options tell that
 * the line was written for srun. */
static void warn_of_n(const struct setting *all, const struct line *l)
{
	static const char own[] = "ntasks ntasks-per-node export chdir label";
	const struct given *n = NULL;
	bool of_srun = false;
	struct err e;

	for (size_t i = 0; i < l->n; i++) {
		const struct given *g = &l->v[i];

		of_srun |= g->compat ? strstr(g->compat->tool, "srun") != NULL
				     : option_named(own, g->typed);
		n = !strcmp(g->typed, "-N") ? g : n;
	}
	if (!n || !of_srun)
		return;
	err_set(&e, E_SRUN_N, n->value[0]);
	value_warn(all->notes, &e);
}

static const char *env_value(char *const *env, const char *name)
{
	size_t n = strlen(name);

	for (; env && *env; env++)
		if (!strncmp(*env, name, n) && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

/* Variables.  If an option may be repeated, spaces separate the values in its variable.
 * An empty variable does not count: job scripts write BERTH_HOSTS=$LIST. */
static int apply_env(const struct setting *all, char *const *env, struct err *e)
{
	struct setting s = *all;
	int rc = 0;

	for (size_t i = 0; i < option_count && !rc; i++) {
		const struct option *o = &option_table[i];
		const char *value = o->env && o->set ? env_value(env, o->env) : NULL;
		char *copy, *rest, *part;

		if (!value || !*value)
			continue;
		s.option = o;
		s.typed = s.from = o->env;
		copy = rest = xstrdup(value);
		if (!(o->flags & OPTION_MANY))
			rc = o->set(&s, value, e);
		else
			while (!rc && (part = strsep(&rest, " \t\n")))
				rc = *part ? o->set(&s, part, e) : 0;
		free(copy);
		if (rc && e && e->id != E_TWO_HOSTS)
			err_in(e, "%s", o->env);
	}
	return rc;
}

/* The files of the site, of the user, and of --config-file, else BERTH_CONFIG_FILE. */
static int apply_files(struct setting *s, const char *site, const struct line *l,
		       char *const *env, struct err *e)
{
	const char *file = env_value(env, "BERTH_CONFIG_FILE");
	const char *config = env_value(env, "XDG_CONFIG_HOME");
	const char *home = env_value(env, "HOME");
	char *user = NULL;
	int rc = 0;

	if (config && *config == '/')
		user = xasprintf("%s/berth/config", config);
	else if (home && *home)
		user = xasprintf("%s/.config/berth/config", home);
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].option &&
		    option_named(l->v[i].option->names, "config-file"))
			file = l->v[i].value[0];
	s->source = FROM_SITE;
	if (site)
		rc = config_read_file(s, site, false, e);
	s->source = FROM_USER;
	if (!rc && user)
		rc = config_read_file(s, user, false, e);
	s->source = FROM_FILE;
	if (!rc && file && *file)
		rc = config_read_file(s, file, true, e);
	free(user);
	return rc;
}

static int options_apply(struct request *r, struct strv *notes, const char *site,
			 const struct line *l, char *const *env, struct err *e)
{
	struct app base = { 0 }; /* values for apps from variables and files */
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
		warn_of_n(&s, l);
	for (size_t i = 0; i < r->napp && !rc; i++) {
		if (!r->app[i].wdir && base.wdir)
			r->app[i].wdir = xstrdup(base.wdir);
		if (r->app[i].tf_role == TF_UNSAID)
			r->app[i].tf_role = base.tf_role;
	}
	/* A number of ranks makes no sense for each of several apps. */
	if (!rc && r->napp == 1 && !r->app->np && base.np) {
		r->app->np = base.np;
		r->app->np_from = base.np_from;
		base.np_from = NULL;
	}
	app_free(&base);
	if (!rc)
		variables_warn(notes, env);
	if (!rc)
		exports_settle(r, notes, env);
	if (!rc)
		rc = compat_settle(r, notes, e);
	if (!rc)
		rc = roles_settle(r, notes, env, e);
	if (!rc)
		rc = growing_settle(r, e);
	if (r->insight.top && isatty(STDIN_FILENO))
		r->stdin_rank = STDIN_NONE; /* its keys are for the table */
	return rc;
}

/* --help, --version, --check-build, --print. */
static int print_for(struct str *print, const struct given *g, const char *next,
		     struct err *e)
{
	static const char *const forms[] = { "tables", NULL };
	const char *names = g->option->names;

	if (option_named(names, "version"))
		str_addf(print, "runner %s\n", BERTH_VERSION);
	else if (option_named(names, "check-build"))
		build_print(print);
	else if (option_named(names, "help"))
		return help_print(print, g->value[0] ? g->value[0] : next, e);
	else if (strcmp(g->value[0], forms[0]) != 0)
		return value_none_of(g->value[0], forms, e);
	else
		help_tables(print);
	return 0;
}

/* A link of this name to runner: the scripts behind it import horovod. */
static bool is_horovodrun(const char *name)
{
	const char *slash = name ? strrchr(name, '/') : NULL;

	return name && !strcmp(slash ? slash + 1 : name, "horovodrun");
}

enum options_do options_read(struct request *r, struct strv *notes, struct str *print,
			     const char *site, int argc, char **argv, char *const *env,
			     struct err *e)
{
	struct line l = { .argv = argv + (argc > 0) };
	enum options_do result = OPTIONS_FAILED;

	*r = (struct request){
		.app = xcalloc(1, sizeof *r->app),
		.napp = 1,
		.reach.start_timeout_ms = 30000,
		.reach.host_timeout_ms = 60000,
		.kill_grace_ms = 10000,
		.growing = { .timeout_ms = 600000, .cooldown_ms = { 60000, 3600000 } },
		.lives.hang = { .ms = 300000, .on = ON_HANG_NOT_GIVEN },
		.output.show.all = true,
		.insight.timeline = { .first_step = 1, .last_step = UINT32_MAX },
		.bind_count = 1,
		.horovod = is_horovodrun(argv[0]) ? HOROVOD_BERTH : HOROVOD_INSTALLED,
	};
	r->env.options = options_env_names(&r->env.noptions);
	if (options_read_line(&l, r, e))
		goto out;
	if (l.prints && l.prints->option->flags & OPTION_FILE) {
		strv_add(&r->app->argv, l.prints->value[0]);
		while (*l.argv)
			strv_add(&r->app->argv, *l.argv++);
		result = option_named(l.prints->option->names, "lint") ? OPTIONS_LINT
			 : option_named(l.prints->option->names, "trace-merge")
				 ? OPTIONS_TRACE
				 : OPTIONS_NCCL_LOG;
	} else if (l.prints && option_named(l.prints->option->names, "dump")) {
		if (l.prints->value[0] || *l.argv)
			strv_add(&r->app->argv,
				 l.prints->value[0] ? l.prints->value[0] : *l.argv);
		result = OPTIONS_DUMP;
	} else if (l.prints) {
		if (!print_for(print, l.prints, *l.argv, e))
			result = OPTIONS_PRINTED;
	} else if (options_apply(r, notes, site, &l, env, e)) {
		goto out;
	} else if (!r->app->argv.n && !r->plan && !r->topology.n) {
		err_set(e, E_PROGRAM);
	} else {
		script_prefix(r, env_value(env, "PATH"));
		result = OPTIONS_RUN;
	}
out:
	for (size_t i = 0; i < l.n; i++)
		free(l.v[i].typed);
	free(l.v);
	return result;
}
