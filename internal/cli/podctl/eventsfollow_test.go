package podctl

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A command that follows events prints nothing while nothing happens, also in the forms for programs: the agent answers from time to time although there
// is no new event.
func TestEventsPrintNothingWhileNothingHappens(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	answers := [][]v1.Event{{{Reason: "First"}}, nil, nil, {{Reason: "Second"}}}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(answers) == 0 {
			cancel()
			return
		}
		list := v1.EventList{Items: answers[0]}
		list.ResourceVersion, answers = "1", answers[1:]
		_ = json.NewEncoder(w).Encode(list)
	})}
	go srv.Serve(l) //nolint:errcheck // it ends with the test
	t.Cleanup(func() { srv.Close() })
	var out bytes.Buffer
	_ = (&Events{Target: Target{Socket: path}, Follow: true, Format: "json"}).Run(ctx, Streams{Out: &out, Err: io.Discard}, "")
	if n := strings.Count(out.String(), "EventList"); n != 2 || !strings.Contains(out.String(), "First") || !strings.Contains(out.String(), "Second") {
		t.Errorf("%d lists are printed, want one for each answer with events:\n%s", n, out.String())
	}
}
