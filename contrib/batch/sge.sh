#!/bin/bash
# sge.sh: 16 ranks in a parallel environment of Grid Engine.
#
#	qsub sge.sh
#
# `qconf -spl` lists the parallel environments of your site; "mpi" is a common name.  In a job of
# Grid Engine, runner needs no -H.  It reaches the hosts by ssh, so ssh between them must not ask
# for a password.
#
#$ -N train
#$ -pe mpi 16
#$ -l h_rt=04:00:00
#$ -cwd
#$ -j y
#$ -S /bin/bash
#
# Before SIGKILL, Grid Engine sends SIGUSR2; the queue's `notify` is the time between them.  runner
# sends SIGUSR2 on to the ranks, so train.py must catch it.  examples/checkpoint.py shows how.
#$ -notify

exec runner python3 train.py --checkpoint checkpoint.json "$@"
