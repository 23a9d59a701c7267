#!/bin/bash
CMD="python -u"
$CMD print_only.py && echo "set_device($LOCAL_RANK)"
