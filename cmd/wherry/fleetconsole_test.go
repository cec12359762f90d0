package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/internal/proof/browser"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// self returns a command that runs wherry with these arguments.
func self(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// background runs a wherry command until the test ends, and returns the file with its output.
func background(t *testing.T, args ...string) (log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "log")
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	cmd := self(context.Background(), args...)
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			text, _ := os.ReadFile(log)
			t.Errorf("wherry %s: %v:\n%s", strings.Join(args, " "), err, text)
		}
	})
	return log
}

// The console of a fleet shows all its nodes as a heat map, its faults and its groups; each node leads to its own console and back.
func TestConsoleOfAFleetInABrowser(t *testing.T) {
	t.Parallel()
	const nodes, crowded = 30, 12 // the fleet's nodes, and the pods of its first one
	tab := browser.Open(t, 1360, 900)
	kube := simkube.New(simkube.Config{})
	api := httptest.NewTLSServer(kube)
	t.Cleanup(api.Close)
	admin, err := kubernetes.NewForConfig(kube.RESTConfig("test"))
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	background(t, "fleet", "--name=f", fmt.Sprint("--nodes=", nodes), "--kubeconfig="+writeKubeconfig(t, t.TempDir(), api), "--yes", "--no-serve", "--socket="+socket)
	fleet := func(args ...string) string {
		out, _ := self(t.Context(), append(append([]string{"fleet"}, args...), "--socket="+socket)...).CombinedOutput()
		return string(out)
	}
	until := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !done(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not after a minute: %s: %s", what, fleet("get", "--nodes"))
			}
		}
	}
	until("all nodes are Ready", func() bool { return strings.Count(fleet("get", "--nodes", "-o", "json"), `"ready"`) >= nodes })
	for i := range crowded {
		if _, err := admin.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Annotations: map[string]string{"wherry.dev/sim-exit-code": "3"}},
			Spec:       v1.PodSpec{NodeName: "f-node-1", Containers: []v1.Container{{Name: "app", Image: "registry.example/app:1"}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if out := fleet("fault", "partition", "f-node-7"); !strings.Contains(out, "f-node-7") {
		t.Fatalf("fleet fault: %s", out)
	}

	log := background(t, "console", "--fleet=f", "--socket="+socket)
	var link string
	until("the link of the console", func() bool {
		text, _ := os.ReadFile(log)
		link = string(bytes.TrimSpace(regexp.MustCompile(`http://127\.0\.0\.1:\d+/open/\w+`).Find(text)))
		return link != ""
	})
	tab.Go(link)
	tab.Until("a cell for each node", fmt.Sprintf(`document.querySelectorAll(".heat .cell").length === %d`, nodes))
	tab.Until("the node that is cut off, with its fault", `document.querySelector(".heat .cell.n-partitioned.faulty")?.getAttribute("aria-label").startsWith("f-node-7: cut off")`)
	tab.Until("the node with most pods as the fullest", `document.querySelector(".heat .cell").style.getPropertyValue("--full") === "1"`)
	tab.Until("the fault under way", `document.querySelector("section[aria-label='Faults under way'] tbody")?.innerText.includes("partition")`)
	tab.Until("how the pods are distributed", fmt.Sprintf(`document.querySelector(".histogram")?.getAttribute("aria-label").includes("1 nodes have %d pods")`, crowded))
	for _, dark := range []bool{false, true} {
		tab.Dark(dark)
		tab.CheckAccess(fmt.Sprintf("the fleet, dark=%v", dark))
	}
	tab.Eval(`[...document.querySelectorAll("button.chip")].find((b) => b.textContent.startsWith("cut off")).click()`, nil)
	tab.Until("only the node that is cut off", `document.querySelectorAll(".heat .cell").length === 1`)
	tab.Eval(`[...document.querySelectorAll("button.chip")].find((b) => b.textContent.startsWith("cut off")).click()`, nil)
	tab.Until("all nodes again", fmt.Sprintf(`document.querySelectorAll(".heat .cell").length === %d`, nodes))

	tab.Eval(`document.querySelector(".heat .cell").click()`, nil)
	tab.Until("the console of the first node", `document.title.startsWith("f-node-1 ")`)
	tab.Until("its pods", fmt.Sprintf(`document.querySelectorAll("table.pods tbody tr.trouble").length === %d`, crowded))
	tab.Eval(`[...document.querySelectorAll("#where a")].find((a) => a.textContent === "fleet").click()`, nil)
	tab.Until("the fleet again", fmt.Sprintf(`document.querySelectorAll(".heat .cell").length === %d`, nodes))

	if out := fleet("heal", "f-node-7"); !strings.Contains(out, "f-node-7") {
		t.Errorf("fleet heal: %s", out)
	}
	tab.Until("no fault", `document.querySelector("section[aria-label='Faults under way']").innerText.includes("No fault is under way")`)
	if len(tab.Problems) > 0 {
		t.Errorf("the page had problems: %v", tab.Problems)
	}
}
