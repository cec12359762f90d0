package podctl

import (
	"context"
	"net/url"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// followLogs prints the logs of the containers of this command's pods until ctx ends. When a container restarts, the log of
// the new attempt follows.
func (r *runner) followLogs(ctx context.Context) {
	for _, p := range r.pods {
		r.logs.Go(func() {
			uid := p.UID
			began := map[string]string{} // from a container's name to the ID of the attempt whose log is printed
			var streams sync.WaitGroup
			defer streams.Wait()
			for {
				now, err := r.client.pod(ctx, p.Namespace, p.Name)
				if err == nil && now.UID != uid { // the name belongs to another pod now, or the pod is almost removed and the agent knows only its name
					uid, began = now.UID, map[string]string{}
				}
				if err == nil {
					for s := range pod.BaseStatuses(&now.Status) {
						if s.ContainerID == "" || began[s.Name] == s.ContainerID || s.State.Waiting != nil {
							continue
						}
						began[s.Name] = s.ContainerID
						streams.Go(func() { r.showLog(ctx, now, s.Name) })
					}
					if done, _ := completed(now); done {
						return
					}
				}
				if sleep(ctx, pollEvery) != nil {
					return
				}
			}
		})
	}
}

func (r *runner) showLog(ctx context.Context, p *v1.Pod, container string) {
	body, err := r.client.logs(ctx, p, container, url.Values{"follow": {"true"}})
	if err != nil {
		return // there is no log, because the pod has been replaced
	}
	defer body.Close()
	prefix := "[" + container + "] "
	switch n := len(p.Spec.Containers) + len(p.Spec.InitContainers); {
	case r.several:
		prefix = "[" + p.Name + "/" + container + "] "
	case n == 1:
		prefix = ""
	}
	_ = r.out.copy(prefix, body) // an error does not matter: the container or this command has ended
}

// drainTime is how long to wait for the last lines of containers that have ended.
const drainTime = 30 * time.Second

// drainLogs waits until the rest of all logs is printed, after all containers have ended. stop ends the wait after
// drainTime.
func (r *runner) drainLogs(stop context.CancelFunc) {
	late := time.AfterFunc(drainTime, stop)
	defer late.Stop()
	r.logs.Wait()
}
