/* host_stage.h - a stage (device.h) whose arrays are in the host's memory, for a rank
 * that has such arrays in an operation of which other ranks have theirs on a device. */
#ifndef BERTH_LIB_HOST_STAGE_H
#define BERTH_LIB_HOST_STAGE_H

#include "lib/backend/device.h"

/* It has only what a stage needs.  Copies are done when copy() returns. */
extern const struct device_backend host_stage;

#endif
