package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/examples/labs/lab"
)

// The list follows the creation and deletion of pods, and has only pods of this node.
func TestLab(t *testing.T) {
	t.Parallel()
	client, _, err := lab.Client("")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, client, "myjtthink", l) }()
	shows := func(want string) {
		t.Helper()
		deadline := time.After(2 * time.Minute)
		for {
			resp, err := http.Get("http://" + l.Addr().String() + "/pods")
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			var names []string
			for line := range strings.Lines(string(body)) {
				names = append(names, strings.Fields(line)[0])
			}
			got := strings.Join(names, " ")
			if resp.StatusCode == 200 && got == want {
				return
			}
			select {
			case <-deadline:
				t.Fatalf("%d %q, want %q", resp.StatusCode, got, want)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	shows("")
	for name, node := range map[string]string{"nginx": "myjtthink", "other": "elsewhere"} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "c", Image: "i"}}}}
		if _, err := client.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	shows("default/nginx")
	if err := client.CoreV1().Pods("default").Delete(ctx, "nginx", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	shows("")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
