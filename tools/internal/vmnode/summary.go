package vmnode

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Summary prints what a new user needs to know when the guest is a node.
func (e *Env) Summary(ctx context.Context) error {
	nodes, err := e.Kubectl(ctx, "get", "nodes", "-o", "wide")
	if err != nil {
		return err
	}
	status, err := e.Machine.Shell(ctx, time.Minute, "systemctl status kubelet --no-pager -n 0 || true")
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Progress, `
%s
%s
Get in:

  bin/wherry-dev vm sh systemctl status kubelet     # a command in the guest, as root
  bin/wherry-dev vm sh 'journalctl -u kubelet | tail'
  socat -,raw,echo=0,escape=0x1d UNIX-CONNECT:%s    # its console; Ctrl-] leaves it
  bin/wherry-dev vm kubectl get pods -A             # the cluster
  %s

make vm-down ends all of it.
`, nodes, status, e.Machine.Console(), strings.Join(e.inside("bash"), " ")+"    # a shell in the network of the guest and its control plane")
	return nil
}
