/* hosts.h - the hosts a job may use: "-H ip1:8,ip2:8" or a hostfile as an ordered list.
 *
 * Text to data only: no name is looked up, and only hosts_read_file() opens a file.
 * Sources: "host:slots" of MPICH's hydra and horovodrun; "host slots=N max_slots=M
 * port=P" of Open MPI; repeated lines of a PBS node file; "gpu[01-16]" as Slurm and
 * pdsh write it; "[address]" for IPv6 as RFC 3986 section 3.2.2 has it. */
#ifndef BERTH_LAUNCHER_HOSTS_H
#define BERTH_LAUNCHER_HOSTS_H

#include "common/str.h"

enum { HOST_SLOTS_MAX = 65535, HOSTS_MAX = 65536, HOST_PORT_MAX = 65535 };
enum {
	SLOTS_GPUS = -1, /* "a:gpus": as many as the host has GPUs */
	SLOTS_AUTO = -2  /* one per GPU, else one per core: nobody gave a number */
};

struct host_spec {
	char *name;    /* as typed, without brackets and user; validated */
	char *user;    /* of user@host, or NULL; validated */
	int slots;     /* 1..HOST_SLOTS_MAX or SLOTS_GPUS */
	bool counted;  /* slots were typed, or are the number of times it is named */
	int max_slots; /* 0: none given; --oversubscribe stops there */
	int port;      /* of sshd, 1..HOST_PORT_MAX; 0: none given */
};

struct hosts {
	struct host_spec
		*v; /* in the order typed, which is rank order; repeated ones merged */
	size_t n;
};

/* A host in the list of an app. */
struct host_in_list {
	uint32_t at; /* its place there, from 1; 0: it is not there */
	int slots;   /* those that the list gives */
};

/* Read SPEC, "[user@]name[[:port]:slots]{,...}", into H, which must be {0}.  A name
 * that comes again adds its slots to the first ("a,a" is a:2).  Returns 0, or -1 with
 * E; H is then {0} again. */
int hosts_parse(struct hosts *h, const char *spec, struct err *e);

/* As hosts_parse(), for a host file, or stdin if PATH is "-".  Errors say
 * "file:line". */
int hosts_read_file(struct hosts *h, const char *path, struct err *e);

/* As hosts_read_file(), for the text of such a file; errors say "WHERE:line". */
int hosts_parse_lines(struct hosts *h, const char *text, const char *where,
		      struct err *e);

/* Add the hosts of MORE to H.  A host in both has the slots of both; they are counted
 * if those of either are.  0, or -1 with E; H then has some of them. */
int hosts_merge(struct hosts *h, const struct hosts *more, struct err *e);

void hosts_free(struct hosts *h);

/* Append the names to S, folded: "gpu[01-04],n7".  Their order is kept, so only
 * neighbours fold. */
void hosts_fold(struct str *s, const char *const *names, size_t n);

#endif
