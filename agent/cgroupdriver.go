package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/wherry-node/wherry/internal/edge/cgroup"
)

// The agent asks the runtime for its cgroup driver for askDriverFor when it starts, because both may start at once when the machine boots. If the
// runtime does not answer by then, the agent begins with the configured driver, and asks again every askDriverLater.
const (
	askDriverFor   = 5 * time.Second
	askDriverAgain = 250 * time.Millisecond
	askDriverLater = 2 * time.Second
)

// askDriver asks the runtime for its cgroup driver; "": it does not report one.
type askDriver func(ctx context.Context) (string, error)

// chooseDriver uses the runtime's cgroup driver if the runtime reports one (feature gate KubeletCgroupDriverFromCRI). Otherwise
// it uses the configured driver.
func (a *Agent) chooseDriver(ctx context.Context, groups *cgroup.Cgroups) {
	ask := askDriver(a.cri.CgroupDriver)
	driver, answered := ask.soon(ctx)
	configured := a.cfg.Kubelet.CgroupDriver
	if !answered {
		a.log.Warn("the runtime does not answer, so the configured cgroup driver is used", "cgroupDriver", configured)
		a.platform.driverLater = func(ctx context.Context) error { return ask.later(ctx, configured) }
	}
	if driver == "" {
		return
	}
	if driver != configured {
		a.log.Info("using the runtime's cgroup driver", "driver", driver, "cgroupDriver", configured)
	}
	a.cfg.Kubelet.CgroupDriver = driver
	groups.UseDriver(driver)
}

// soon returns the runtime's cgroup driver. answered is false if the runtime does not answer within askDriverFor.
func (ask askDriver) soon(ctx context.Context) (driver string, answered bool) {
	ctx, cancel := context.WithTimeout(ctx, askDriverFor)
	defer cancel()
	for {
		driver, err := ask(ctx)
		if err == nil {
			return driver, true
		}
		select {
		case <-time.After(askDriverAgain):
		case <-ctx.Done():
			return "", false
		}
	}
}

// later asks until the runtime answers, and then waits for the end of ctx. It returns an error if the runtime has another driver than the
// one in use: the cgroups of all pods depend on it, so the agent has to end, and its service manager starts it again.
func (ask askDriver) later(ctx context.Context, inUse string) error {
	for {
		driver, err := ask(ctx)
		switch {
		case err == nil && driver != "" && driver != inUse:
			return fmt.Errorf("the runtime answers now, and its cgroup driver is %s, but the agent has begun with %s: it has to be started again", driver, inUse)
		case err == nil:
			<-ctx.Done()
			return nil
		}
		select {
		case <-time.After(askDriverLater):
		case <-ctx.Done():
			return nil
		}
	}
}
