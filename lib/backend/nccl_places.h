/* nccl_places.h - where NCCL's library is looked for, where neither the process has it
 * nor BERTH_NCCL names it: by the loader, then where pip puts the wheel, below a root
 * that one of these variables names. */
#ifndef BERTH_LIB_NCCL_PLACES_H
#define BERTH_LIB_NCCL_PLACES_H

#define NCCL_LIBRARY "libnccl.so.2"
#define NCCL_OF_WHEEL "lib/python3*/site-packages/nvidia/nccl/lib/" NCCL_LIBRARY
#define NCCL_ROOTS "VIRTUAL_ENV", "CONDA_PREFIX"

#endif
