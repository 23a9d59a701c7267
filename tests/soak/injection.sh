#!/bin/bash
# injection.sh: each call of libc that can fail fails once, in agent, guardian and runner; a
# table of what came of it.  About 2,500 jobs, 3 minutes.
cd "$(dirname "$0")/../.." && make -s test-programs && exec tests/soak/injection.py all
