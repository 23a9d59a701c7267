#!/bin/bash
# pbs.sh: ranks on two nodes of PBS Professional or OpenPBS.
#
#	qsub pbs.sh
#
# mpiprocs is the number of ranks on each node.  In a job of PBS, runner needs no -H.  It reaches
# the nodes by ssh, so ssh between them must not ask for a password.  In Torque the line of
# resources is `nodes=2:ppn=8`.
#
#PBS -N train
#PBS -l select=2:ncpus=64:mpiprocs=8:ngpus=8
#PBS -l walltime=04:00:00
#PBS -j oe

# A job of PBS begins in the home directory.
cd "$PBS_O_WORKDIR" || exit

# At the time limit and after qdel, PBS sends SIGTERM and, after the server's kill_delay, SIGKILL.
# runner sends SIGTERM on to the ranks.
exec runner python3 train.py --checkpoint checkpoint.json
