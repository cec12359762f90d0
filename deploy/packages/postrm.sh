#!/bin/sh
# The package manager runs this script after it has removed the files. Argument of deb: "remove", later "purge". Argument of rpm: 0,
# or 1 if another version stays installed.
set -e
case "$1" in
remove | purge | 0) ;;
*) exit 0 ;;
esac
unit=@UNIT@
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
[ "$1" = purge ] || exit 0
# If the unit file still exists, it belongs to another package, and so does the node's state: keep both.
if [ -e "/usr/lib/systemd/system/$unit" ] || [ -e "/etc/systemd/system/$unit" ]; then exit 0; fi
rm -f "/etc/systemd/system/multi-user.target.wants/$unit"
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl reset-failed "$unit" 2>/dev/null || true
fi
# Remove the files that the agent has created. If pods are left on this machine, keep their volumes and the identity of the node.
[ "$unit" = kubelet.service ] || exit 0
if [ -n "$(ls -A /var/lib/kubelet/pods 2>/dev/null)" ] || grep -q ' /var/lib/kubelet/' /proc/self/mountinfo; then
	echo "pods are left on this node: /var/lib/kubelet and /etc/kubernetes/kubelet.conf stay; drain a node before its agent is purged" >&2
	exit 0
fi
rm -rf --one-file-system /run/wherry
if grep -q ' /var/lib/kubelet ' /proc/self/mountinfo; then
	find /var/lib/kubelet -xdev -mindepth 1 -delete # a file system of its own cannot be removed: it stays mounted, and empty
else
	rm -rf --one-file-system /var/lib/kubelet
fi
rm -f /etc/kubernetes/kubelet.conf
rmdir /var/log/pods /var/log/containers 2>/dev/null || true
if grep -qs '^populated 0' /sys/fs/cgroup/kubepods.slice/cgroup.events; then
	systemctl stop kubepods.slice 2>/dev/null || true
fi
