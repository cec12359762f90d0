// Package plane runs a whole Kubernetes control plane for development on one machine: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler and optionally kube-proxy, each as a child process of the same binary.
//
// Contract: Run blocks. It writes keys, kubeconfigs, logs and data only below Config.DataDir and into the files that Config names. It
// creates the objects that kubeadm creates for nodes that join by TLS bootstrap, and calls Config.Ready once the control plane is ready.
// When its context ends, it ends the child processes in this order: proxy, scheduler, controller manager, API server, etcd. Each gets
// SIGTERM and, after Config.StopGrace, SIGKILL. If the parent dies, the kernel kills the children (parent-death signal).
//
// Invariants: only one control plane uses a data directory at a time (there is a lock). A later run with the same directory keeps the CA,
// the tokens, the objects, and the ports that the first run chose. If a component other than kube-proxy ends before the control plane is
// ready, Run returns an error with the last lines of the component's log. A component that ends later is started again, with a growing
// back-off.
package plane
