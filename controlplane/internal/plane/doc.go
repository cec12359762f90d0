// Package plane runs a whole Kubernetes control plane for development on one machine: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler and, where asked for, kube-proxy, each as a child process of the same binary.
//
// Contract: Run blocks. It writes keys, kubeconfigs, logs and data below Config.DataDir and nowhere else, installs what
// kubeadm installs for nodes that join by TLS bootstrap, calls Config.Ready once the plane can be used, and when its
// context ends it ends the children in order (proxy, scheduler, controllers, API server, etcd), by SIGTERM and after a
// bound by SIGKILL. Children end with their parent in any case (parent-death signal).
//
// Invariants: one plane per data directory (a lock); a plane started again on its data keeps its authority, its
// tokens, its objects and, where ports were chosen by itself, its ports. A component that ends by itself before the
// plane was ready ends the plane with the last lines of its log; afterwards it is started again with back-off.
package plane
