package agent

import (
	"context"
	"strings"
	"time"
)

// podCIDR tells the runtime the pod CIDRs of the node, once.
func (a *Agent) podCIDR(ctx context.Context, cidrs []string) error {
	if len(cidrs) == 0 {
		return nil
	}
	if err := a.cri.UpdatePodCIDR(ctx, strings.Join(cidrs, ",")); err != nil {
		return err
	}
	a.log.Info("pod CIDR sent to the runtime", "cidrs", cidrs)
	return nil
}

// ownPodCIDR sends podCIDR to the runtime on a node without an API server.
func (a *Agent) ownPodCIDR(ctx context.Context) error {
	return a.sendPodCIDR(ctx, strings.Split(a.cfg.Kubelet.PodCIDR, ","), func() bool { return false })
}

// sendPodCIDR sends the pod CIDRs to the runtime. After a failure it tries again, until ctx ends or the CIDRs are obsolete.
func (a *Agent) sendPodCIDR(ctx context.Context, cidrs []string, obsolete func() bool) error {
	for !obsolete() {
		err := a.podCIDR(ctx, cidrs)
		var again <-chan time.Time // nil, so it never fires; a failure sets it
		if err != nil && ctx.Err() == nil {
			a.log.Warn("the runtime does not accept podCIDR; trying again", "err", err)
			again = time.After(10 * time.Second)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		}
	}
	<-ctx.Done()
	return nil
}
