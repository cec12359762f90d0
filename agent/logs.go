package agent

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/logrotate"
	"github.com/wherry-node/wherry/internal/node/perform"
)

// logRotator returns the rotator of container logs; nil: the machine has no container logs.
func (a *Agent) logRotator() *logrotate.Rotator {
	if _, written := a.platform.logs.(*perform.LogDirs); !written {
		return nil
	}
	return logrotate.New(a.logRotation())
}

func (a *Agent) logRotation() logrotate.Config {
	k := a.kubelet()
	size, _ := resource.ParseQuantity(k.ContainerLogMaxSize) // checked when the configuration was read
	return logrotate.Config{
		MaxSize: size.Value(), MaxFiles: int(*k.ContainerLogMaxFiles), Workers: int(*k.ContainerLogMaxWorkers),
		Interval: k.ContainerLogMonitorInterval.Duration, Running: a.runningLogs, Reopen: a.reopenLog, Log: a.log,
	}
}

// runningLogs returns the running containers, whose logs may have to be rotated. It takes them from the newest inspections, without a
// call to the runtime.
func (a *Agent) runningLogs() []logrotate.Container {
	var out []logrotate.Container
	for _, o := range a.pleg.List() {
		for i := range o.Containers {
			if c := &o.Containers[i]; c.State == pod.StateRunning {
				out = append(out, logrotate.Container{ID: c.ID, Path: c.LogPath})
			}
		}
	}
	return out
}
