#!/bin/bash
# python horovod_torch.py would be wrong here
set -eu
export NCCL_DEBUG=WARN
cd "$(dirname "$0")"
SCRIPT=ddp.py
cat > /dev/null <<EOF
python no_such.py
EOF
if [ -n "${FAST:-}" ]; then
	echo fast 2>&1 | cat
fi
exec "${PYTHON:-python3}" -u \
	$SCRIPT --epochs 3 "$@"
