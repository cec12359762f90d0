// Package kubeadm makes a cluster of two nodes on one machine with upstream's kubeadm, and walks through its life: init, join, a workload,
// renewed certificates, an upgrade, reset.
//
// Contract: etcd, the API server, the controller manager and the scheduler are static pods of the first node. Each node has a mount, a
// network and a UTS namespace of its own; its /etc, /opt, /usr and /var are overlays of the machine's, and its /run is its own. So kubeadm and
// the node agent use their usual paths and ports, and the machine keeps none of their files. The user's programs (kubectl, tests) run in a
// network namespace that reaches the nodes, their pods and Services. The nodes have no systemd: a stand-in for systemctl starts and stops
// the node agent (package unit).
//
// Down needs only the files below Options.Dir, and may be repeated.
package kubeadm
