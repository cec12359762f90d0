// Command pleg runs the agent's pod lifecycle event generator (PLEG) over a simulated runtime with one pod. An HTTP request stops the pod's
// sandbox. The next relist of the PLEG finds this, and the lab prints ContainerDied.
//
//	go run ./examples/labs/pleg &
//	curl localhost:8080
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/examples/labs/lab"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cri"
	"github.com/wherry-node/wherry/internal/edge/pleg"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

func main() {
	listen := flag.String("listen", "localhost:8080", "where to listen")
	lab.Main(func(ctx context.Context) error {
		l, err := net.Listen("tcp", *listen)
		if err != nil {
			return err
		}
		return run(ctx, os.Stdout, l)
	})
}

const uid = "ef14133d-c5af-482d-a514-e6fc98093553"

func run(ctx context.Context, out io.Writer, l net.Listener) error {
	r := simcri.New(simcri.Config{})
	defer r.Close()
	runtime, images := r.Clients()
	sandbox, err := runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "nginx", Namespace: "default", Uid: uid},
		Labels:   map[string]string{pod.LabelPodUID: uid, pod.LabelPodName: "nginx", pod.LabelPodNamespace: "default"},
	}})
	if err != nil {
		return err
	}

	g := pleg.New(pleg.Config{
		Runtime:     cri.New(cri.Config{Runtime: runtime, Images: images}),
		Unsupported: cri.IsUnimplemented,
		Period:      time.Second,
		OnEvent: func(e pleg.Event) {
			if e.Type != pleg.ContainerStarted {
				fmt.Fprintln(out, e)
			}
		},
		Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()

	flip := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Wait until an inspection has shown the sandbox ready: the PLEG reports only changes, so it would report nothing about a sandbox
		// that it has never seen ready. The first listing (Synced) is not enough, because it only asks for that inspection.
		for !seenReady(g) && r.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := runtime.StopPodSandbox(r.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox.PodSandboxId}); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "the pod's state has changed")
	})
	err = lab.Serve(ctx, l, flip)
	cancel()
	<-ended
	return err
}

// seenReady reports whether the PLEG has seen the pod's sandbox ready.
func seenReady(g *pleg.Generator) bool {
	obs, _ := g.Get(uid)
	return slices.ContainsFunc(obs.Sandboxes, func(s pod.Sandbox) bool { return s.Ready })
}
