package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// said has the reasons that the agent uses, each with the files that use it. A reason is a word in an event, a condition or a status. For a
// constant whose value is a reason, the key "const NAME" has the files that declare it, and "use NAME" those in which its name appears.
type said map[string][]string

// TestReasons checks that the table of reasons has each reason that the agent uses, and no reason that it does not use.
func TestReasons(t *testing.T) {
	t.Parallel()
	found := said{}
	for _, dir := range []string{"internal", "agent"} {
		found.walk(t, filepath.Join(root, dir))
	}
	known := map[string]bool{}
	for _, r := range reasons {
		if known[r.name+r.in] {
			t.Errorf("%s stands twice as a reason of %s", r.name, r.in)
		}
		known[r.name], known[r.name+r.in] = true, true
		where, emitted := found[r.name]
		switch {
		case r.not == "" && !emitted:
			t.Errorf("nothing says %s (%s), though the table says so", r.name, r.in)
		case r.not != "" && emitted:
			t.Errorf("%s is said in %s, though the table says that it is not", r.name, where[0])
		}
	}
	for _, name := range sortedKeys(found) {
		if c, ok := strings.CutPrefix(name, "const "); ok {
			if len(found["use "+c]) == 1 {
				t.Errorf("constant %s (%s) is a reason that nothing says", c, found[name][0])
			}
			continue
		}
		if !strings.HasPrefix(name, "use ") && !known[name] && !noReasons[name] {
			t.Errorf("%s (%s) is missing in the table", name, found[name][0])
		}
	}
	for name := range noReasons {
		if found[name] == nil {
			t.Errorf("%s is excepted and nowhere found", name)
		}
	}
}

// TestReasonsDocument checks that docs/reasons.md is generated from the present table.
func TestReasonsDocument(t *testing.T) {
	path := filepath.Join(root, "docs", "reasons.md")
	if *update {
		if err := os.WriteFile(path, []byte(reasonsDocument()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(path); err != nil || string(have) != reasonsDocument() {
		t.Errorf("docs/reasons.md is not what the table says (rewrite: go test ./internal/proof/archtest -run TestReasonsDocument -update): %v", err)
	}
}

func reasonsDocument() string {
	var b strings.Builder
	b.WriteString(`# Reasons of events, statuses and conditions

<!-- Generated from internal/proof/archtest/reasonstable_test.go by: go test ./internal/proof/archtest -run TestReasonsDocument -update -->

Tools search for these words. If upstream's kubelet has a reason for a situation, Wherry uses the same reason, and its message begins with
upstream's message. Wherry's own reasons are for situations that upstream's kubelet only logs.
A test checks that this page lists each reason that the agent uses, and that the agent uses each reason that has a "yes" for Wherry.
`)
	for _, in := range []string{inPodEvent, inNodeEvent, inWaiting, inTerminated, inPodStatus, inPodCondition, inNodeCondition, inAction} {
		fmt.Fprintf(&b, "\n## %s\n\n| Reason | Upstream's kubelet | Wherry |\n|---|---|---|\n", in)
		for _, r := range reasons {
			if r.in != in {
				continue
			}
			upstream, ours := "yes", "yes"
			if r.own {
				upstream = "no"
			}
			if r.not != "" {
				ours = "no: " + r.not
			}
			if r.when != "" {
				ours += ": " + r.when
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", r.name, upstream, ours)
		}
	}
	return b.String()
}

func sortedKeys(m said) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// simulated has packages that only tests use. Their reasons are those of other components.
var simulated = []string{"agenttest", "simkube", "simcri", "fuzzfill", "archtest"}

func (s said) walk(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || slices.Contains(simulated, d.Name())):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s.look(n, path)
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var reasonName = regexp.MustCompile(`^(Event[A-Z]|.*[rR]eason)`)

// look collects the reasons in a syntax node: the values of fields whose names end with Reason or Event, the values of constants and
// variables whose names contain Reason or begin with Event, the argument that follows the type of an event, and the reason of a failed
// action.
func (s said) look(n ast.Node, path string) {
	switch x := n.(type) {
	case *ast.KeyValueExpr:
		if k, ok := x.Key.(*ast.Ident); ok && (strings.HasSuffix(k.Name, "Reason") || strings.HasSuffix(k.Name, "Event")) {
			s.literal(x.Value, path)
		}
	case *ast.ValueSpec:
		for i, name := range x.Names {
			if i < len(x.Values) && reasonName.MatchString(name.Name) && name.Name != "EventType" {
				s.literal(x.Values[i], path)
				s["const "+name.Name] = append(s["const "+name.Name], path)
			}
		}
	case *ast.AssignStmt:
		for i, l := range x.Lhs {
			name := ""
			switch l := l.(type) {
			case *ast.Ident:
				name = l.Name
			case *ast.SelectorExpr:
				name = l.Sel.Name
			}
			if i < len(x.Rhs) && reasonName.MatchString(name) {
				s.literal(x.Rhs[i], path)
			}
		}
	case *ast.CallExpr:
		s.afterType(x.Args, path)
		if f, ok := x.Fun.(*ast.Ident); ok && f.Name == "failed" && len(x.Args) > 0 {
			s.literal(x.Args[0], path)
		}
	case *ast.ReturnStmt:
		s.afterType(x.Results, path)
	case *ast.SelectorExpr: // for example v1.PodReasonDeferred
		if name, ok := strings.CutPrefix(x.Sel.Name, "PodReason"); ok {
			s[name] = append(s[name], filepath.ToSlash(path))
		}
	case *ast.Ident:
		s["use "+x.Name] = append(s["use "+x.Name], path)
	}
}

// afterType collects the element that follows v1.EventTypeNormal or v1.EventTypeWarning in a list.
func (s said) afterType(list []ast.Expr, path string) {
	for i, e := range list {
		if sel, ok := e.(*ast.SelectorExpr); ok && strings.HasPrefix(sel.Sel.Name, "EventType") && i+1 < len(list) {
			s.literal(list[i+1], path)
		}
	}
}

var reasonWord = regexp.MustCompile(`^[A-Z][A-Za-z0-9]+$`)

func (s said) literal(e ast.Expr, path string) {
	switch x := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(x.Value); err == nil && x.Kind == token.STRING && reasonWord.MatchString(text) {
			s[text] = append(s[text], filepath.ToSlash(path))
		}
	case *ast.BinaryExpr: // for example "OutOf" + name
		s.literal(x.X, path)
	case *ast.CallExpr: // for example cmp.Or(reason, "Other")
		for _, a := range x.Args {
			s.literal(a, path)
		}
	}
}
