/* rank_text.h - a list of ranks in words. */
#ifndef BERTH_LIB_RANK_TEXT_H
#define BERTH_LIB_RANK_TEXT_H

#include <stddef.h>

/* N ranks as TEXT: "1-3, 7"; "1-3, ..." where BYTES are too few. */
void rank_text(char *text, size_t bytes, const unsigned *rank, size_t n);

#endif
