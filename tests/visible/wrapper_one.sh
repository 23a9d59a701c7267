#!/bin/bash
python -u print_only.py && echo "set_device($LOCAL_RANK)"
