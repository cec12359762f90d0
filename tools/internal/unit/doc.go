// Package unit replaces systemctl on machines without systemd, for programs that start, stop and restart the node agent with it: upstream's
// node tests and kubeadm. A file describes the one unit there is.
package unit
