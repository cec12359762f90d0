package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/proof/browser"
)

// TestPictures writes the pictures of docs/ that show a real node: the console, and a terminal with wherry explain and with kubectl describe.
// It runs only if WHERRY_PICTURES names a directory (WHERRY_PICTURES=$PWD/docs go test ./test/integration -run TestPictures). What the
// pictures show is what the programs print; the test checks that it says why the pod does not run.
func TestPictures(t *testing.T) {
	dir := os.Getenv("WHERRY_PICTURES")
	if dir == "" {
		t.Skip("WHERRY_PICTURES names no directory")
	}
	s := newSpace(t)
	s.enter("shop")
	rt := filepath.Join(s.env.dir, "rt-pictures")
	s.env.addRuntime(rt)
	if err := s.env.runtimeUp(rt, s.env.subnet(rt)); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(s.env.dir, "pictures.sock")
	settings := filepath.Join(s.env.dir, "pictures.yaml")
	if err := os.WriteFile(settings, []byte(mainSettings), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := s.env.startNode(nodeConfig{Name: "edge-1", Runtime: rt, Flags: []string{"--push-socket", socket, "--wherry-config", settings},
		Config: "registerWithTaints: [{key: pictures, effect: NoSchedule}]\n"})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.waitReady(patience); err != nil {
		t.Fatal(err)
	}
	s.node = n
	s.pod("orders", crashSpec, onNode(n), func(p *v1.Pod) {
		p.Spec.Containers[0].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
	})
	s.pod("billing", `{containers: [{name: main, image: $busybox, volumeMounts: [{name: conf, mountPath: /conf}]}], volumes: [{name: conf, configMap: {name: prices}}]}`, onNode(n))
	s.pod("reports", `containers: [{name: main, image: $busybox, command: [sleep, "1000"], resources: {requests: {cpu: "1000"}}}]`, onNode(n))
	s.pod("search", `containers: [{name: main, image: $busybox, command: [sh, -c, 'while :; do echo tick; sleep 1; done'], resources: {limits: {cpu: 200m, memory: 32Mi}}}]`, onNode(n))
	s.pod("web", `containers: [{name: main, image: $busybox, command: [sleep, "1000"], readinessProbe: {exec: {command: [cat, /ready]}, periodSeconds: 1}}]`, onNode(n))
	s.until("orders", "restarted three times", func(p *v1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].RestartCount >= 3 && p.Status.ContainerStatuses[0].State.Waiting != nil
	})

	explain := func(args ...string) (command, output string) {
		out, err := exec.Command(s.env.wherry, append([]string{"explain", "--socket", socket}, args...)...).CombinedOutput() //nolint:gosec // the program of the test
		if err != nil {
			t.Fatalf("wherry explain: %v\n%s", err, out)
		}
		return "wherry explain " + strings.Join(args, " "), string(out)
	}
	c1, o1 := explain(s.name + "/orders")
	c2, o2 := explain(s.name + "/billing")
	c3, o3 := explain()
	c4, o4 := explain("node")
	for out, sign := range map[string]string{o1: "CrashLoop", o2: "ConfigMapMissing", o3: "DoesNotFit", o4: "Ready "} {
		if !strings.Contains(out, sign) {
			t.Errorf("no %s in\n%s", sign, out)
		}
	}
	terminal(t, filepath.Join(dir, "explain-terminal.png"), c1, o1, c2, o2, c3, o3, c4, o4)

	said := s.kubectl("describe", "pod", "orders")
	_, from, _ := strings.Cut(said, "    State: ")
	state, _, _ := strings.Cut(from, "    Environment:")
	_, events, _ := strings.Cut(said, "Events:")
	describe := "    State: " + state + "    ...\nEvents:" + events
	if !strings.Contains(describe, "cannot read /etc/app.conf") {
		t.Errorf("kubectl describe does not say why the container ends:\n%s", said)
	}
	terminal(t, filepath.Join(dir, "describe-terminal.png"), "kubectl describe pod orders -n "+s.name+" | sed -n '/State:/,$p'", describe)

	tab := browser.Open(t, 1280, 800)
	tab.Go(s.console(s.env.kubeconfig(), n.Name))
	tab.Until("the pods", `document.querySelectorAll("a.name").length >= 5 && document.body.innerText.includes("ConfigMapMissing")`)
	tab.Picture(filepath.Join(dir, "console-pods.png"))
	tab.Eval(`location.hash = "#/pod/`+s.name+`/orders"`, nil)
	tab.Until("the answer", `document.querySelector(".answer.trouble")?.innerText.includes("cannot read /etc/app.conf")`)
	tab.Picture(filepath.Join(dir, "console-pod.png"))
}

// enter makes the test use another new namespace, whose name is known.
func (s *space) enter(namespace string) {
	s.Helper()
	s.kubectl("create", "namespace", namespace)
	s.name = namespace
	s.Cleanup(func() { s.kubectl("delete", "namespace", namespace, "--wait=false") })
	s.eventually("service account", func() error {
		_, err := s.client().CoreV1().ServiceAccounts(namespace).Get(s.Context(), "default", metav1.GetOptions{})
		return err
	})
}

// terminal writes a picture of a terminal that shows commands, each with its output.
func terminal(t *testing.T, file string, commandsAndOutputs ...string) {
	t.Helper()
	tab := browser.Open(t, 1240, 100)
	tab.Terminal(commandsAndOutputs...)
	tab.Picture(file)
}
