package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wherry-node/wherry/tools/internal/build"
	"github.com/wherry-node/wherry/tools/internal/debian"
	"github.com/wherry-node/wherry/tools/internal/runtime"
)

// These are names in the manifests of examples/csi, and of the namespace that the example makes for them.
const (
	csiDriver    = "files.example.com"
	csiNamespace = "csi-example"
	csiPod       = "data-0"
	csiClaim     = "disk-data-0"
)

// csiPatience is how long one step of the example may take.
const csiPatience = 3 * time.Minute

// csiWalk carries out the CSI example and prints what a user sees at each step.
type csiWalk struct {
	*csiParts
	nodes []string // of the environment, and the second one
}

// CSIExample runs the example of examples/csi on the environment, which must be up, and removes everything of it at the end. At each point at
// which the pod or its claim waits, it prints what kubectl and `wherry why` say about that. With an error, Down removes what is left.
func (e *Env) CSIExample(ctx context.Context) error {
	unlock, err := e.lock()
	if err != nil {
		return err
	}
	defer unlock()
	s, up, err := e.readState()
	switch {
	case err != nil:
		return err
	case !up:
		return errors.New("the environment is down: make up first")
	case s.Runtime == runtimeSimulated:
		return errors.New("the node is simulated and mounts nothing: the CSI example needs real containers, so root")
	}
	if err := debian.Install(ctx, []string{"xfsprogs"}, e.Progress); err != nil {
		return err
	}
	if !e.Bare {
		if err := build.Run(ctx, e.Checkout, []string{"example CSI driver", "CSI sidecars"}, e.Progress); err != nil {
			return err
		}
	}
	w := &csiWalk{csiParts: e.csiExample(), nodes: []string{s.NodeName, s.NodeName + "-2"}}
	if _, err := os.Lstat(w.second.Dir); err == nil {
		return errors.New("an earlier run has left files in " + w.second.Dir + ": make down, then make up")
	}
	if err := w.startSecond(ctx, s); err != nil {
		return err
	}
	e.say("a second node is Ready: %s", w.nodes[1])
	for i, step := range w.steps() {
		fmt.Fprintf(e.Progress, "\n%d. %s\n", i+1, step.title)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w (the logs are in %s; make down removes what is left)", step.title, err, w.second.path("logs"))
		}
	}
	return nil
}

type csiStep struct {
	title string
	do    func(ctx context.Context) error
}

func (w *csiWalk) steps() []csiStep {
	return []csiStep{
		{"No provisioner runs: the claim has no volume, so the pod has no node", w.unbound},
		{"external-provisioner makes the volume: the pod has a node, which waits for the driver to register", w.unregistered},
		{"The driver registers on both nodes: the volume is not attached yet", w.unattached},
		{"external-attacher attaches the volume: the pod runs", w.running},
		{"The claim asks for more: no resizer runs", w.unresized},
		{"external-resizer makes the volume larger, while the driver is away from the node: the file system has to grow there", w.unexpanded},
		{"The driver is back: the file system grows while the pod uses it", w.expanded},
		{"The pod moves to the other node: detached, attached, with its data", w.moved},
		{"The end: nothing is left", w.over},
	}
}

func (w *csiWalk) unbound(ctx context.Context) error {
	for _, args := range [][]string{{"create", "namespace", csiNamespace}, {"apply", "-n", csiNamespace, "-f", filepath.Join(w.Checkout, "examples", "csi")}} {
		if err := w.show(ctx, args...); err != nil {
			return err
		}
	}
	if err := w.untilEvent(ctx, csiPod, "unbound"); err != nil {
		return err
	}
	return w.waits(ctx, true)
}

func (w *csiWalk) unregistered(ctx context.Context) error {
	if err := w.startController(ctx); err != nil {
		return err
	}
	if err := w.startSidecar(provisioner); err != nil {
		return err
	}
	if err := w.untilEvent(ctx, csiPod, "waits for CSI driver "+csiDriver+" to register"); err != nil {
		return err
	}
	if err := w.show(ctx, "get", "pvc,pv", "-n", csiNamespace); err != nil {
		return err
	}
	return w.waits(ctx, false)
}

func (w *csiWalk) unattached(ctx context.Context) error {
	for i, process := range []string{firstDriver, secondDriver} {
		if err := w.startDriver(process, w.nodes[i]); err != nil {
			return err
		}
	}
	if err := w.untilEvent(ctx, csiPod, "to attach the volume to this node"); err != nil {
		return err
	}
	if err := w.show(ctx, "get", "volumeattachments"); err != nil {
		return err
	}
	return w.waits(ctx, false)
}

func (w *csiWalk) running(ctx context.Context) error {
	if err := w.startSidecar(attacher); err != nil {
		return err
	}
	if err := w.untilReady(ctx, ""); err != nil {
		return err
	}
	return w.showAll(ctx,
		[]string{"get", "pod", csiPod, "-n", csiNamespace, "-o", "wide"}, []string{"get", "volumeattachments"},
		[]string{"exec", csiPod, "-n", csiNamespace, "--", "sh", "-c", "echo kept > /data/file; df -h /data"})
}

func (w *csiWalk) unresized(ctx context.Context) error {
	if err := w.show(ctx, "patch", "pvc", csiClaim, "-n", csiNamespace, "-p", `{"spec":{"resources":{"requests":{"storage":"640Mi"}}}}`); err != nil {
		return err
	}
	if err := w.untilEvent(ctx, csiClaim, "external controller to expand"); err != nil {
		return err
	}
	return w.claimWaits(ctx)
}

func (w *csiWalk) unexpanded(ctx context.Context) error {
	node, err := w.nodeOfPod(ctx)
	if err != nil {
		return err
	}
	if err := w.stopProcess(ctx, w.driverOf(node)); err != nil {
		return err
	}
	if err := w.startSidecar(resizer); err != nil {
		return err
	}
	if err := w.untilClaim(ctx, "{.status.allocatedResourceStatuses.storage}", "NodeResizePending"); err != nil {
		return err
	}
	if err := w.claimWaits(ctx); err != nil {
		return err
	}
	return w.show(ctx, "exec", csiPod, "-n", csiNamespace, "--", "df", "-h", "/data")
}

func (w *csiWalk) expanded(ctx context.Context) error {
	node, err := w.nodeOfPod(ctx)
	if err != nil {
		return err
	}
	if err := w.startDriver(w.driverOf(node), node); err != nil {
		return err
	}
	if err := w.untilClaim(ctx, "{.status.capacity.storage}", "640Mi"); err != nil {
		return err
	}
	if err := w.untilEvent(ctx, csiPod, "FileSystemResizeSuccessful"); err != nil {
		return err
	}
	if err := w.showAll(ctx, []string{"get", "pvc", "-n", csiNamespace}, []string{"exec", csiPod, "-n", csiNamespace, "--", "df", "-h", "/data"}); err != nil {
		return err
	}
	return w.showParts(ctx, []string{"Events"}, "describe", "pod", csiPod, "-n", csiNamespace)
}

func (w *csiWalk) moved(ctx context.Context) error {
	from, err := w.nodeOfPod(ctx)
	if err != nil {
		return err
	}
	if err := w.showAll(ctx, []string{"cordon", from}, []string{"delete", "pod", csiPod, "-n", csiNamespace}); err != nil {
		return err
	}
	if err := w.await(ctx, "the pod to be on the other node", csiPatience, func(ctx context.Context) (bool, string) {
		node, err := w.nodeOfPod(ctx)
		return err == nil && node != from, fmt.Sprint(node, " ", err)
	}); err != nil {
		return err
	}
	w.showWhy(ctx)
	if err := w.untilReady(ctx, from); err != nil {
		return err
	}
	if err := w.showAll(ctx,
		[]string{"get", "pod", csiPod, "-n", csiNamespace, "-o", "wide"}, []string{"get", "volumeattachments"},
		[]string{"exec", csiPod, "-n", csiNamespace, "--", "sh", "-c", "cat /data/log /data/file; df -h /data"}); err != nil {
		return err
	}
	if err := w.checkData(ctx); err != nil {
		return err
	}
	if err := w.showParts(ctx, []string{"Events"}, "describe", "pod", csiPod, "-n", csiNamespace); err != nil {
		return err
	}
	return w.show(ctx, "uncordon", from)
}

// checkData returns an error if the pod does not find what it wrote on the other node.
func (w *csiWalk) checkData(ctx context.Context) error {
	out, err := w.kubectl(ctx, "exec", csiPod, "-n", csiNamespace, "--", "cat", "/data/log", "/data/file")
	if err != nil {
		return err
	}
	for _, want := range []string{csiPod + " started on " + w.nodes[0] + "\n", csiPod + " started on " + w.nodes[1] + "\n", "kept\n"} {
		if !strings.Contains(out, want) {
			return fmt.Errorf("the volume lacks %q: it has %q", want, out)
		}
	}
	return nil
}

// over removes the objects, then the parts of the example, and checks that nothing of the volume is left.
func (w *csiWalk) over(ctx context.Context) error {
	if err := w.showAll(ctx,
		[]string{"delete", "namespace", csiNamespace, "--timeout=2m"}, []string{"delete", "-f", filepath.Join(w.Checkout, "examples", "csi", "driver.yaml")}); err != nil {
		return err
	}
	if err := w.await(ctx, "the volume to be deleted", csiPatience, func(ctx context.Context) (bool, string) {
		out, err := w.kubectl(ctx, "get", "pv,volumeattachments", "-o", "name")
		return err == nil && out == "", fmt.Sprint(out, err)
	}); err != nil {
		return err
	}
	for _, process := range []string{controllerProcess, firstDriver, secondDriver} {
		text, err := os.ReadFile(w.processLog(process))
		if err != nil {
			return err
		}
		fmt.Fprintf(w.Progress, "\nWhat %s was asked:\n\n%s", process, indented(string(text)))
	}
	images, _ := filepath.Glob(filepath.Join(w.volumes(), "*.*"))
	if len(images) > 0 {
		return fmt.Errorf("the driver still has %s", strings.Join(images, " "))
	}
	if err := errors.Join(w.end(ctx), runtime.DetachLoops(ctx, w.volumes()), w.remove()); err != nil {
		return err
	}
	return w.show(ctx, "delete", "node", w.nodes[1])
}

// waits prints what a user sees of a pod that waits, and of its claim if the claim waits too.
func (w *csiWalk) waits(ctx context.Context, claim bool) error {
	if claim {
		if err := w.showParts(ctx, []string{"Status", "Events"}, "describe", "pvc", csiClaim, "-n", csiNamespace); err != nil {
			return err
		}
	}
	if err := w.showParts(ctx, []string{"Status", "Conditions", "Events"}, "describe", "pod", csiPod, "-n", csiNamespace); err != nil {
		return err
	}
	w.showWhy(ctx)
	return nil
}

// claimWaits prints what a user sees of a claim that waits for its new size.
func (w *csiWalk) claimWaits(ctx context.Context) error {
	if err := w.show(ctx, "get", "pvc", "-n", csiNamespace); err != nil {
		return err
	}
	if err := w.showParts(ctx, []string{"Capacity", "Conditions", "Events"}, "describe", "pvc", csiClaim, "-n", csiNamespace); err != nil {
		return err
	}
	w.showWhy(ctx)
	return nil
}

// show runs kubectl, and prints the command and its output as in a terminal.
func (w *csiWalk) show(ctx context.Context, args ...string) error {
	out, err := w.kubectl(ctx, args...)
	fmt.Fprintf(w.Progress, "\n    $ kubectl %s\n%s", w.words(args), indented(out))
	return err
}

func (w *csiWalk) showAll(ctx context.Context, commands ...[]string) error {
	for _, args := range commands {
		if err := w.show(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// showParts does the same, but prints only the given fields of kubectl describe.
func (w *csiWalk) showParts(ctx context.Context, fields []string, args ...string) error {
	out, err := w.kubectl(ctx, args...)
	fmt.Fprintf(w.Progress, "\n    $ kubectl %s    # %s\n%s", w.words(args), strings.Join(fields, ", "), indented(fieldsOf(out, fields)))
	return err
}

func (w *csiWalk) showWhy(ctx context.Context) {
	fmt.Fprintf(w.Progress, "\n    $ wherry why %s -n %s\n%s", csiPod, csiNamespace, indented(w.why(ctx, csiPod)))
}

// words returns arguments as one would type them, with paths relative to the checkout.
func (w *csiWalk) words(args []string) string {
	var words []string
	for _, arg := range args {
		arg = strings.TrimPrefix(arg, w.Checkout+"/")
		if strings.ContainsAny(arg, " {;") {
			arg = "'" + arg + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

// fieldsOf returns the given fields of the output of kubectl describe: lines that begin with their names, with the lines indented below them.
func fieldsOf(text string, fields []string) string {
	var b strings.Builder
	take := false
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, " ") {
			name, _, _ := strings.Cut(line, ":")
			take = false
			for _, field := range fields {
				take = take || name == field
			}
		}
		if take {
			b.WriteString(line)
		}
	}
	return b.String()
}

func indented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    " + line)
	}
	return b.String()
}

// untilEvent waits until an object has an event whose message contains a text.
func (w *csiWalk) untilEvent(ctx context.Context, object, text string) error {
	return w.await(ctx, fmt.Sprintf("an event of %s with %q", object, text), csiPatience, func(ctx context.Context) (bool, string) {
		out, err := w.kubectl(ctx, "get", "events", "-n", csiNamespace, "--field-selector", "involvedObject.name="+object, "-o", `jsonpath={range .items[*]}{.reason} {.message}{"\n"}{end}`)
		if err != nil {
			return false, firstLine(err.Error())
		}
		return strings.Contains(out, text), out
	})
}

// untilClaim waits until a field of the claim has a value.
func (w *csiWalk) untilClaim(ctx context.Context, field, want string) error {
	return w.await(ctx, fmt.Sprintf("%s of the claim to be %s", field, want), csiPatience, func(ctx context.Context) (bool, string) {
		out, err := w.kubectl(ctx, "get", "pvc", csiClaim, "-n", csiNamespace, "-o", "jsonpath="+field)
		if err != nil {
			return false, firstLine(err.Error())
		}
		return out == want, out
	})
}

// untilReady waits until the pod is Ready on a node other than notOn.
func (w *csiWalk) untilReady(ctx context.Context, notOn string) error {
	return w.await(ctx, "the pod to be Ready", csiPatience, func(ctx context.Context) (bool, string) {
		out, err := w.kubectl(ctx, "get", "pod", csiPod, "-n", csiNamespace, "-o", "json")
		if err != nil {
			return false, firstLine(err.Error())
		}
		var pod struct {
			Spec   struct{ NodeName string }
			Status struct {
				Phase      string
				Conditions []condition
			}
		}
		if err := json.Unmarshal([]byte(out), &pod); err != nil {
			return false, err.Error()
		}
		return pod.Spec.NodeName != notOn && isTrue(pod.Status.Conditions, "Ready"), pod.Status.Phase + " on " + pod.Spec.NodeName
	})
}

// nodeOfPod returns the node of the pod, or an error if it has none.
func (w *csiWalk) nodeOfPod(ctx context.Context) (string, error) {
	node, err := w.kubectl(ctx, "get", "pod", csiPod, "-n", csiNamespace, "-o", "jsonpath={.spec.nodeName}")
	if err == nil && node == "" {
		err = errors.New("the pod has no node")
	}
	return node, err
}

// driverOf returns the name of the process that is the driver on a node.
func (w *csiWalk) driverOf(node string) string {
	if node == w.nodes[0] {
		return firstDriver
	}
	return secondDriver
}
