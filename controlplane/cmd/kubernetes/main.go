// Command kubernetes is kubeadm, the components of a control plane, kube-proxy, and the API server with a type of its own that upstream's tests
// aggregate, in one program. The name by which it is started says which of them it is: the images of a kubeadm cluster have links with
// these names (tools/internal/kubeadm). One program is built and stored faster than seven.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/etcdmain"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	sample "k8s.io/sample-apiserver/pkg/cmd/server"

	"github.com/wherry-node/wherry/controlplane/internal/component"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "kubeadm":
		if err := kubeadm.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "kubeadm:", err)
			os.Exit(1)
		}
	case "sample-apiserver":
		options := sample.NewWardleServerOptions(os.Stdout, os.Stderr)
		os.Exit(cli.Run(sample.NewCommandStartWardleServer(genericapiserver.SetupSignalContext(), options, false)))
	case component.Etcd: // package component has only the flags of an etcd that runs alone on loopback
		etcdmain.Main(os.Args)
	default:
		os.Exit(component.Run(name, os.Args[1:]))
	}
}
