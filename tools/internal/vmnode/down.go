package vmnode

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/wherry-node/wherry/tools/internal/proc"
)

// Down ends the guest, the control plane and the network, and removes everything except the logs and the cached image.
func (e *Env) Down(ctx context.Context) error {
	unlock, err := e.lock()
	if err != nil {
		return err
	}
	defer unlock()
	err = errors.Join(
		proc.Stop(ctx, e.path("guest", "qemu.pid"), 0),
		proc.Stop(ctx, e.planePID(), time.Minute),
		e.removeNetwork(ctx),
	)
	if err != nil {
		return err // the directory stays, because the next Down needs its files
	}
	logs := filepath.Join(filepath.Dir(e.Dir), "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	for from, to := range map[string]string{"guest/console.log": "vm-console.log", "guest/qemu.log": "vm-qemu.log", "controlplane.log": "vm-controlplane.log"} {
		_ = os.Rename(e.path(from), filepath.Join(logs, to)) // a log that cannot be kept is no error of Down
	}
	if err := errors.Join(os.RemoveAll(e.Dir), os.Remove(e.Dir+".lock")); err != nil {
		return err
	}
	e.say("down; logs of the last run: %s; the image stays in %s", logs, e.Cache)
	return nil
}

// removeNetwork removes the network namespace, and with it the tap device.
func (e *Env) removeNetwork(ctx context.Context) error {
	if _, err := os.Stat("/run/netns/" + e.namespace()); err != nil {
		return nil
	}
	_, err := output(ctx, "ip", "netns", "delete", e.namespace())
	return err
}
