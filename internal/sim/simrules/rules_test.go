package simrules

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the expected results")

const head = "apiVersion: wherry.dev/v1alpha1\nkind: SimulationRules\n"

func parse(t *testing.T, text string) *Rules {
	t.Helper()
	rules, err := Parse("r.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// The example of the documentation is a file of rules.
func TestDocumentedRules(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/fleet-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	text, _, found := strings.Cut(rest, "```")
	rules, err := Parse("fleet-rules.md", []byte(text), nil)
	if err != nil || !found || len(rules.Containers) != 2 || len(rules.Images) != 2 {
		t.Fatalf("%v: %+v", err, rules)
	}
	do := rules.Find(Subject{Namespace: "default", Pod: "web-1", Container: "app", Image: "registry.example/app:1", Labels: map[string]string{"tier": "frontend"}})
	if do == nil || len(do.Exits) != 3 || !do.Exits[2].Runs {
		t.Errorf("%+v", do)
	}
}

// Each part of what a container does comes from the first rule that matches and has that part.
func TestFind(t *testing.T) {
	t.Parallel()
	rules := parse(t, head+`containers:
- match: {pod: "web-*", labels: {tier: "f*"}}
  do: {startError: broken}
- match: {pod: "web-*"}
  do: {exits: [{code: 3}], cpu: {value: "2"}}
- match: {image: "registry.example/*"}
  do: {exits: [{code: 4}], memory: {value: 5Mi, annotation: example.com/memory}}
`)
	for _, c := range []struct {
		s         Subject
		startFail string
		code      int32
		cpu, mem  float64
	}{
		{Subject{Pod: "web-1", Labels: map[string]string{"tier": "front"}}, "broken", 3, 2, 0},
		{Subject{Pod: "web-1"}, "", 3, 2, 0},
		{Subject{Pod: "web-1", Image: "registry.example/a/b:1"}, "", 3, 2, 5 << 20},
		{Subject{Pod: "db", Image: "registry.example/a/b:1"}, "", 4, 0, 5 << 20},
		{Subject{Pod: "db", Image: "registry.example/x", Annotations: map[string]string{"example.com/memory": "7Mi"}}, "", 4, 0, 7 << 20},
		{Subject{Pod: "db", Image: "registry.example/x", Annotations: map[string]string{"example.com/memory": "much"}}, "", 4, 0, 5 << 20},
	} {
		for range 2 { // the second time from what is kept
			do := rules.Find(c.s)
			if do == nil {
				t.Fatalf("%+v: no rule", c.s)
			}
			got := []float64{0, 0}
			for i, u := range []*Usage{do.CPU, do.Memory} {
				if u != nil {
					got[i] = u.At(0, 0)
				}
			}
			if do.StartError != c.startFail || do.Exit(0, 0).Code != c.code || got[0] != c.cpu || got[1] != c.mem {
				t.Errorf("%+v: %+v, %v", c.s, do, got)
			}
		}
	}
	if do := rules.Find(Subject{Pod: "db", Image: "x"}); do != nil {
		t.Errorf("an unknown container: %+v", do)
	}
	if do := (*Rules)(nil).Find(Subject{}); do != nil {
		t.Errorf("no rules: %+v", do)
	}
}

func TestExitsByAttempt(t *testing.T) {
	t.Parallel()
	do, err := ParseDo("a", []byte("exits: [{code: 1, after: 2s}, {oom: true}, {code: 5, chance: 0.3}]"))
	if err != nil {
		t.Fatal(err)
	}
	if e := do.Exit(0, 0); e.Code != 1 || e.After.Duration != 2*time.Second {
		t.Errorf("%+v", e)
	}
	if e := do.Exit(1, 0); !e.OOM {
		t.Errorf("%+v", e)
	}
	if e := do.Exit(9, 0.2); e.Code != 5 || e.Runs {
		t.Errorf("%+v", e)
	}
	if e := do.Exit(9, 0.3); !e.Runs {
		t.Errorf("%+v", e)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	do, err := ParseDo("a", []byte(`{exec: [{command: "cat *", stdout: early, until: 10s}, {command: "cat *", stdout: late}], http: [{path: /a*, port: 80, status: 404}, {status: 201}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if e := do.ExecAnswer("cat /x/y", 0); e == nil || e.Stdout != "early" {
		t.Errorf("%+v", e)
	}
	if e := do.ExecAnswer("cat /x/y", 10*time.Second); e == nil || e.Stdout != "late" {
		t.Errorf("%+v", e)
	}
	if e := do.ExecAnswer("ls", 0); e != nil {
		t.Errorf("%+v", e)
	}
	for _, c := range []struct {
		path string
		port int32
		want int
	}{{"/a/b", 80, 404}, {"/a/b", 81, 201}, {"/", 80, 201}} {
		if h := do.HTTPAnswer(c.path, c.port, 0); h == nil || h.Status != c.want {
			t.Errorf("%+v: %+v", c, h)
		}
	}
}

// The time of a pull follows from the image's size and the speed.
func TestPulls(t *testing.T) {
	t.Parallel()
	rules := parse(t, head+"images:\n- {image: \"big*\", size: 100Mi, speed: 10Mi, time: 2s, jitter: 1s}\n- {image: \"*\", time: 1s}\n")
	if i := rules.FindImage("big:1"); i.Takes(100<<20, 0.5) != 12*time.Second || i.Takes(100<<20, 0) != 11*time.Second {
		t.Errorf("%s %s", i.Takes(100<<20, 0.5), i.Takes(100<<20, 0))
	}
	if i := rules.FindImage("small"); i.Takes(1<<40, 0.5) != time.Second {
		t.Error(i.Takes(1<<40, 0.5))
	}
}

// Errors name file, line and field.
func TestWrongRules(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "r.yaml: the file is empty",
		"kind: [":                       "r.yaml:1: not valid YAML",
		"kind: Pod":                     "must be wherry.dev/v1alpha1 and SimulationRules",
		head:                            "r.yaml:1: containers: the file has no rule",
		head + "containers: [{dew: 1}]": "r.yaml:3: containers[0].dew",
		head + "containers:\n- do:\n    exits:\n    - {code: 900}\n":                                  "r.yaml:6: containers[0].do.exits[0].code: use 0 to 255",
		head + "containers:\n- do:\n    exits: [{runs: true, code: 1}]\n":                             "r.yaml:5: containers[0].do.exits[0].runs",
		head + "containers:\n- do:\n    exits: [{after: 1s, jitter: 2s}]\n":                           "containers[0].do.exits[0].jitter: use a time of at most after",
		head + "containers:\n- do:\n    stopAfter: soon\n":                                            "r.yaml:5: containers[0].do.stopAfter: use a time such as 5s, or never",
		head + "containers:\n- do:\n    readyAfter: -1s\n":                                            "r.yaml:5: containers[0].do.readyAfter",
		head + "containers:\n- do:\n    log:\n      repeat:\n      - {text: x}\n":                     "r.yaml:6: containers[0].do.log.repeat: the lines must take",
		head + "containers:\n- do:\n    exec: [{stdout: x}]\n":                                        "containers[0].do.exec[0].command: write a pattern",
		head + "containers:\n- do:\n    http: [{status: 9}]\n":                                        "containers[0].do.http[0].status: use a status",
		head + "containers:\n- do:\n    cpu: {value: -1}\n":                                           "r.yaml:5: containers[0].do.cpu.value: use an amount",
		head + "containers:\n- do:\n    cpu: {value: 1, noise: 2}\n":                                  "r.yaml:5: containers[0].do.cpu: wave and noise",
		head + "containers:\n- do:\n    cpu: {value: 1, to: 2}\n":                                     "containers[0].do.cpu.over: a ramp needs",
		head + "containers:\n- do:\n    cpu: {series: [{at: 1s, value: 1}, {at: 1s}]}\n":              "containers[0].do.cpu.series[1].at: the times must grow",
		head + "containers:\n- do:\n    cpu: {series: [{at: 1s, value: 1}], repeat: true}\n":          "containers[0].do.cpu.repeat: a series that repeats",
		head + "containers:\n- do:\n    cpu: {value: 1, wave: {amplitude: 1, period: 1ms}}\n":         "containers[0].do.cpu.wave.period",
		head + "images: [{size: 1}]\n":                                                                "r.yaml:3: images[0].image: write a pattern",
		head + "images: [{image: x, chance: 0.5}]\n":                                                  "images[0].chance: this is the probability of error",
		head + "containers:\n- do: {startError: x}\n---\n" + head + "images: [{image: x, time: -1s}]": "r.yaml:8: images[0].time",
		strings.Repeat("x", MaxFile+1):                                                                "more than 1048576",
	} {
		if _, err := Parse("r.yaml", []byte(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200q: %v, want %s", text, err, want)
		}
	}
}

func TestGlob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "a/b", true}, {"a*c", "abbc", true}, {"a*c", "abbd", false}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"*a*b", "xaxaxb", true}, {"**", "", true}, {"a*", "ba", false},
	} {
		if got := Glob(c.pattern, c.text); got != c.want {
			t.Errorf("%q %q: %v", c.pattern, c.text, got)
		}
	}
	if Glob(strings.Repeat("*a", 500), strings.Repeat("a", 5000)+"b") {
		t.Error("matches")
	}
}

// Documents of KWOK's API become rules; what they ask for and cannot have is named with file and line.
func TestKWOK(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/kwok.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := Parse("kwok.yaml", data, func(name string) ([]byte, error) {
		if name != "app.log" {
			return nil, errors.New("no such file")
		}
		return []byte("2026-01-02T15:04:05Z stdout F one\n2026-01-02T15:04:07Z stderr F two words\nplain\n"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	job := rules.Find(Subject{Namespace: "default", Pod: "j", Labels: map[string]string{"batch.kubernetes.io/job-name": "j"}})
	if e := job.Exit(0, 0); e == nil || e.Code != 0 || e.Runs || e.After.Duration != 3*time.Second || e.Jitter.Duration != 2*time.Second {
		t.Errorf("pod-complete: %+v", e)
	}
	failed := rules.Find(Subject{Pod: "f", Labels: map[string]string{"fails": "true"}})
	if e := failed.Exit(0, 0); e == nil || e.Code != 3 || e.Reason != "Broken" {
		t.Errorf("pod-fails: %+v", e)
	}
	plain := rules.Find(Subject{Namespace: "default", Pod: "p", Container: "c"})
	if plain.StartAfter.Duration != time.Second || plain.ReadyAfter.Duration != 0 || plain.StopAfter != "4s" || plain.CPU.At(0, 0) != 0.001 || plain.Memory.At(0, 0) != 1<<20 {
		t.Errorf("a plain pod: %+v", plain)
	}
	noted := rules.Find(Subject{Pod: "p", Annotations: map[string]string{"kwok.x-k8s.io/usage-cpu": "250m"}})
	if noted.CPU.At(0, 0) != 0.25 {
		t.Errorf("annotated: %v", noted.CPU.At(0, 0))
	}
	one := rules.Find(Subject{Namespace: "shop", Pod: "web", Container: "app"})
	want := []Line{{Text: "one"}, {Text: "two words", Stderr: true}, {Text: "plain"}}
	want[1].After.Duration = 2 * time.Second
	if diff := cmp.Diff(want, one.Log.Lines); diff != "" {
		t.Error(diff)
	}
	if *update {
		if err := os.WriteFile("testdata/kwok.ignored", []byte(strings.Join(rules.Ignored, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile("testdata/kwok.ignored")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(golden)), strings.Join(rules.Ignored, "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestWrongKWOK(t *testing.T) {
	t.Parallel()
	const kwok = "apiVersion: kwok.x-k8s.io/v1alpha1\n"
	for text, want := range map[string]string{
		kwok + "kind: Cat\n": `r.yaml:2: kind: "Cat" is no kind of kwok.x-k8s.io/v1alpha1`,
		kwok + "kind: Stage\nspec:\n  delay:\n    durationMilliseconds: soon\n":                    `r.yaml:5: spec.delay.durationMilliseconds: expected a whole number, found the string "soon"`,
		kwok + "kind: Stage\nmetadata:\n  name: 7\n":                                               "r.yaml:4: metadata.name: expected a string, found the number 7",
		kwok + "kind: ClusterLogs\nspec:\n  logs:\n  - logsFile: x\n    follow: often\n":           `r.yaml:6: spec.logs[0].follow: expected true or false, found the string "often"`,
		kwok + "kind: ResourceUsage\nspec:\n  usages:\n  - usage:\n      cpu: {value: much}\n":     `r.yaml:6: spec.usages[0].usage[cpu].value: "much" is no Quantity`,
		kwok + "kind: Logs\nmetadata: {name: p}\nspec:\n  logs:\n  - {logsFile: /none}\n":          "r.yaml:6: spec.logs[0].logsFile: none",
		"# x\n---\n" + kwok + "kind: ResourceUsage\nspec: {usages: [{usage: {cpu: {value: -1}}}]}": "r.yaml:5: spec: cpu.value: use an amount",
	} {
		if _, err := Parse("r.yaml", []byte(text), func(string) ([]byte, error) { return nil, errors.New("none") }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// What a document of KWOK asks for and a rule cannot have is named with its line and field: fields that KWOK does not have, often misspelt, and those
// that have no meaning here. It has no effect.
func TestIgnoredKWOK(t *testing.T) {
	t.Parallel()
	const kwok = "apiVersion: kwok.x-k8s.io/v1alpha1\n"
	for text, want := range map[string]string{
		"kind: Stage\nspec:\n  resourceRef: {kind: Pod}\n  delay:\n    durationMiliseconds: 9000\n  next: {statusTemplate: \"phase: Running\"}\n":                                                         `r.yaml:6: Stage: spec.delay.durationMiliseconds has no effect: unknown field; did you mean "durationMilliseconds"?`,
		"kind: Stage\nspec:\n  resourceRef: {kind: Pod}\n  delay:\n    DurationMilliseconds: 9000\n  next: {statusTemplate: \"phase: Running\"}\n":                                                        `r.yaml:6: Stage: spec.delay.DurationMilliseconds has no effect: unknown field; did you mean "durationMilliseconds"?`,
		"kind: Stage\nspec:\n  resourceRef: {kind: Pod}\n  immediateNextStage: true\n  next: {statusTemplate: \"phase: Running\"}\n":                                                                      `r.yaml:5: Stage: spec.immediateNextStage has no effect: it is not mapped`,
		"kind: Stage\nspec:\n  resourceRef: {kind: Pod}\n  next:\n    statusTemplate: \"phase: Running\"\n    patches:\n    - subresource: status\n      type: json\n      template: \"phase: Failed\"\n": `r.yaml:9: Stage: spec.next.patches[0].type has no effect: only patches of the types merge and strategic are read`,
		"kind: Stage\nspec:\n  resourceRef: {kind: Pod}\n  next:\n    statusTemplate: \"phase: Running\"\n    patches:\n    - template: \"phase: Failed\"\n":                                              `r.yaml:8: Stage: spec.next.patches[0] has no effect: only patches of the subresource status are read`,
		"kind: Stage\nspec:\n  resourceRef: {kind: Pod}\n  delay:\n    durationMilliseconds: 1000\n    jitterDurationMilliseconds: 5000\n  next: {statusTemplate: \"phase: Running\"}\n":                  `r.yaml:7: Stage: spec.delay.jitterDurationMilliseconds has no effect: only an end of containers varies: this takes 3s, the middle of both times`,
		"kind: ClusterLogs\nspec:\n  logs:\n  - logsFile: app.log\n    follow: true\n":                                                                                                                    `r.yaml:6: ClusterLogs: spec.logs[0].follow has no effect: the file is read once, before the fleet starts`,
		"kind: ClusterResourceUsage\nmetadata:\n  lables: {a: b}\nspec: {usages: [{usage: {cpu: {value: 1}}}]}\n":                                                                                         `r.yaml:4: ClusterResourceUsage: metadata.lables has no effect: unknown field; did you mean "labels"?`,
	} {
		rules, err := Parse("r.yaml", []byte(kwok+text), func(string) ([]byte, error) { return []byte("line\n"), nil })
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff([]string{want}, rules.Ignored); diff != "" {
			t.Errorf("%s:\n%s", text, diff)
		}
		do := rules.Find(Subject{Namespace: "default", Pod: "p"})
		if wait := do.StartAfter.Duration; do.Exit(0, 0) != nil || wait != 0 && wait != 3*time.Second {
			t.Errorf("%s: %+v", text, do)
		}
	}
}

// Whatever is in a file, Parse returns, and what it accepts can be asked.
func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("testdata/kwok.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(head + "containers:\n- match: {pod: \"*\"}\n  do: {exits: [{after: 1s, code: 1}], memory: {value: 1Mi, noise: 1Ki}, log: {repeat: [{after: 1s, text: x}]}}\nimages: [{image: \"*\", speed: 1Mi}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		rules, err := Parse("f", data, func(string) ([]byte, error) { return data, nil })
		if err != nil {
			return
		}
		do := rules.Find(Subject{Namespace: "default", Pod: "p", Container: "c", Image: "i"})
		if do == nil {
			return
		}
		for _, u := range []*Usage{do.CPU, do.Memory, do.Disk} {
			if u == nil {
				continue
			}
			for _, at := range []time.Duration{0, time.Second, time.Hour, maxTime} {
				if v := u.At(at, 7); !(v >= 0 && v <= maxAmount) {
					t.Errorf("%v after %s", v, at)
				}
				if s := u.Sum(at, 7); !(s >= 0) {
					t.Errorf("sum %v after %s", s, at)
				}
			}
		}
	})
}
