/* values.h - text to value: the setters of the option table.
 *
 * Each one is a set() of struct option.  It puts the value into the field of its row.
 * Its error lists the values that are allowed.  No I/O. */
#ifndef BERTH_LAUNCHER_CLI_VALUES_H
#define BERTH_LAUNCHER_CLI_VALUES_H

#include "launcher/cli/option.h"

enum { RANKS_MAX = 1 << 20 };  /* ranks of one job */
enum { HOSTS_MOST = 1 << 16 }; /* hosts of one job */

int value_switch(const struct setting *s, const char *value, struct err *e); /* bool */
int value_tag(const struct setting *s, const char *value, struct err *e);    /* --tag */
int value_text(const struct setting *s, const char *value, struct err *e); /* char * */
int value_number(const struct setting *s, const char *value, struct err *e); /* int */
/* long, in milliseconds: 30, 30s, 0.5, 5m, 1.5h, 2d */
int value_seconds(const struct setting *s, const char *value, struct err *e);
int value_restarts(const struct setting *s, const char *value, struct err *e);
int value_hang(const struct setting *s, const char *value, struct err *e);
int value_choice(const struct setting *s, const char *value,
		 struct err *e); /* an enum */

int value_ranks(const struct setting *s, const char *value, struct err *e);
int value_map_by(const struct setting *s, const char *value, struct err *e);
int value_hosts(const struct setting *s, const char *value, struct err *e);
int value_hostfile(const struct setting *s, const char *value, struct err *e);
int value_net(const struct setting *s, const char *value, struct err *e);
int value_grace(const struct setting *s, const char *value, struct err *e);
int value_steps(const struct setting *s, const char *value, struct err *e);
int value_show(const struct setting *s, const char *value, struct err *e);
int value_stdin(const struct setting *s, const char *value, struct err *e);
int value_bind_to(const struct setting *s, const char *value, struct err *e);
int value_plan(const struct setting *s, const char *value, struct err *e);
int value_summary(const struct setting *s, const char *value, struct err *e);
/* Without a value it is horovodrun's, and changes nothing. */
int value_monitor(const struct setting *s, const char *value, struct err *e);
/* The end of the name says which form of report it is. */
int value_report(const struct setting *s, const char *value, struct err *e);
int value_mpi(const struct setting *s, const char *value, struct err *e);
int value_horovod(const struct setting *s, const char *value, struct err *e);
int value_topology(const struct setting *s, const char *value, struct err *e);
int value_gpus(const struct setting *s, const char *value, struct err *e);
int value_verbose(const struct setting *s, const char *value, struct err *e);
int value_quiet(const struct setting *s, const char *value, struct err *e);

/* S names hosts: what an earlier source said of them is forgotten.  E_TWO_HOSTS if
 * OTHERS are named, and by the same source. */
int value_forget_hosts(const struct setting *s, bool others, struct err *e);

/* E_CHOICE with the names in CHOICES, and the nearest one as the hint.  Always -1. */
int value_none_of(const char *value, const char *const *choices, struct err *e);

/* Add "ignored: SUBJECT (WHY)" to the notes, unless it is there. */
void value_ignored(const struct setting *s, const char *subject, const char *why);

/* Add E and its hint to NOTES as a warning, unless it is there. */
void value_warn(struct strv *notes, const struct err *e);

#endif
