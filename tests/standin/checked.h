/* checked.h - NCCL's back end (lib/backend/nccl.c) in a program that links the
 * library's objects and the stand-in, watched for what device.h asks of it.
 *
 * STANDIN_MISTAKE in the environment has the stand-in do what a wrong back end would
 * have asked for:
 *   ready     it does not wait for its marks
 *   done      streams do not wait for its works
 *   streams   it has a second stream, and a work on it
 *   record    the end of a work is recorded before its launch is done
 *   temp      memory is freed before the launch that uses it is done
 *   order     one rank launches in another order, count: with another count
 *   pointer   the call that it makes depends on an address
 *   thread    two threads use a communicator
 *   host      the host reads memory of the device
 *   moved     a copy goes elsewhere
 *   wait      memory is freed by a call that waits for the device
 *   destroy   leave() waits until the communicator is destroyed
 *   wait-sync, wait-alloc, wait-free, wait-host-alloc, wait-register, wait-module,
 *   wait-pageable, wait-query   mark() makes such a call, of those in counts.h
 *   die-joining, die-launching   the last rank is killed there
 *   join-fails   the last rank cannot join
 *   abort-hangs   ncclCommAbort() does nothing, for ever */
#ifndef BERTH_TESTS_CHECKED_H
#define BERTH_TESTS_CHECKED_H

#include "tests/standin/standin.h"

/* libberth uses it from now on in this process. */
void standin_register(void);
/* When the last work was given to it, by CLOCK_MONOTONIC. */
extern uint64_t standin_started_ns;

#endif
