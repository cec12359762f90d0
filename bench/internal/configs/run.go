package configs

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/wherry-node/wherry/bench/internal/differ"
)

// Pair has both agents, upstream's kubelet and Wherry, on the same simulated machine with the same cluster objects (World).
type Pair struct {
	upstream *Upstream
	wherry   *Wherry
}

// NewPair creates both agents.
func NewPair(ctx context.Context, w World) (*Pair, error) {
	resolver := "nameserver 192.0.2.53\nsearch lan.example corp.example\noptions ndots:1 timeout:2\n"
	if err := os.WriteFile(filepath.Join(w.Dir, "resolv.conf"), []byte(resolver), 0o644); err != nil {
		return nil, err
	}
	u, err := NewUpstream(ctx, w)
	if err != nil {
		return nil, err
	}
	x, err := NewWherry(w)
	return &Pair{u, x}, err
}

// Result is the result of a case.
type Result struct {
	Upstream, Wherry *Requests
	Found            []Difference
}

// Run makes both agents create the sandbox and the containers of the case's pod, and compares their requests to the runtime.
func (p *Pair) Run(ctx context.Context, c Case) (Result, error) {
	seen := c.Pod.DeepCopy() // the sources of pods of a real kubelet set these two annotations
	seen.Annotations["kubernetes.io/config.source"] = "api"
	seen.Annotations["kubernetes.io/config.seen"] = time.Now().Format(time.RFC3339Nano)
	u, err := p.upstream.Requests(ctx, seen)
	if err != nil {
		return Result{}, fmt.Errorf("%s: upstream: %w", c.Name, err)
	}
	w, err := p.wherry.Requests(ctx, c.Pod.DeepCopy())
	if err != nil {
		return Result{}, fmt.Errorf("%s: Wherry: %w", c.Name, err)
	}
	return Result{u, w, Compare(c.Pod, u, w)}, nil
}

// Shows reports whether upstream's kubelet sends different requests for two pods. The pods differ in one field, so the result says
// whether this field reaches the runtime.
func Shows(a, b *Requests) bool {
	return !reflect.DeepEqual(a.flat(), b.flat())
}

func (t *Requests) flat() differ.Config {
	all := differ.Config{}
	for name := range maps.Keys(t.Containers) {
		for field, value := range t.config(name) {
			if field != "envs in order" {
				all[name+" "+field] = normal(value)
			}
		}
	}
	for field, value := range t.config("") {
		all[" "+field] = normal(value)
	}
	return all
}

// Fields returns the number of configuration values in the requests.
func (t *Requests) Fields() int {
	n := len(t.config(""))
	for name := range t.Containers {
		for field := range t.config(name) {
			if field != "envs in order" {
				n++
			}
		}
	}
	return n
}
