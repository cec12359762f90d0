package archtest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// These constants bound the size of the agent: the number of its packages and the bytes of its stripped binary. Upstream's kubelet has
// 1,779 packages and 80.6 MiB; the agent has to stay below 0.75 of these packages and 0.6 of this size. The constants are lower, so that
// additions are noticed, and leave room for features that are still missing.
const (
	mostPackages = 683
	mostBytes    = 34 << 20
)

// tooHeavy has packages that the binary must not contain, each with what it would bring. A larger binary also costs memory, because the
// kernel maps pages around each page that is used.
var tooHeavy = map[string]string{
	"k8s.io/client-go/kubernetes":                 "a client, the types and the apply configurations of every group of Kubernetes, and a scheme of them all that is made at the start: 9 MiB. internal/base/kubeclient has what a node uses",
	"k8s.io/client-go/gentype":                    "with its fakes managed fields and OpenAPI. internal/base/kubeclient has a generic client of a page",
	"k8s.io/client-go/discovery":                  "OpenAPI, and a web framework for it",
	"k8s.io/client-go/tools/cache":                "a second list-and-watch, informers, and stores. internal/base/kubeclient has Follow",
	"k8s.io/client-go/tools/record":               "OpenAPI by way of strategicpatch, two goroutines for each recorder, and whole events in its caches. internal/edge/event",
	"k8s.io/apimachinery/pkg/util/strategicpatch": "the OpenAPI schemas of Kubernetes and three encoders. internal/core/mergepatch compares values",
}

func TestBudgetOfPackages(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "list", "-tags", "grpcnotrace", "-deps", "./cmd/wherry")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	n := 0
	for p := range strings.Lines(string(out)) {
		n++
		if why, ok := tooHeavy[strings.TrimSpace(p)]; ok {
			t.Errorf("the binary has %s (go list -deps ./cmd/wherry; go mod why): it brings %s", strings.TrimSpace(p), why)
		}
	}
	t.Logf("%d packages", n)
	if n > mostPackages {
		t.Errorf("the binary has %d packages, the budget is %d", n, mostPackages)
	}
}

// TestBudgetOfBinary checks bin/wherry if it has been built.
func TestBudgetOfBinary(t *testing.T) {
	t.Parallel()
	st, err := os.Stat(filepath.Join(root, "bin", "wherry"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("bin/wherry has not been built")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MiB", float64(st.Size())/(1<<20))
	if st.Size() > mostBytes {
		t.Errorf("bin/wherry has %.1f MiB, the budget is %d MiB (is it stripped, as `wherry-dev build` builds it?)", float64(st.Size())/(1<<20), mostBytes>>20)
	}
}
