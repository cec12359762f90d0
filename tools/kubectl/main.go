// Command kubectl is Kubernetes' own client, built from its module: for machines that have none.
package main

import (
	_ "k8s.io/client-go/plugin/pkg/client/auth" // as the released one
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints it and exits
	}
}
