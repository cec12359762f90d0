#!/bin/sh
# This is a control plane for tests. It is ready at once, with the file kubeconfig from its own directory as the kubeconfig. It fails when the
# file end appears there.
here=$(dirname "$0")
dir=$2 # of --data-dir
cp "$here/kubeconfig" "$dir/admin.kubeconfig" && : >"$dir/ready" || exit 1
until [ -e "$here/end" ]; do sleep 0.05; done
echo "etcd: no space left on the device"
exit 7
