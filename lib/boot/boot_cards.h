/* boot_cards.h - the card in which each rank tells the others of itself, and the world
 * that these cards make.  It is for the bootstraps without an agent, which would number
 * the ranks. */
#ifndef BERTH_LIB_BOOT_CARDS_H
#define BERTH_LIB_BOOT_CARDS_H

#include "lib/boot/boot.h"
#include "lib/boot/handoff.h"

enum { BOOT_HOST_BYTES = 256, BOOT_MACHINE_BYTES = 64 };

struct boot_card {
	char host[BOOT_HOST_BYTES]; /* name */
	/* Boot id and network namespace.  Ranks share memory if both this and HOST
	 * are equal. */
	char machine[BOOT_MACHINE_BYTES];
	char socket[HANDOFF_NAME_BYTES]; /* of handoff_listen(): not filled here */
};

/* HOST: the host's name.  If it is NULL or "", the system's name of the host is
 * used. */
void boot_card_fill(struct boot_card *c, const char *host);

/* Sets each rank's host, the hosts' names, and the local and cross ranks and sizes of
 * this rank.  They come from W's rank and size and the cards C of all ranks.  Hosts get
 * numbers in the order of their first ranks, FIRST[host].  FIRST has room for as many
 * as there are ranks.  BERTH_MEMORY: boot_world_free() frees what W holds. */
berth_result boot_cards_settle(struct boot_world *w, const struct boot_card *c,
			       unsigned *first);

#endif
