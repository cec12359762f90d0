package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// ciJob is a job of a runner that runs composite actions, as GitHub's runner does it: a step is a file for bash, its inputs and the files
// that it writes to are in variables.
type ciJob struct {
	t         *testing.T
	workspace string
	temp      string            // RUNNER_TEMP
	env       map[string]string // what steps wrote to GITHUB_ENV
	path      []string          // what steps wrote to GITHUB_PATH, the newest first
	summary   string            // what steps wrote to GITHUB_STEP_SUMMARY
}

func newCIJob(t *testing.T) *ciJob {
	return &ciJob{t: t, workspace: t.TempDir(), temp: filepath.Join(t.TempDir(), "runner's temp"), env: map[string]string{}}
}

// ciAction is the part of an action.yml that a runner needs for a composite action.
type ciAction struct {
	Inputs  map[string]struct{ Default string }
	Outputs map[string]struct{ Value string }
	Runs    struct {
		Using string
		Steps []struct {
			ID, Shell, Run string
			Env            map[string]string
		}
	}
}

// expression matches the only kinds of expressions that the runner of this test knows.
var expression = regexp.MustCompile(`^\$\{\{ (inputs\.(\w+)|steps\.(\w+)\.outputs\.(\w+)) \}\}$`)

// use runs the action in a directory. It returns the action's outputs, what its steps printed, and the error of the first step that failed.
func (j *ciJob) use(dir string, inputs map[string]string) (outputs map[string]string, said string, err error) {
	j.t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "action.yml"))
	if err != nil {
		j.t.Fatal(err)
	}
	var a ciAction
	if err := yaml.Unmarshal(text, &a); err != nil {
		j.t.Fatal(err)
	}
	if a.Runs.Using != "composite" || len(a.Runs.Steps) == 0 {
		j.t.Fatalf("%s is no composite action with steps", dir)
	}
	for name := range inputs {
		if _, ok := a.Inputs[name]; !ok {
			j.t.Fatalf("%s has no input %s", dir, name)
		}
	}
	steps := map[string]map[string]string{}
	value := func(text string) string {
		m := expression.FindStringSubmatch(text)
		switch {
		case m == nil && strings.Contains(text, "${{"):
			j.t.Fatalf("%s: the expression %s is unknown", dir, text)
		case m == nil:
			return text
		case m[2] != "":
			in, ok := a.Inputs[m[2]]
			if !ok {
				j.t.Fatalf("%s names an input %s that does not exist", dir, m[2])
			}
			if given, ok := inputs[m[2]]; ok {
				return given
			}
			return in.Default
		}
		return steps[m[3]][m[4]]
	}
	for _, s := range a.Runs.Steps {
		if s.Shell != "bash" || strings.Contains(s.Run, "${{") {
			j.t.Fatalf("%s: a step with the shell %q has an expression in its script: %s", dir, s.Shell, s.Run)
		}
		env := map[string]string{}
		for name, text := range s.Env {
			env[name] = value(text)
		}
		var out string
		steps[s.ID], out, err = j.step(dir, s.Run, env)
		if said += out; err != nil {
			return nil, said, err
		}
	}
	outputs = map[string]string{}
	for name, o := range a.Outputs {
		outputs[name] = value(o.Value)
	}
	return outputs, said, nil
}

// step runs a script as a step of the action in dir, or of the job if dir is empty.
func (j *ciJob) step(dir, script string, env map[string]string) (outputs map[string]string, said string, err error) {
	j.t.Helper()
	files := j.t.TempDir()
	if err := os.MkdirAll(j.temp, 0o700); err != nil {
		j.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(files, "step.sh"), []byte(script), 0o600); err != nil {
		j.t.Fatal(err)
	}
	cmd := exec.CommandContext(j.t.Context(), "bash", "--noprofile", "--norc", "-e", "-o", "pipefail", filepath.Join(files, "step.sh")) //nolint:gosec // the script of the action
	cmd.Dir = j.workspace
	absolute, err := filepath.Abs(dir)
	if err != nil {
		j.t.Fatal(err)
	}
	cmd.Env = []string{
		"HOME=" + j.temp, "RUNNER_TEMP=" + j.temp, "GITHUB_WORKSPACE=" + j.workspace, "GITHUB_ACTION_PATH=" + absolute, "XDG_RUNTIME_DIR=" + j.temp,
		"PATH=" + strings.Join(append(slices.Clone(j.path), os.Getenv("PATH")), ":"),
	}
	for _, name := range []string{"GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY"} {
		file := filepath.Join(files, name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			j.t.Fatal(err)
		}
		cmd.Env = append(cmd.Env, name+"="+file)
	}
	for _, more := range []map[string]string{j.env, env} {
		for name, text := range more {
			cmd.Env = append(cmd.Env, name+"="+text)
		}
	}
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	err = cmd.Run()
	written := func(name string) string {
		data, err := os.ReadFile(filepath.Join(files, name))
		if err != nil {
			j.t.Fatal(err)
		}
		return string(data)
	}
	for name, text := range j.pairs(written("GITHUB_ENV")) {
		j.env[name] = text
	}
	for line := range strings.Lines(written("GITHUB_PATH")) {
		j.path = append([]string{strings.TrimSpace(line)}, j.path...)
	}
	j.summary += written("GITHUB_STEP_SUMMARY")
	return j.pairs(written("GITHUB_OUTPUT")), printed.String(), err
}

// pairs reads a file of names and values as the runner does: NAME=VALUE, or NAME<<END with lines until END.
func (j *ciJob) pairs(text string) map[string]string {
	j.t.Helper()
	out := map[string]string{}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := 0; i < len(lines) && text != ""; i++ {
		if name, end, ok := strings.Cut(lines[i], "<<"); ok && !strings.Contains(name, "=") {
			n := slices.Index(lines[i+1:], end)
			if n < 0 {
				j.t.Fatalf("no line %s after %s", end, lines[i])
			}
			out[name] = strings.Join(lines[i+1:i+1+n], "\n")
			i += n + 1
			continue
		}
		name, value, ok := strings.Cut(lines[i], "=")
		if !ok {
			j.t.Fatalf("the runner cannot read the line %q", lines[i])
		}
		out[name] = value
	}
	return out
}

// commands returns the lines of a step's output that the runner takes for commands.
func commands(said string) (out []string) {
	token := ""
	for s := bufio.NewScanner(strings.NewReader(said)); s.Scan(); {
		line := s.Text()
		switch name, _, ok := strings.Cut(strings.TrimPrefix(line, "::"), "::"); {
		case !strings.HasPrefix(line, "::") || !ok:
		case token != "" && name == token:
			token = ""
		case token == "" && name == "stop-commands":
			token = strings.TrimPrefix(line, "::stop-commands::")
		case token == "":
			out = append(out, line)
		}
	}
	return out
}

const fleetAction = "../../deploy/fleet-action"

// thisWherry returns the path of a program that is this wherry.
func thisWherry(t *testing.T) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "it's $(touch x)")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "wherry")
	if err := os.WriteFile(path, []byte(fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", asProgram, program)), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return path
}

// No input of the actions becomes a part of a script, of a command to the runner or of the runner's files, whatever it has in it. What is
// wrong with it is said in one line, and no fleet starts.
func TestFleetActionWithHostileInputs(t *testing.T) {
	t.Parallel()
	wherry := thisWherry(t)
	evil := []string{
		"$(touch x)", "`touch x`", "'; touch x; '", `"; touch x; "`, "a\ntouch x\n", "${IFS}$(touch${IFS}x)", "a\n::set-output name=kubeconfig::x", "x<<END\nKUBECONFIG=x\nEND",
		"--yes", "-", "../../x", "%0A::error::x", "|| touch x", "\x1b[2J", "{{ x }}",
	}
	refused := func(what string, j *ciJob, said string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error:\n%s", what, said)
		}
		got := commands(said)
		if len(got) != 1 || !strings.HasPrefix(got[0], "::error title=wherry fleet::") {
			t.Errorf("%s: the runner gets %q of\n%s", what, got, said)
		}
		if len(j.env)+len(j.path) != 0 || j.summary != "" {
			t.Errorf("%s: the step left %v, %v and %q", what, j.env, j.path, j.summary)
		}
		for _, dir := range []string{j.workspace, j.temp} {
			for _, name := range []string{"x", "started"} {
				if found, _ := filepath.Glob(filepath.Join(dir, "*", name)); len(found) > 0 {
					t.Errorf("%s: made %v", what, found)
				}
			}
			if _, err := os.Lstat(filepath.Join(dir, "x")); err == nil {
				t.Errorf("%s: made x in %s", what, dir)
			}
		}
	}
	for _, together := range [][]string{{"wherry"}, {"version"}, {"name"}, {"nodes"}, {"pods"}, {"within"}, {"template", "rules", "scenario", "expect"}} {
		for _, text := range evil {
			j := newCIJob(t)
			inputs := map[string]string{"wherry": wherry, "name": "never"}
			for _, input := range together {
				inputs[input] = text
			}
			_, said, err := j.use(fleetAction, inputs)
			refused(fmt.Sprintf("%s %q", together, text), j, said, err)
		}
	}
	for _, text := range evil {
		j := newCIJob(t)
		_, said, err := j.use(filepath.Join(fleetAction, "stop"), map[string]string{"wherry": wherry, "name": text})
		refused(fmt.Sprintf("stop, name %q", text), j, said, err)
	}
}

// The actions run a fleet with its control plane on the runner, wait until it is as expected, give its kubeconfig to later steps, write the
// summary, and end the fleet. Files with names that a shell would act on are only names.
func TestFleetAction(t *testing.T) {
	t.Parallel()
	plane, err := filepath.Abs("../../bin/wherry-controlplane")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(plane); err != nil {
		t.Skip("bin/wherry-controlplane has not been built")
	}
	wherry := thisWherry(t)
	j := newCIJob(t)
	j.path = []string{filepath.Dir(plane)}
	name := fmt.Sprint("ci-", os.Getpid())
	t.Cleanup(func() { // if the test fails before it ends the fleet
		cmd := exec.Command(wherry, "fleet", "stop", "--name="+name) //nolint:gosec // this program
		if cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+j.temp); cmd.Run() == nil {
			t.Error("the fleet still ran at the end")
		}
	})
	file := func(name, text string) string {
		if err := os.WriteFile(filepath.Join(j.workspace, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const head = "apiVersion: wherry.dev/v1alpha1\nkind: "
	template := file("$(touch x) '\"`touch x`\n;.yaml", head+"FleetTemplate\ngroups: [{name: small, count: 2}, {name: big, count: 1}]\n")
	rules := file("-r $(touch x) '\".yaml", "apiVersion: kwok.x-k8s.io/v1alpha1\nkind: Stage\nmetadata: {name: heartbeat}\nspec: {resourceRef: {apiGroup: v1, kind: Node}, next: {}}\n")
	scenario := file("s; touch x;.yaml", head+"FleetScenario\nevents: [{name: \"::error::x\", fault: lease, nodes: {count: 1}, for: 1s, when: {podsRunning: 5}}]\n")
	outputs, said, err := j.use(fleetAction, map[string]string{
		"wherry": wherry, "name": name, "pods": "5", "template": template, "rules": "\n" + rules + "\n\n", "scenario": scenario, "expect": "nodes=ready\npods.running >= 5\n", "within": "3m",
	})
	if err != nil {
		t.Fatalf("%v:\n%s", err, said)
	}
	if got := commands(said); len(got) != 0 {
		t.Errorf("the runner gets %q", got)
	}
	if outputs["kubeconfig"] == "" || outputs["kubeconfig"] != j.env["KUBECONFIG"] || outputs["name"] != name {
		t.Errorf("outputs %v, environment %v", outputs, j.env)
	}
	if _, err := os.Lstat(filepath.Join(j.workspace, "x")); err == nil {
		t.Error("the name of a file was a part of a script")
	}
	client, err := clientcmd.BuildConfigFromFlags("", j.env["KUBECONFIG"])
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := kubernetes.NewForConfigOrDie(client).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 3 {
		t.Errorf("%d nodes, %v", len(nodes.Items), err)
	}
	var result struct {
		Held  bool
		State struct{ Pods struct{ Running int } }
	}
	data, err := os.ReadFile(outputs["result"])
	if err == nil {
		err = json.Unmarshal(data, &result)
	}
	if err != nil || !result.Held || result.State.Pods.Running != 5 {
		t.Errorf("result: %v: %s", err, data)
	}
	for _, row := range []string{"### Fleet " + name, "| nodes=ready | yes | 3 of 3 |", "| pods.running &gt;= 5 | yes | 5 |", "| nodes | 3 of 3 Ready |", "| small | 2 of 2 Ready |"} {
		if !strings.Contains(j.summary, row+"\n") {
			t.Errorf("the summary does not have %q:\n%s", row, j.summary)
		}
	}

	// The fleet says that a document of the rules has no effect, and which fault the scenario has caused.
	for _, want := range []string{rules + ":", "::error::x: lease: " + name} {
		var text []byte
		for end := time.Now().Add(time.Minute); !strings.Contains(string(text), want); time.Sleep(100 * time.Millisecond) {
			if text, err = os.ReadFile(outputs["log"]); err != nil || time.Now().After(end) {
				t.Fatalf("the fleet does not say %q: %v: %s", want, err, text)
			}
		}
	}

	// A later step has the program in its PATH.
	if _, said, err := j.step("", `wherry fleet get --name "$NAME" && wherry fleet fault crash --all --name "$NAME"`, map[string]string{"NAME": name}); err != nil || !strings.Contains(said, "3 of 3 Ready") {
		t.Errorf("a later step: %v: %s", err, said)
	}
	if _, said, err := j.use(fleetAction, map[string]string{"wherry": wherry, "name": name}); err == nil || !strings.Contains(said, "was started before") {
		t.Errorf("a second fleet of the name: %v: %s", err, said)
	}
	started := filepath.Join(j.temp, "wherry-fleet-"+name, "started")
	if err := os.Remove(started); err != nil { // now the fleet is one that an earlier job has left
		t.Fatal(err)
	}
	if _, said, err := j.use(fleetAction, map[string]string{"wherry": wherry, "name": name}); err == nil || !strings.Contains(said, "runs already on this machine") {
		t.Errorf("a fleet of the name that an earlier job has left: %v: %s", err, said)
	}
	if err := os.WriteFile(started, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stop := filepath.Join(fleetAction, "stop")
	j.summary = ""
	if _, said, err := j.use(stop, map[string]string{"name": name}); err != nil || len(commands(said)) != 0 {
		t.Errorf("stop: %v: %s", err, said)
	}
	if !strings.Contains(j.summary, "3 crashed |\n") {
		t.Errorf("the summary of the end:\n%s", j.summary)
	}
	if _, err := os.Stat(j.env["KUBECONFIG"]); err == nil {
		t.Error("the control plane's data are left")
	}
	if _, said, err := j.use(stop, map[string]string{"name": name}); err != nil || !strings.Contains(said, "no fleet "+name+" was started") {
		t.Errorf("stop without a fleet: %v: %s", err, said)
	}

	// Expectations that do not hold fail the step. The fleet runs on for the steps that look for the reason.
	j.summary = ""
	if _, said, err := j.use(fleetAction, map[string]string{"wherry": wherry, "name": name, "nodes": "1", "expect": "nodes.crashed>=1", "within": "500ms"}); err == nil || len(commands(said)) != 1 || !strings.Contains(commands(said)[0], "nodes.crashed>=1 (now: 0)") {
		t.Errorf("not as expected: %v: %s", err, said)
	}
	if !strings.Contains(j.summary, "| nodes.crashed&gt;=1 | no | 0 |\n") {
		t.Errorf("the summary:\n%s", j.summary)
	}
	if _, said, err := j.use(stop, map[string]string{"wherry": wherry, "name": name}); err != nil {
		t.Errorf("stop: %v: %s", err, said)
	}
}
