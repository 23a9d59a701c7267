/* MPI: whether a program here may use it, a PMIx server for it, and what that is told
 * of the ranks.  And the acts of start.h, of which most wait for that server. */
#include "agent/agent.h"
#include "agent/placement/env.h"
#include "agent/pmi/mpi_find.h"

char *agent_program_path(const struct agent *a, size_t app)
{
	const char *path = a->start[app].program.path;

	return *path == '/' ? xstrdup(path)
			    : xasprintf("%s/%s", a->app[app].wdir, path);
}

/* The most that a program here needs, and its app. */
static enum mpi_need job_mpi_need(const struct agent *a, size_t *app)
{
	enum mpi_need most = MPI_NEED_NONE;

	for (size_t i = 0; a->start && i < a->napp; i++) {
		enum mpi_need one;
		char *path;

		if (!a->start[i].ready || a->start[i].err.id != ERR_NONE)
			continue;
		path = agent_program_path(a, i);
		one = mpi_need(path);
		free(path);
		if (a->job->flags & JOB_MPI && one == MPI_NEED_NONE)
			one = MPI_NEED_MAYBE;
		if (one > most) {
			most = one;
			*app = i;
		}
	}
	return most;
}

/* A program that is known to use PMIx gets the server's own look at the machine, with
 * its devices, and shares it among its ranks.  Others mostly use none: they wait 8 ms
 * less. */
static void open_server(struct agent *a, size_t app, enum mpi_need need)
{
	const struct env_base *env = &a->start[app].env;
	struct strv libraries = { 0 };
	char *path = agent_program_path(a, app), *xml;

	mpi_find_libpmix(&libraries, path, env_get(env, "BERTH_PMIX_LIBRARY"),
			 env_get(env, "LD_LIBRARY_PATH"));
	xml = need == MPI_NEED_PMIX ? xstrdup("") : topo_xml(&a->topo);
	server_pmix_open(
		a->ranks.server,
		&(struct server_pmix){
			.libraries = { (const char *const *)libraries.v, libraries.n },
			.topology = xml,
			.folders = a->guarded.folders });
	strv_free(&libraries);
	free(path);
	free(xml);
}

#define NO_ROOM "no socket, or no memory"

/* A server can be opened. */
static bool has_room(const struct agent *a)
{
	return a->ranks.server && a->guarded.folders;
}

static void say_no_pmix(struct agent *a, const char *why)
{
	struct err e = { 0 };

	err_set(&e, E_NO_PMIX, why);
	stream_log(&a->stream, LOG_ERROR, &e);
}

static bool needs_server(const struct agent *a)
{
	return a->mpi_need == MPI_NEED_PMIX || !(a->job->flags & JOB_PMI1);
}

/* There is no PMIx server.  False: the job cannot go on. */
static bool goes_without(struct agent *a, const char *why)
{
	struct err e = { 0 };

	if (needs_server(a)) {
		say_no_pmix(a, why);
		return false;
	}
	snprintf(e.text, sizeof e.text,
		 "no PMIx server (%.400s): ranks get PMI-1 alone", why);
	stream_log(&a->stream, LOG_NOTE, &e);
	return true;
}

/* Tells the ranks' server about them. */
static void start_server(struct agent *a)
{
	struct strv cpus = { 0 }, commands = { 0 };
	const char **wdirs = xcalloc(a->napp, sizeof *wdirs);
	const struct place_request q = agent_request(a);

	for (size_t i = 0; i < a->placement.n; i++) {
		const struct berth *b = &a->placement.v[i];
		struct str list = { 0 };

		if (b->bound)
			str_add_bits(&list, b->cpus.w, b->cpus.nwords);
		strv_take(&cpus, str_take(&list));
	}
	for (size_t i = 0; i < a->napp; i++) {
		struct str line = { 0 };

		for (size_t k = 0; k < a->app[i].argv.n; k++)
			str_addf(&line, "%s%s", k ? " " : "", a->app[i].argv.v[k]);
		strv_take(&commands, str_take(&line));
		wdirs[i] = a->app[i].wdir;
	}
	server_pmix_start(
		a->ranks.server,
		&(struct server_pmix){
			.cpus = { (const char *const *)cpus.v, cpus.n },
			.commands = { (const char *const *)commands.v, commands.n },
			.wdirs = { wdirs, a->napp },
			.oversubscribed = place_oversubscribes(&q) });
	strv_free(&cpus);
	strv_free(&commands);
	free(wdirs);
}

/* Does the launcher hear of the placement while the server starts?  It must not wait to
 * hear whether there is one, for the sake of other hosts, of --check or of a job that
 * cannot start without. */
static bool is_unwatched(const struct agent *a)
{
	return a->job->nodes == 1 && !(a->job->flags & JOB_LISTEN) && !needs_server(a);
}

bool agent_find_mpi(struct agent *a)
{
	size_t app = 0;

	a->mpi_need = a->mpi ? job_mpi_need(a, &app) : MPI_NEED_NONE;
	if (a->mpi_need == MPI_NEED_NONE)
		return false;
	a->answer.mpi = MPI_WANTED;
	if (!(a->job->flags & JOB_PMIX))
		return false;
	if (!has_room(a)) {
		a->answer.mpi |= MPI_NO_PMIX;
		goes_without(a, NO_ROOM);
		return false;
	}
	open_server(a, app, a->mpi_need);
	if (!is_unwatched(a))
		return true;
	start_server(a);
	return false;
}

void agent_event(struct agent *a, enum start_event ev)
{
	const struct start_step step = start_step(a->state, ev);
	struct err e = { 0 };
	const char *why;

	if (step.next != START_NONE)
		a->state = step.next;
	if (server_pmix(a->ranks.server, &why) == SERVER_PMIX_NONE && !has_room(a))
		why = NO_ROOM;
	switch (step.act) {
	case START_ACT_ANSWER_WITHOUT:
		a->answer.mpi |= MPI_NO_PMIX;
		if (!goes_without(a, why))
			break;
		/* fall through */
	case START_ACT_ANSWER:
		wire_pack_placed(&a->stream.out, &a->answer);
		break;
	case START_ACT_OPEN_SERVER: /* another host's program asks for it */
		open_server(a, 0, MPI_NEED_MAYBE);
		break;
	case START_ACT_START_SERVER:
		start_server(a);
		break;
	case START_ACT_RANKS_WITHOUT:
		if (!is_unwatched(a)) { /* ranks of other hosts have it */
			say_no_pmix(a, why);
			break;
		}
		goes_without(a, why);
		a->mpi &= ~(uint32_t)MPI_GIVE_PMIX;
		/* fall through */
	case START_ACT_RANKS:
		agent_start_ranks(a);
		break;
	case START_ACT_SAY_LOST:
		err_set(&e, E_PMIX_LOST, why);
		stream_log(&a->stream, LOG_ERROR, &e);
		break;
	default:
		break;
	}
}

void agent_start(struct agent *a, const struct wire_start *m)
{
	struct err e = { 0 };

	if (a->state != START_PLACED || a->ranks.phase != RANKS_RUN)
		return; /* a job that was told to stop does not start */
	if (a->xml) {
		err_set(&e, E_PLACE_ONLY);
		stream_log(&a->stream, LOG_ERROR, &e);
		return;
	}
	if (!a->ranks.server)
		a->ranks.server = server_open(a->base, &a->stream.out, a->job);
	a->mpi = m->mpi & a->mpi;
	server_give(a->ranks.server, a->mpi);
	for (size_t i = 0; m->joins && i < a->ranks.n; i++)
		server_another_life(a->ranks.server, i, true);
	agent_event(a, a->mpi & MPI_GIVE_PMIX ? START_EV_PMIX : START_EV_START);
}

void agent_start_again(struct agent *a, const struct wire_start *m)
{
	for (size_t i = 0; i < a->ranks.n; i++)
		if (a->ranks.v[i].rank == m->rank)
			ranks_clear(&a->ranks, i, m->life, m->joins);
}

void agent_settle(struct agent *a)
{
	const char *why;
	long local;
	const enum server_pmix_state pmix = server_pmix(a->ranks.server, &why);
	const struct start_facts f = {
		.pmix = pmix,
		.has_room = has_room(a),
		.ranks_run = a->ranks.phase == RANKS_RUN,
		/* it looks at each rank, and this is after each turn of the loop */
		.pmix_in_use =
			pmix == SERVER_PMIX_LOST && server_pmix_in_use(a->ranks.server),
	};
	const enum start_event due = start_due(a->state, &f);

	if (due != START_NOTHING)
		agent_event(a, due);
	while ((local = ranks_cleared(&a->ranks)) >= 0)
		agent_start_rank(a, (uint32_t)local);
}
