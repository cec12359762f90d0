package podctl

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/edge/push"
)

// fakeAgent answers on a control socket. It takes the pods web and job of a push and refuses the rest of the push.
type fakeAgent struct {
	socket string
	hangs  string // the name of a pod about which the agent cannot answer

	mu      sync.Mutex
	removed []string
}

func newFakeAgent(t *testing.T, hangs string) *fakeAgent {
	t.Helper()
	a := &fakeAgent{socket: filepath.Join(t.TempDir(), "agent.sock"), hangs: hangs}
	l, err := net.Listen("unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /pods", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(push.Answer{
			Items: []push.Pushed{
				{Kind: "ConfigMap", Namespace: "default", Name: "settings", Result: push.Created},
				{Kind: "Pod", Namespace: "default", Name: "web", UID: "web", Result: push.Created},
				{Kind: "Pod", Namespace: "default", Name: "job", UID: "job", Result: push.Created},
			},
			Errors: []push.Error{{Message: "pod default/last: it refers to secret default/key"}},
		})
	})
	mux.HandleFunc("GET /pods/default/{name}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		a.mu.Lock()
		defer a.mu.Unlock()
		switch {
		case name == a.hangs:
			http.Error(w, "the disk does not answer", http.StatusServiceUnavailable)
		case slices.Contains(a.removed, name):
			http.Error(w, "gone", http.StatusNotFound)
		default:
			_ = json.NewEncoder(w).Encode(v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}})
		}
	})
	mux.HandleFunc("DELETE /pods/default/{name}", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.removed = append(a.removed, r.PathValue("name"))
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "{}")
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return a
}

func (a *fakeAgent) gone() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(slices.Values(a.removed))
}

// wherry run removes its pods at its end, also if the agent has taken only some of them, and if one of them cannot be removed. The error names the
// pod that stays. With --detach, all pods stay.
func TestRunLeavesNoPodsBehindSilently(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(file, []byte(manifests3), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, hangs string
		detach      bool
		removed     []string
		says        []string
	}{
		{"the agent takes some of the pods", "", false, []string{"job", "web"}, nil},
		{"one of them cannot be removed", "web", false, []string{"job"}, []string{"pod/web is not removed: the disk does not answer"}},
		{"they are to stay", "", true, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newFakeAgent(t, c.hangs)
			run := Run{Files: []string{file}, Grace: -1, Detach: c.detach}
			run.Agent.Socket = a.socket
			var out, errOut strings.Builder
			err := run.Run(t.Context(), Streams{In: strings.NewReader(""), Out: &out, Err: &errOut})
			for _, want := range append(c.says, "it refers to secret default/key") {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
			if got := a.gone(); !slices.Equal(got, c.removed) {
				t.Errorf("removed %v, want %v", got, c.removed)
			}
			if text := out.String() + errOut.String(); !strings.Contains(text, "pod/web created") {
				t.Errorf("it does not say which pods the agent has taken:\n%s", text)
			}
		})
	}
}
