package podctl

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A log that breaks off, because the agent stops, is an error in plain words. What has come of it is printed.
func TestALogThatBreaksOff(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/pods" {
			_ = json.NewEncoder(w).Encode(v1.PodList{Items: []v1.Pod{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}},
			}}})
			return
		}
		_, _ = io.WriteString(w, "a line\n")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})}
	go srv.Serve(l) //nolint:errcheck // it ends with the test
	t.Cleanup(func() { srv.Close() })
	for _, all := range []bool{false, true} {
		var out bytes.Buffer
		err := (&Logs{Target: Target{Socket: path}, Follow: true, Tail: -1, All: all}).Run(t.Context(), Streams{Out: &out, Err: io.Discard}, "web")
		if err == nil || !strings.Contains(err.Error(), "the log has broken off, because the agent stops") || !strings.HasSuffix(out.String(), "a line\n") {
			t.Errorf("all containers %t: error %v, output %q", all, err, out.String())
		}
	}
}
