package source

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// A source is in doubt while it has a manifest that it has never been able to accept, because an earlier agent may have run the pods of
// that manifest. An edit that leaves the manifest wrong, in whatever way, does not end the doubt. A manifest that was accepted once, or
// that appears after the source's first complete answer, causes no doubt.
func TestDoubtLastsUntilTheManifestIsAccepted(t *testing.T) {
	t.Parallel()
	const (
		empty, broken = "", "a: ["
		lacks, edited = "lacks:1", "lacks:2" // a pod with this image refers to an object that no manifest has
		good          = "good:1"
	)
	for _, c := range []struct {
		name     string
		contents []string // one after another; the first is there before the first complete answer
		late     bool     // the manifest appears after the first complete answer
		want     []bool   // the doubt after each content
	}{
		{name: "lacks an object, then edited, still lacking it", contents: []string{lacks, edited, edited, good}, want: []bool{true, true, true, false}},
		{name: "broken, then lacks an object", contents: []string{broken, lacks, edited, good}, want: []bool{true, true, true, false}},
		{name: "lacks an object, then broken", contents: []string{lacks, broken, lacks, good, lacks}, want: []bool{true, true, true, false, false}},
		{name: "empty, broken, then accepted", contents: []string{empty, broken, good, broken, edited}, want: []bool{true, true, false, false, false}},
		{name: "accepted, then lacks an object", contents: []string{good, lacks, edited}, want: []bool{false, false, false}},
		{name: "late", late: true, contents: []string{lacks, edited, broken}, want: []bool{false, false, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var doubts []bool
			m := newManifests(Config{
				NodeName: "n", Target: &wanted{}, Log: slog.New(slog.DiscardHandler),
				Doubt: func(_ pod.Source, doubt bool) { doubts = append(doubts, doubt) },
				Missing: func(p *v1.Pod) []string {
					if strings.HasPrefix(p.Spec.Containers[0].Image, "lacks") {
						return []string{"ConfigMap conf"}
					}
					return nil
				},
			}, pod.SourceFile)
			if c.late {
				m.publish(true)
			}
			for _, content := range c.contents {
				if strings.Contains(content, ":1") || strings.Contains(content, ":2") {
					content = podText("p", content)
				}
				m.put("p.yaml", []byte(content))
				m.publish(true)
			}
			if d := cmp.Diff(c.want, slices.Clip(doubts)[len(doubts)-len(c.want):]); d != "" {
				t.Errorf("doubt (-want +got):\n%s", d)
			}
		})
	}
}

// A source is in doubt until the pods of the manifest that it can read now have been passed on, and before others are, if it cannot read one.
// Otherwise a pod of an earlier agent would be stopped in the moment between.
func TestDoubtEndsAfterThePodsAreKnown(t *testing.T) {
	t.Parallel()
	for content, want := range map[string][]string{podText("p", "good:1"): {"1 pods", "doubt false"}, "a: [": {"doubt true", "0 pods"}} {
		said := &order{}
		m := newManifests(Config{NodeName: "n", Target: said, Log: slog.New(slog.DiscardHandler),
			Doubt: func(_ pod.Source, doubt bool) { said.add("doubt %t", doubt) }}, pod.SourceFile)
		m.put("p.yaml", []byte(content))
		m.publish(true)
		if d := cmp.Diff(want, said.told); d != "" {
			t.Errorf("%.20q: (-want +got):\n%s", content, d)
		}
	}
}

// order is a Target that lists what it is told.
type order struct {
	wanted
	told []string
}

func (o *order) add(format string, args ...any) {
	o.told = append(o.told, fmt.Sprintf(format, args...))
}

func (o *order) Replace(_ pod.Source, pods []*v1.Pod) { o.add("%d pods", len(pods)) }
