package nodefacts

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// loud is a runtime whose version and status messages are very long.
type loud struct{ text string }

func (l loud) Version(context.Context) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: l.text, RuntimeVersion: l.text}, nil
}

func (l loud) Status(context.Context) (*runtimeapi.StatusResponse, error) {
	bad := func(kind string) *runtimeapi.RuntimeCondition {
		return &runtimeapi.RuntimeCondition{Type: kind, Reason: l.text, Message: l.text}
	}
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		bad(runtimeapi.RuntimeReady), bad(runtimeapi.NetworkReady),
	}}}, nil
}

func (loud) ListImages(context.Context) ([]*runtimeapi.Image, error) { return nil, nil }
func (loud) ImageDir(context.Context) (string, error)                { return "", nil }

// In the Node, the texts of the runtime and of failing parts have a bounded size and no control characters, both when the Node is
// created and when it is updated. Conditions of other writers stay as they are.
func TestNodeConditionsAreBounded(t *testing.T) {
	t.Parallel()
	other := v1.NodeCondition{Type: "NetworkUnavailable", Status: v1.ConditionFalse, Reason: "RouteCreated", Message: strings.Repeat("o", pod.TextBytes+1)}
	for name, text := range map[string]string{
		"long": strings.Repeat("x", 1<<20), "binary": strings.Repeat("\x00\xff\x1b[31m", 1<<18), "short": "\x1b[2J",
	} {
		r := NewRuntime(loud{text}, func() {}, slog.New(slog.DiscardHandler))
		r.Ask(t.Context())
		s := New(Config{
			Settings: nodestatus.Settings{Name: "n"}, Runtime: r,
			Machine:  &Fixed{Machine: nodestatus.Machine{CPUs: 4, MemoryBytes: 1 << 30}, Address: netip.MustParseAddr("192.0.2.1")},
			Problems: func() []string { return []string{text} }, Failing: func() []string { return []string{text + "!"} },
		})
		made := s.Initial(t.Context()).Node
		made.Status.Conditions = append(made.Status.Conditions, other)
		for when, n := range map[string]*v1.Node{"made": made, "changed": s.Update(t.Context(), made, false).Node} {
			texts := map[string]string{"runtime version": n.Status.NodeInfo.ContainerRuntimeVersion}
			for _, c := range n.Status.Conditions {
				if c.Type == other.Type {
					if c.Message != other.Message {
						t.Errorf("%s, %s: the condition of another writer was changed", name, when)
					}
					continue
				}
				texts[string(c.Type)+" reason"], texts[string(c.Type)+" message"] = c.Reason, c.Message
			}
			if len(texts) < 9 {
				t.Errorf("%s, %s: only %d texts", name, when, len(texts))
			}
			for what, s := range texts {
				if len(s) > pod.TextBytes || !utf8.ValidString(s) || strings.ContainsAny(s, "\x00\x1b\x7f") {
					t.Errorf("%s, %s: %s has %d bytes: %.60q", name, when, what, len(s), s)
				}
			}
		}
	}
}
