/* trace_put.h - what a merged timeline is made of, whatever form its file has. */
#ifndef BERTH_LAUNCHER_TRACE_PUT_H
#define BERTH_LAUNCHER_TRACE_PUT_H

#include "launcher/trace/trace_file.h"
#include "launcher/trace/trace_read.h"

/* An operation of libberth, as its "args" say. */
struct trace_op {
	bool is;                        /* it does */
	uint64_t world, set, seq, part; /* which it is: all ranks say the same */
	uint64_t of;                    /* ranks */
	uint64_t step, bytes;
	int64_t waited_ns; /* it was called so long before its slice begins */
};

/* One event, or a name. */
struct trace_put {
	/* As in Chrome's format: X B E i C b n e s t f; and P: the process PID has this
	 * NAME; T: the track TID of it has. */
	char ph;
	uint32_t pid; /* 1.. */
	uint64_t tid;
	int64_t ts_ns, dur_ns; /* of CLOCK_REALTIME */
	struct trace_text name, cat, scope, bp;
	struct trace_text args; /* an object, or nothing */
	uint64_t id;            /* of s t f b n e: below 2^52 */
	uint64_t flow;          /* of what all ranks do together; 0: none */
	struct trace_op op;     /* ARGS in numbers, if op.is */
};

/* A form of a file.  STATE is its own. */
struct trace_form {
	void *(*begin)(struct trace_file *f);
	void (*put)(void *state, const struct trace_put *p);
	/* ABOUT: an object about the whole. */
	void (*end)(void *state, const struct trace_text *about);
	bool arrows; /* s, t and f are for what has FLOW, too */
};

#endif
