"""The package perseus for scripts written for it: its horovod modules are those of the package horovod."""
