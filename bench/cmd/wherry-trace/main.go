// Command wherry-trace starts a pod on a node of its own, collects the trace of the pod's start from the agent and from containerd, and draws
// it as an SVG. It starts a control plane and a runtime, so it needs root and the programs in bin/ (make build).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/bench/internal/rig"
	"github.com/wherry-node/wherry/bench/internal/traces"
)

type options struct {
	out, bin string
	least    time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "trace.svg", "file for the picture")
	flag.StringVar(&o.bin, "bin", "../bin", "directory of the built programs")
	flag.DurationVar(&o.least, "least", 2*time.Millisecond, "the shortest span of the runtime that is drawn")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "wherry-trace:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("needs root: it starts a container runtime")
	}
	c, err := traces.Collect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	// containerd inherits these variables. They make it send its spans to the collector.
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + c.Address, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_INSECURE": "true", "OTEL_SERVICE_NAME": "containerd",
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "wt")
	if err != nil {
		return err
	}
	r, err := rig.Open(ctx, bin, dir, "containerd2", func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	a, err := r.NewAgent(rig.Program{
		Name: "traced", Args: []string{filepath.Join(bin, "wherry"), "kubelet"},
		Config: "tracing: {endpoint: \"" + c.Address + "\", samplingRatePerMillion: 1000000}\n",
	})
	if err != nil {
		return err
	}
	spans, err := start(ctx, r, a, c)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("a pod's start: %d spans", len(spans))
	return os.WriteFile(o.out, []byte(traces.Waterfall(title, spans, o.least)), 0o644)
}

// start runs the agent, starts two pods one after another, and returns the trace of the second: the start of the first one also fills caches.
func start(ctx context.Context, r *rig.Rig, a *rig.Agent, c *traces.Collector) ([]traces.Span, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	w, err := r.Watch(ctx)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if err := a.Start(r.Socket); err != nil {
		return nil, err
	}
	defer a.Stop()
	if _, err := a.AwaitReady(ctx, w); err != nil {
		return nil, err
	}
	for _, name := range []string{"first", "web"} {
		if _, err := r.Client.CoreV1().Pods(rig.Namespace).Create(ctx, pod(name, a.Node), metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		if _, err := w.Ready(ctx, []string{name}); err != nil {
			return nil, err
		}
	}
	for c.PodStart(rig.Namespace, "web") == nil {
		if err := rig.Sleep(ctx, time.Second); err != nil {
			return nil, fmt.Errorf("the agent sent no trace of the start: %w", err)
		}
	}
	if err := rig.Sleep(ctx, 10*time.Second); err != nil { // containerd sends its spans a few seconds later
		return nil, err
	}
	spans := c.PodStart(rig.Namespace, "web")
	services := map[string]int{}
	for _, s := range spans {
		services[s.Service]++
	}
	fmt.Fprintln(os.Stderr, strings.TrimPrefix(fmt.Sprint(services), "map"))
	return spans, remove(ctx, r)
}

// remove deletes the pods by force, so that nothing of them is left when the runtime ends.
func remove(ctx context.Context, r *rig.Rig) error {
	if err := r.Client.CoreV1().Pods(rig.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}); err != nil {
		return err
	}
	return rig.Sleep(ctx, 5*time.Second)
}

// pod returns a pod with an init container, a main container and a ConfigMap.
func pod(name, node string) *v1.Pod {
	const image = "docker.io/library/busybox:latest"
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: rig.Namespace},
		Spec: v1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: new(int64(1)), EnableServiceLinks: new(bool),
			Volumes:        []v1.Volume{{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: rig.ConfigMap(0)}}}}},
			InitContainers: []v1.Container{{Name: "prepare", Image: image, ImagePullPolicy: v1.PullIfNotPresent, Command: []string{"true"}}},
			Containers: []v1.Container{{
				Name: "web", Image: image, ImagePullPolicy: v1.PullIfNotPresent, Command: []string{"sleep", "1000000"},
				VolumeMounts: []v1.VolumeMount{{Name: "config", MountPath: "/config"}},
			}},
		},
	}
}
