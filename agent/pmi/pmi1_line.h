/* pmi1_line.h - pure: a line of PMI-1 (wire protocol 1.1) to its command and values.
 *
 * A line is `cmd=NAME KEY=VALUE KEY=VALUE ...`; the values of `value` and `port` go to
 * the end of the line, and that of `service` goes to `port` or to the end.  Source of
 * the method: the lines that MPICH 4 and 5 and Intel MPI 2021 send (src/pmi in
 * MPICH). */
#ifndef BERTH_AGENT_PMI_PMI1_LINE_H
#define BERTH_AGENT_PMI_PMI1_LINE_H

enum pmi1_command {
	PMI1_UNKNOWN,
	PMI1_INIT,
	PMI1_GET_MAXES,
	PMI1_GET_APPNUM,
	PMI1_GET_MY_KVSNAME,
	PMI1_GET_UNIVERSE_SIZE,
	PMI1_PUT,
	PMI1_GET,
	PMI1_BARRIER_IN,
	PMI1_FINALIZE,
	PMI1_ABORT,
	PMI1_PUBLISH_NAME,
	PMI1_LOOKUP_NAME,
	PMI1_UNPUBLISH_NAME,
	PMI1_SPAWN
};

/* Most bytes of a key and of a value, with the NUL; of a line, without its end. */
enum { PMI1_KEY_BYTES = 64, PMI1_VALUE_BYTES = 1024, PMI1_LINE_BYTES = 4096 };

struct pmi1_line {
	enum pmi1_command command;
	/* "" if there is none */
	const char *key, *value, *exitcode, *service, *port;
};

/* LINE, which is changed, and to which the strings of the result belong. */
struct pmi1_line pmi1_parse(char *line);

#endif
