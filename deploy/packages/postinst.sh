#!/bin/sh
# After the files are in place. deb: "configure" and the version that was configured before; rpm: 1 at first, more on an upgrade.
# Containers go on: the unit has KillMode=process, so that only the agent is restarted, and only where it ran.
set -e
case "$1" in
configure | [1-9]*) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
if [ "$1" = 1 ] || { [ "$1" = configure ] && [ -z "$2" ]; }; then
	# In the place of a package whose agent was enabled, and which has stopped it.
	if systemctl -q is-enabled @UNIT@ 2>/dev/null; then action=start; else exit 0; fi
else
	action=try-restart
fi
systemctl $action @UNIT@ || echo "@UNIT@ did not start: journalctl -u @UNIT@ says why" >&2
