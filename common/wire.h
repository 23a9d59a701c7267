/* wire.h - structs, pack, unpack, free and print of every message in wire.def.
 *
 * For each MSG(name, ...): struct wire_name; WIRE_name its number;
 *   void wire_pack_name(struct buf *out, const struct wire_name *m)
 *      appends a whole frame
 *   int wire_unpack_name(struct wire_name *m, const void *p, size_t n, struct err *e)
 *      0, or -1 with E
 *   void wire_free_name(struct wire_name *m)
 *      takes {0} too
 * An unpacked message borrows its strings and bytes from the payload P and owns its
 * lists.  It is valid until P goes or wire_free_name() is called.  Sizes are checked
 * before memory is taken. */
#ifndef BERTH_WIRE_H
#define BERTH_WIRE_H

#include "common/buf.h"
#include "common/err.h"
#include "common/str.h"

#ifndef BERTH_VERSION /* tests build an agent of another version */
#define BERTH_VERSION "0.2.0"
#endif
enum { WIRE_VERSION = 31 };

/* First bytes of the agent's side. */
#define WIRE_MAGIC "\0berth1\n"
enum { WIRE_MAGIC_BYTES = 8, WIRE_HEAD_BYTES = 5, WIRE_OUTPUT_HEAD_BYTES = 21 };
/* Data bytes that one output or input frame may carry; input granted in advance at
 * most. */
enum { WIRE_DATA_MAX = 65536, WIRE_INPUT_MAX = 262144 };
/* Where output of a rank comes from. */
enum wire_stream {
	WIRE_STDOUT = 1,
	WIRE_STDERR,
	WIRE_NCCL_LOG, /* with JOB_NCCL_LOG */
	WIRE_TIMELINE  /* once the rank has ended; if the job asks for one */
};
/* Bytes of the timeline of one life of a rank; lib/core/timeline.c writes no more. */
enum { WIRE_TIMELINE_MAX = 256 << 20 };
/* The job's key; a rank's text in a fence, with its NUL; texts in one frame. */
enum { WIRE_KEY_BYTES = 32, WIRE_TEXT_MAX = 2048, WIRE_PART_MAX = 1 << 20 };
/* Limits of what a peer may ask for: ranks of one job; ranks, CPUs or GPUs of one host;
 * bytes of one job's app and job frames. */
enum { WIRE_RANKS_MAX = 1 << 20, WIRE_HOST_MAX = 65536, WIRE_JOB_BYTES_MAX = 32 << 20 };

/* Hosts exchange texts and records through the launcher, many at a time.  The ranks of
 * an exchange number those of one use one after the other, each rank for itself.
 * EXCHANGE_INIT: an init round of libberth, whose number it is, of all ranks.  A host
 * gives the texts of its ranks, NUL-ended, by local rank.
 * EXCHANGE_PMI1: a barrier of PMI-1, with what was put since the last one.
 * EXCHANGE_PMIX_*: some ranks in PMIx.  A host gives a record (pmix.h). */
enum exchange_use {
	EXCHANGE_INIT,
	EXCHANGE_PMI1,
	EXCHANGE_PMIX_FENCE,
	EXCHANGE_PMIX_CONNECT,
	EXCHANGE_PMIX_DISCONNECT,
	EXCHANGE_PMIX_GROUP,
	EXCHANGE_PMIX_UNGROUP,
	EXCHANGE_USES
};
/* Whether another part of what a host gives follows.  EXCHANGE_LACKS_RANK: none does,
 * and a rank of that host which was to take part has ended; not in INIT. */
enum exchange_last { EXCHANGE_MORE, EXCHANGE_WHOLE, EXCHANGE_LACKS_RANK };
/* Why there are no data in pmix_collect. */
enum collect_withheld {
	COLLECT_WHOLE,     /* there are */
	COLLECT_TOO_LONG,  /* to be sent to all */
	COLLECT_LACKS_RANK /* one that takes part has ended */
};
enum {
	EXCHANGE_RANK_BYTES = 64
			      << 10,   /* of PMI1, from one host, for each rank there */
	EXCHANGE_PMIX_BYTES = 1 << 20, /* of PMIX_*, from all hosts together */
	EXCHANGE_PMIX_HEAD = 8,        /* of the record of one host */
	EXCHANGES_MOST = 256 /* in which one host has given something, at a time */
};

/* In place of a process set: the init rounds. */
enum { WIRE_INIT_ROUNDS = 0x7fffffff };

#define STDIN_ALL 0xfffffffeu
#define STDIN_NONE 0xffffffffu
#define GRACE_NEVER 0xffffffffu

enum log_level { LOG_DEBUG, LOG_NOTE, LOG_WARNING, LOG_ERROR };

typedef uint32_t wire_u32; /* type names for the generated structs only */
typedef uint64_t wire_u64;
typedef const char *wire_str;
typedef struct {
	const void *p;
	size_t n;
} wire_bytes;
typedef struct {
	const char *const *v;
	size_t n;
} wire_strv;
typedef struct {
	const uint32_t *v;
	size_t n;
} wire_u32v;

/* The message of number TYPE, whose struct is at M. */
void wire_pack(struct buf *out, unsigned type, const void *m);
int wire_unpack(unsigned type, void *m, const void *p, size_t n, struct err *e);
void wire_free(unsigned type, void *m);

#define F(type, name) wire_##type name;
#define MSG(name, number, most, text, fields)                                          \
	struct wire_##name {                                                           \
		fields                                                                 \
	};                                                                             \
	enum { WIRE_##name = (number) };                                               \
	static inline void wire_pack_##name(struct buf *out,                           \
					    const struct wire_##name *m)               \
	{                                                                              \
		wire_pack(out, number, m);                                             \
	}                                                                              \
	static inline int wire_unpack_##name(struct wire_##name *m, const void *p,     \
					     size_t n, struct err *e)                  \
	{                                                                              \
		return wire_unpack(number, m, p, n, e);                                \
	}                                                                              \
	static inline void wire_free_##name(struct wire_##name *m)                     \
	{                                                                              \
		wire_free(number, m);                                                  \
	}
#include "common/wire.def"
#undef MSG
#undef F

/* One case of a switch over f->type: CALL sees the unpacked message as m.  A malformed
 * payload ends the function with -1 and E. */
#define WIRE_TAKE(name, call)                                                          \
	case WIRE_##name: {                                                            \
		struct wire_##name m;                                                  \
                                                                                       \
		if (wire_unpack_##name(&m, f->payload, f->n, e))                       \
			return -1;                                                     \
		call;                                                                  \
		wire_free_##name(&m);                                                  \
		break;                                                                 \
	}

enum wire_side {
	WIRE_AGENT = 'a',
	WIRE_LAUNCHER = 'l',
	WIRE_BOTH = 'b',
	/* between the agent and its PMIx server */
	WIRE_PMIX_HOST = 'h',
	WIRE_PMIX_SERVER = 's',
	/* what the agent passes on: from its server, from the launcher, each way */
	WIRE_UP = 'u',
	WIRE_DOWN = 'd',
	WIRE_EVERY = 'e'
};

struct wire_frame {
	unsigned type;
	const unsigned char *payload; /* inside the bytes given to wire_next_from() */
	size_t n;
};

/* The first frame of the LEFT bytes at P, which FROM sent, into F.  Returns the bytes
 * it takes up, 0 if it is not complete yet, -1 with E.  E_WIRE: its type is unknown, or
 * FROM never sends it, or it is larger than its row allows.  The frame's head tells
 * this, so that no reader keeps more than a row's limit. */
long wire_next_from(enum wire_side from, struct wire_frame *f, const void *p,
		    size_t left, struct err *e);

/* The numbers of V ascend, and are below BELOW: as in each list of ranks, and in that
 * of the apps' first ones. */
bool wire_ascends(const wire_u32v *v, uint32_t below);

/* Append F once more.  Its message begins with an epoch: EPOCH. */
void wire_pass(struct buf *out, const struct wire_frame *f, uint32_t epoch);

/* Where WIRE_MAGIC begins in the N bytes at P, or -1. */
long wire_find_magic(const void *p, size_t n);

/* The head of an output frame whose N data bytes follow it: lets the agent read(2) a
 * rank's output straight into its send queue. */
void wire_output_head(unsigned char head[WIRE_OUTPUT_HEAD_BYTES], uint32_t epoch,
		      uint32_t rank, uint32_t stream, uint32_t n);

/* Name of a message, "?" for an unknown number. */
const char *wire_name(unsigned type);
/* One line, "exited epoch=1 rank=3 ..."; environment and data appear as sizes only. */
void wire_print(struct str *out, const struct wire_frame *f);

#endif
