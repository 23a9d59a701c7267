/* rank_text.h - a list of ranks in words. */
#ifndef BERTH_LIB_RANK_TEXT_H
#define BERTH_LIB_RANK_TEXT_H

#include <stddef.h>

/* N ranks as TEXT: "1-3, 7".  If BYTES are too few: "1-3, ...". */
void rank_text(char *text, size_t bytes, const unsigned *rank, size_t n);

#endif
