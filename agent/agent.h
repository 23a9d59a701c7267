/* agent.h - all that one agent holds, from its machine to the ranks of its job.
 *
 * main.c reads as the steps; messages.c does what the launcher says, of which
 * job_place.c does `job`, job_start.c does `start`, and job_check.c does `check`.
 * start.h says how one leads to the other; job_mpi.c does what it says.
 */
#ifndef BERTH_AGENT_AGENT_H
#define BERTH_AGENT_AGENT_H

#include "agent/monitor/monitor.h"
#include "agent/place_request.h"
#include "agent/pmi/mpi_find.h"
#include "agent/port.h"
#include "agent/ranks/gpu_check.h"
#include "agent/ranks/guard.h"
#include "agent/ranks/rank.h"
#include "agent/start.h"
#include "agent/stream.h"

/* The ranks of one app have this in common. */
struct app_start {
	struct env_base env;
	struct program program;
	struct spawn_limits limits;
	struct err err; /* why none of them can be started */
	bool ready;
};

/* Python packages for the ranks. */
struct packages {
	struct package package; /* Berth's own, as far as it is used */
	struct str no_package;  /* why --horovod has none that is used */
	bool has_folder;        /* job->folder has a package, too */
	struct str no_folder;   /* why that is not used */
};

struct agent {
	struct event_base *base;
	struct stream stream;
	const char *xml;       /* --place: the machine is this file's */
	struct key_side *side; /* --connect: of the connection; else NULL */
	struct topo topo;
	struct gpus gpus; /* of the machine */
	struct port port;
	struct ports ports; /* of the ranks, if TF_CONFIG names them */
	int job_socket;     /* procs.h; -1: none */
	int guardian;       /* readable when it is dead, -1: none */
	struct guarded guarded;
	struct event *guardian_gone, *child, *term, *copy;

	struct strv frames; /* copies of `app` and `job`, whose strings are in use */
	size_t frames_bytes;
	struct wire_app *app;
	struct app_start *start; /* one for each app of the job; or NULL */
	size_t napp;
	struct wire_job *job;             /* NULL: none */
	struct wire_tf_config *tf_config; /* of the job; NULL: none, or not yet */
	uint32_t epoch;                   /* of this job, or of the last one */
	struct gpus chosen;               /* of the job */
	struct placement placement;
	struct packages packages;
	enum start_state state;
	struct wire_placed answer; /* to be sent if the state says so */
	char *drawing;             /* of the answer, or NULL */
	enum mpi_need mpi_need;    /* of the programs here */
	uint32_t mpi;              /* what ranks get: enum mpi_given */
	struct winsize window;     /* of the user's terminal, or zeros */
	struct ranks ranks;
	struct warm *warm; /* for later epochs, too; NULL: none yet */
	struct gpu_check check;
	struct monitor monitor;
	struct trial *health;        /* --health-check; or NULL */
	struct job_check *job_check; /* --check, while it runs; or NULL */

	bool done; /* leave */
	int status;
};

/* One message of the launcher.  0, or -1 with E: the launcher broke the protocol. */
int agent_take(struct agent *a, const struct wire_frame *f, struct err *e);
/* The job's ranks get their berths.  Sends `berth` for each, then `placed`; or the
 * error. */
void agent_place(struct agent *a);
/* Exec the ranks that were placed, once they can have what the bits MPI of enum
 * mpi_given say.  Sends `started` or `exited` for each. */
void agent_start(struct agent *a, const struct wire_start *m);
/* One of the ranks, which has ended, starts again. */
void agent_start_again(struct agent *a, const struct wire_start *m);
/* Exec local rank LOCAL alone. */
void agent_start_rank(struct agent *a, uint32_t local);
/* If the start waits for PMIx, it goes on once it can.  To be called after each turn of
 * the loop. */
void agent_settle(struct agent *a);
/* Exec the ranks: PMIx is ready, if they get it. */
void agent_start_ranks(struct agent *a);
/* EV has come: the next state, and its act. */
void agent_event(struct agent *a, enum start_event ev);
/* The programs are known: may they use MPI?  Whether the answer to the launcher waits
 * until a PMIx server is open. */
bool agent_find_mpi(struct agent *a);
/* The file of app APP's program.  To be freed. */
char *agent_program_path(const struct agent *a, size_t app);
/* The program, environment and limits of local rank LOCAL, found once for its app. */
struct app_start *agent_app_start(struct agent *a, uint32_t local);
/* --check: listen where rank 0 would, for the agents of all hosts. */
void agent_listen(struct agent *a);
/* Sends a `check_result` for each row, then `check_done`.  Starts no rank. */
void agent_check(struct agent *a, const struct wire_check *m);
void agent_check_free(struct agent *a);
/* Forget the job and all that belongs to it.  Without a job: the `app`s for the
 * next. */
void agent_forget_job(struct agent *a);

/* Its job, to be placed and to be given an environment. */
struct place_request agent_request(struct agent *a);
struct env_rank agent_env_rank(struct agent *a, uint32_t local);

#endif
