#include "launcher/job/mpi.h"

uint32_t mpi_given(const struct job *j)
{
	const enum mpi mpi = (enum mpi)j->request->mpi;
	uint32_t found = 0, given = 0;

	for (size_t i = 0; i < j->agents.n; i++)
		if (job_reaches(j, i))
			found |= j->run[i].mpi;
	if (!(found & MPI_WANTED))
		return 0;
	if (mpi == MPI_AUTO || mpi == MPI_PMI1)
		given |= MPI_GIVE_PMI1;
	if ((mpi == MPI_AUTO || mpi == MPI_PMIX) && !(found & MPI_NO_PMIX))
		given |= MPI_GIVE_PMIX;
	return given;
}

static bool has_room(const struct host *h)
{
	return h->state == HOST_UP && h->out.len < MPI_QUEUED_MOST;
}

const char *mpi_modex_request(struct job *j, struct host *h,
			      const struct wire_modex_request *m)
{
	const struct wire_modex_data none = {
		.epoch = j->epoch, .host = job_index(j, h), .id = m->id, .failed = 1
	};
	struct wire_modex_request to = *m;
	struct host *other;

	if (j->phase < JOB_RUN || m->rank >= j->plan.np)
		return "malformed 'modex_request' message";
	other = &j->agents.host[j->plan.rank[m->rank].host];
	to.host = job_index(j, h);
	if (has_room(other)) {
		AGENTS_SEND(other, modex_request, &to);
	} else if (has_room(h)) {
		AGENTS_SEND(h, modex_data, &none);
	}
	return NULL;
}

const char *mpi_modex_data(struct job *j, struct host *h,
			   const struct wire_modex_data *m)
{
	struct wire_modex_data to = *m;
	struct host *other;

	(void)h;
	if (j->phase < JOB_RUN || m->host >= j->agents.n)
		return "malformed 'modex_data' message";
	other = &j->agents.host[m->host];
	if (other->state != HOST_UP)
		return NULL;
	if (!has_room(other)) {
		to.failed = 1;
		to.data = (wire_bytes){ 0 };
	}
	AGENTS_SEND(other, modex_data, &to);
	return NULL;
}
