// Package plane runs a whole Kubernetes control plane for development on one machine: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler and optionally kube-proxy, each as a child process of the same binary.
//
// Contract: Run blocks. It writes keys, kubeconfigs, logs and data only below Config.DataDir and in the files that Config
// names. It installs what kubeadm installs for nodes that join by TLS bootstrap, and calls Config.Ready once the plane is
// ready. When its context ends, it ends the children in order (proxy, scheduler, controllers, API server, etcd), by SIGTERM
// and after a timeout by SIGKILL. Children always end with their parent (parent-death signal).
//
// Invariants: there is one plane per data directory (a lock). A plane that is started again on its data keeps its authority, its
// tokens and its objects, and the ports that it chose itself. If a component other than kube-proxy ends before the plane is
// ready, the plane ends, and its error has the last lines of the component's log. After the plane is ready, a component that ends
// is started again with back-off.
package plane
