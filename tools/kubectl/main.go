// Command kubectl is Kubernetes' own client, built from its Go module for machines that have no kubectl.
package main

import (
	_ "k8s.io/client-go/plugin/pkg/client/auth" // registers the authentication plugins that the released kubectl has
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints the error and exits
	}
}
