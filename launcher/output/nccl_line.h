/* nccl_line.h - what a line of NCCL's log says.
 *
 * Pure.  The forms are those of NCCL 2.3 to 2.32 and of RCCL: the strings of its
 * src/init.cc, src/debug.cc and src/transport/, and those in the libraries of pip's
 * wheels.  A line begins with "host:pid:tid [device] NCCL INFO ", behind a time or a
 * launcher's label.  A form that is not known says nothing: NCCL writes to a pipe in
 * blocks, so other output may stand in the middle of a line. */
#ifndef BERTH_LAUNCHER_OUTPUT_NCCL_LINE_H
#define BERTH_LAUNCHER_OUTPUT_NCCL_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum nccl_says {
	NCCL_NOTHING,   /* it is no line of NCCL's */
	NCCL_OTHER,     /* it is one, with nothing of these */
	NCCL_CHANNEL,   /* a channel from one rank to another */
	NCCL_INIT,      /* a communicator that is being made, or is made */
	NCCL_NICS,      /* what NICs a network found */
	NCCL_NO_DEVICE, /* that it found none */
	NCCL_NETWORK,   /* which network is used */
	NCCL_CHANNELS,  /* how many channels there are of each kind */
	NCCL_TIMINGS,   /* how long the steps of an init took */
	NCCL_VERSION,
	NCCL_WARN
};

/* How bytes go over a channel. */
enum nccl_way {
	NCCL_IPC,      /* P2P, from GPU to GPU */
	NCCL_CUMEM,    /* the same by another interface of CUDA */
	NCCL_MNNVL,    /* P2P between hosts, by NVLink */
	NCCL_POINTER,  /* P2P between GPUs of one process */
	NCCL_INDIRECT, /* P2P through a third GPU */
	NCCL_SHM,      /* the host's memory */
	NCCL_NET,      /* a network */
	NCCL_WAYS
};

#define NCCL_NO_DEV UINT64_MAX /* a line may leave a device out */

/* A part of the line. */
struct nccl_text {
	const char *p;
	size_t n;
};

struct nccl_line {
	enum nccl_says says;
	struct nccl_text host; /* empty: the line does not say it */
	uint32_t pid;          /* 0: the same */
	struct nccl_text text; /* NICS: from "[0]" on; VERSION: it; WARN: its reason */
	struct nccl_text net;  /* NET, NICS, NO_DEVICE, NETWORK: "IB", "Socket" */

	/* CHANNEL */
	enum nccl_way way;
	uint32_t from, to; /* ranks in a communicator that the line does not name */
	/* A number of NVML or an address on the PCI bus; its digits, read as
	 * hexadecimal ones. */
	uint64_t from_dev, to_dev;
	bool receives; /* the rank that prints this is TO; else FROM */
	bool gdr;      /* the NIC reaches the GPU's memory: GPUDirect RDMA */
	uint32_t nic;  /* its number among those of NICS */

	/* INIT, TIMINGS */
	uint32_t rank, nranks;
	uint64_t comm;         /* the address of the communicator, in its process */
	uint64_t id;           /* its commId, the same for all ranks; 0: unknown */
	uint64_t parent;       /* address of the one that was split, or 0; if so: */
	uint32_t child, color; /* which of its splits, which part */
	uint64_t bus, nvml;    /* as from_dev */
	bool complete;
	double bootstrap_s;

	/* CHANNELS */
	uint32_t collnet, nvls;
};

/* The N bytes at P are a line, without its end.  L borrows them. */
void nccl_line_read(struct nccl_line *l, const char *p, size_t n);

/* Number I of the NICs that a line of NICS names; false: there are no more.  Its
 * number in the line is *NUMBER. */
bool nccl_line_nic(const struct nccl_line *l, size_t i, uint32_t *number,
		   struct nccl_text *name);

#endif
