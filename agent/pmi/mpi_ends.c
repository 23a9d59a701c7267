/* Ranks of MPI that are to be ended: PMI-1 and PMIx find them, the agent asks. */
#include "agent/pmi/server_internal.h"

struct mpi_end {
	bool due; /* nobody has asked for it */
	/* of MPI_Abort */
	uint64_t aborted_ns; /* 0: not called */
	int code;
	char *text;
};

static struct mpi_end *ends_end_of(struct server *s, size_t local)
{
	if (!s->end)
		s->end = xcalloc(s->job->ranks.n, sizeof *s->end);
	return &s->end[local];
}

void mpi_ends_stuck(struct server *s, size_t local)
{
	struct mpi_end *end = ends_end_of(s, local);

	s->ends_due += !end->due;
	end->due = true;
}

void mpi_ends_abort(struct server *s, size_t local, int code, const char *text)
{
	struct mpi_end *end = ends_end_of(s, local);

	if (end->aborted_ns)
		return;
	end->aborted_ns = clock_ns();
	end->code = code;
	end->text = str_plain(xstrdup(text));
	mpi_ends_stuck(s, local);
}

void mpi_ends_free(struct server *s)
{
	for (size_t i = 0; s->end && i < s->job->ranks.n; i++)
		free(s->end[i].text);
	free(s->end);
}

bool server_ends(struct server *s, size_t *local)
{
	for (size_t i = 0; s && s->ends_due && i < s->job->ranks.n; i++) {
		if (!s->end[i].due)
			continue;
		s->end[i].due = false;
		s->ends_due--;
		*local = i;
		return true;
	}
	return false;
}

uint64_t server_aborted(const struct server *s, size_t local, int *code,
			const char **text)
{
	*text = "";
	if (!s || !s->end || !s->end[local].aborted_ns)
		return 0;
	*code = s->end[local].code;
	*text = s->end[local].text;
	return s->end[local].aborted_ns;
}
