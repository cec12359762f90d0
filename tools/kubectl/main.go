// Command kubectl is Kubernetes' own client, built from its module for machines without one.
package main

import (
	_ "k8s.io/client-go/plugin/pkg/client/auth" // as in the released kubectl
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints the error and exits
	}
}
