package yamldoc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Find returns the line of each field in YAML and JSON, in block and in flow style, and the line of the nearest parent of a field that the
// document lacks.
func TestFind(t *testing.T) {
	t.Parallel()
	const (
		yaml = "apiVersion: v1\n# a: comment\nauthentication:\n  x509:\n    clientCAFile: /x\n  webhook:\n    enabled: true\n" +
			"evictionHard:\n  memory.available: 1Gi\n  \"nodefs.available\": 5%\nregisterWithTaints:\n- key: a\n  effect: b\nport: 1\n"
		json    = "{\n\t\"kind\": \"x\",\n\t\"evictionHard\": {\n\t\t\"memory.available\": \"1Gi\"\n\t},\n\t\"port\": 1\n}\n"
		flow    = "a: {b: 1,\n  c: [1,\n  2]}\nx.y:\n  z.z: {w: 1}\n"
		aliases = "a: &a\n  b: 1\nc: *a\n"
	)
	for _, c := range []struct {
		text, path string
		line       int
		missing    string
	}{
		{yaml, "", 1, ""}, {yaml, "apiVersion", 1, ""}, {yaml, "authentication.x509.clientCAFile", 5, ""}, {yaml, "authentication.webhook.enabled", 7, ""},
		{yaml, "evictionHard[memory.available]", 9, ""}, {yaml, "evictionHard.memory.available", 9, ""}, {yaml, "evictionHard[nodefs.available]", 10, ""},
		{yaml, "evictionHard[other]", 8, "[other]"}, {yaml, "registerWithTaints[0]", 12, ""}, {yaml, "registerWithTaints[0].effect", 13, ""},
		{yaml, "registerWithTaints[1].effect", 11, "[1].effect"}, {yaml, "port", 14, ""}, {yaml, "port.x", 14, "x"}, {yaml, "a", 1, "a"}, {yaml, "enabled", 1, "enabled"},
		{json, "evictionHard[memory.available]", 4, ""}, {json, "port", 6, ""}, {json, "kind", 2, ""},
		{flow, "a.b", 1, ""}, {flow, "a.c[1]", 3, ""}, {flow, "x.y", 4, ""}, {flow, "x.y.z.z.w", 5, ""}, {flow, "x.z", 1, "x.z"}, {flow, "a[", 1, "["},
		{aliases, "c.b", 2, ""}, {"", "a", 0, "a"}, {"# nothing", "a", 0, "a"},
	} {
		tree, err := ParseTree([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if line, missing := tree.Find(c.path); line != c.line || missing != c.missing {
			t.Errorf("%s: line %d and %q missing, want %d and %q, in:\n%s", c.path, line, missing, c.line, c.missing, c.text)
		}
	}
	if line, missing := (*Tree)(nil).Find("a"); line != 0 || missing != "a" {
		t.Errorf("no tree: line %d and %q missing", line, missing)
	}
}

// The search for 50,000 fields of one map of 50,000 takes a moment, not a pass over all keys for each, and neither do names full of dots.
func TestFindInHugeMaps(t *testing.T) {
	t.Parallel()
	const many = 50_000
	var b strings.Builder
	for i := range many {
		fmt.Fprintf(&b, "k%d: 1\n", i)
	}
	tree, err := ParseTree([]byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for i := range many {
		if line, _ := tree.Find(fmt.Sprintf("k%d", i)); line != i+1 {
			t.Fatalf("k%d: line %d", i, line)
		}
	}
	for range 50 {
		tree.Find(strings.Repeat(".", 1<<20))
	}
	if took := time.Since(began); took > 20*time.Second { // 0.1 s; with a pass over all keys for each field it takes minutes
		t.Errorf("took %s", took)
	}
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	tree, err := ParseTree([]byte("a: 1\nb:\n- c: 1\n  d: &d {x: 1}\n  c: 2\n  <<: *d\n  <<: *d\na: 2\na: 3\n"))
	if err != nil {
		t.Fatal(err)
	}
	all := []Duplicate{{"b[0].c", 5, 3}, {"a", 8, 1}, {"a", 9, 8}}
	if d := cmp.Diff(all, tree.Duplicates(10)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(all[:2], tree.Duplicates(2)); d != "" {
		t.Errorf("two (-want +got):\n%s", d)
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	got := []string{}
	for _, p := range Split([]byte("\xef\xbb\xbf# nothing\n---\n%YAML 1.1\n--- # one\na: 1\n...\n--- {b: 2}\n---\n# nothing\n---\nc: |\n  ---\n")) {
		got = append(got, fmt.Sprintf("%d %q", p.Before, p.Text))
	}
	if d := cmp.Diff([]string{`3 "    # one\na: 1\n"`, `6 "    {b: 2}\n"`, `9 "   \nc: |\n  ---\n"`}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
