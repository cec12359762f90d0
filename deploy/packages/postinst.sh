#!/bin/sh
# The package manager runs this script after it has installed the files. Arguments of deb: "configure" and the version that was
# configured before. Argument of rpm: 1 on the first installation, more on an upgrade.
# Containers continue to run: the unit has KillMode=process, so only the agent restarts. If the agent was stopped, it stays stopped.
set -e
case "$1" in
configure | [1-9]*) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
if [ "$1" = 1 ] || { [ "$1" = configure ] && [ -z "$2" ]; }; then
	# This package may replace another one, whose agent was enabled and is stopped now. Then the unit is still enabled: start it.
	if systemctl -q is-enabled @UNIT@ 2>/dev/null; then action=start; else exit 0; fi
else
	action=try-restart
fi
systemctl $action @UNIT@ || echo "@UNIT@ did not start: journalctl -u @UNIT@ says why" >&2
