package archtest

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/wherry-node/wherry"

// root is the root of the repository.
var root = filepath.Join("..", "..", "..")

// rooms has the directories of internal/ (called rooms here), each with the rooms whose packages it may import. Imports go only downwards,
// so that a reader can study one room at a time. Edges do not import each other, so that each edge can be replaced without a change of
// another one.
var rooms = map[string][]string{
	// core makes decisions. It has only values: no IO, clock, log or goroutine.
	"core": {"core"},
	// base has code that several edges need and that knows nothing of nodes: requests to the API server, system calls on files that a
	// container may control, and the scheduling of the node's own work.
	"base": {},
	// edge talks to outside systems. Each of its packages talks to one system.
	"edge": {"core", "base"},
	// node connects the edges with the decisions.
	"node": {"core", "base", "edge", "node"},
	// cli implements the commands of cmd/wherry. It uses the public package agent, as other programs do.
	"cli": {"core", "base", "edge", "cli"},
	// sim has a runtime, an API server and a CSI driver in memory. They replace real ones and know nothing of the agent.
	"sim": {"core", "base", "edge", "sim"},
	// proof has the tests of the whole agent, and code that only tests use.
	"proof": {"core", "base", "edge", "node", "sim", "proof"},
}

// mayUseAgent has the directories of internal/ that may import the public package agent. The agent itself imports packages of the others.
var mayUseAgent = []string{"cli", "proof"}

// pureForbidden has the packages that core may not import, because they bring IO, a clock or concurrency.
var pureForbidden = []string{
	"os", "os/exec", "net", "net/http", "log", "log/slog", "context", "io/ioutil", "syscall", "sync/atomic",
	"google.golang.org/grpc", "k8s.io/client-go", "k8s.io/klog",
}

type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports", module+"/...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p listed
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	return pkgs
}

// roomOf returns the room and the name of a package: "core" and "pod" for internal/core/pod. A nested package has the name of its parent.
// For a package that is not below internal/, roomOf returns two empty strings.
func roomOf(path string) (room, name string) {
	rest, ok := strings.CutPrefix(path, module+"/internal/")
	if !ok {
		return "", ""
	}
	room, rest, _ = strings.Cut(rest, "/")
	name, _, _ = strings.Cut(rest, "/")
	return room, name
}

// dirOf returns the directory of the package with this name below internal/, relative to this test; "": there is none.
func dirOf(t *testing.T, name string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "internal", "*", name))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) > 1 {
		t.Fatalf("two packages have the name %s: %v", name, found)
	}
	if len(found) == 0 {
		return ""
	}
	return strings.TrimPrefix(found[0], root+"/")
}

func TestImportsGoDownOnly(t *testing.T) {
	for _, p := range packages(t) {
		room, name := roomOf(p.ImportPath)
		if room == "" {
			continue
		}
		may, ok := rooms[room]
		if !ok || name == "" {
			t.Errorf("%s is in no room: a package must be in internal/ROOM/NAME, with a ROOM of the table rooms", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			otherRoom, other := roomOf(imp)
			switch {
			case strings.HasPrefix(imp, "k8s.io/kubernetes"):
				t.Errorf("%s imports %s: none of it may be in the agent", p.ImportPath, imp)
			case strings.HasPrefix(imp, module+"/cmd"), strings.HasPrefix(imp, module+"/agent") && !slices.Contains(mayUseAgent, room):
				t.Errorf("%s imports %s: the composition root imports the rest, never the other way", p.ImportPath, imp)
			case otherRoom == "" || other == name:
			case !slices.Contains(may, otherRoom):
				t.Errorf("internal/%s/%s imports internal/%s/%s: the room %s may import %v", room, name, otherRoom, other, room, may)
			}
			if room == "core" && slices.ContainsFunc(pureForbidden, func(f string) bool { return imp == f || (strings.Contains(f, ".") && strings.HasPrefix(imp, f)) }) {
				t.Errorf("internal/core/%s is pure and imports %s", name, imp)
			}
		}
	}
}

// No package has an init function, and none has package-level variables except errors and compile-time guards, because many agents run in
// one process. Tables that never change are allowed; the test recognises them by their initial values.
func TestNoGlobalState(t *testing.T) {
	for _, p := range packages(t) {
		if !strings.HasPrefix(p.ImportPath, module+"/internal/") && !slices.Contains(publicPackages, p.ImportPath) {
			continue
		}
		for _, f := range p.GoFiles {
			path := filepath.Join(p.Dir, f)
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				for _, problem := range globalState(d) {
					t.Errorf("%s/%s: %s", p.ImportPath, f, problem)
				}
			}
		}
	}
}

func globalState(d ast.Decl) (problems []string) {
	if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
		return []string{"has an init function"}
	}
	gen, ok := d.(*ast.GenDecl)
	if !ok || gen.Tok != token.VAR {
		return nil
	}
	for _, s := range gen.Specs {
		v := s.(*ast.ValueSpec)
		if exprName(v.Type) == "embed.FS" { // files that are compiled into the program never change
			continue
		}
		for i, n := range v.Names {
			if n.Name == "_" || (i < len(v.Values) && harmless(v.Values[i])) {
				continue
			}
			problems = append(problems, fmt.Sprintf("package variable %s is neither an error nor a fixed table", n.Name))
		}
	}
	return problems
}

// harmless reports whether the initial value of a variable is allowed: an error, a literal table, a pattern or codec (compiled at once or
// on first use), or a set of strings.
func harmless(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CompositeLit, *ast.BasicLit:
		return true
	case *ast.SelectorExpr: // another name for an error of another package
		return strings.HasPrefix(e.Sel.Name, "Err")
	case *ast.UnaryExpr:
		return harmless(e.X)
	case *ast.CallExpr:
		name := exprName(e.Fun)
		return slices.Contains([]string{
			"errors.New", "fmt.Errorf", "regexp.MustCompile", "sets.New", "resource.MustParse", "int64", "schema.GroupVersion",
			"netip.MustParsePrefix", "strings.NewReplacer", "byte", "[]byte", "sync.OnceValue",
		}, name)
	}
	return false
}

func exprName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return exprName(e.X) + "." + e.Sel.Name
	case *ast.IndexExpr:
		return exprName(e.X)
	case *ast.ArrayType:
		return "[]" + exprName(e.Elt)
	}
	return ""
}

// Every package has a file doc.go, in which it documents its contract.
func TestEveryPackageHasADocFile(t *testing.T) {
	for _, p := range packages(t) {
		if !strings.HasPrefix(p.ImportPath, module+"/internal/") && !slices.Contains(publicPackages, p.ImportPath) {
			continue
		}
		if len(p.GoFiles) > 0 && !slices.Contains(p.GoFiles, "doc.go") {
			t.Errorf("%s has no doc.go", p.ImportPath)
		}
	}
}

// Each `package.Symbol` that ARCHITECTURE.md names exists.
func TestArchitectureNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if os.IsNotExist(err) {
		t.Fatal("ARCHITECTURE.md is missing")
	}
	if err != nil {
		t.Fatal(err)
	}
	symbol := regexp.MustCompile("`([a-z]+)\\.([A-Z][A-Za-z]+)(?:\\.([A-Z][A-Za-z]+))?`")
	found := 0
	for _, m := range symbol.FindAllStringSubmatch(string(text), -1) {
		dir := dirOf(t, m[1])
		if m[1] == "agent" {
			dir = "agent"
		}
		if dir == "" {
			continue // for example a type of the Kubernetes API
		}
		found++
		last := m[2]
		if m[3] != "" {
			last = m[3]
		}
		if !declares(t, filepath.Join(root, dir), last) {
			t.Errorf("ARCHITECTURE.md names %s, which does not exist", m[0])
		}
	}
	if found < 20 {
		t.Errorf("ARCHITECTURE.md names only %d symbols: the pattern no longer finds them", found)
	}
}

// declares reports whether a Go file in the directory declares the symbol name.
func declares(t *testing.T, dir, name string) bool {
	t.Helper()
	return matches(t, dir, ".go", `(?m)^(func (\([^)]*\) )?|type |var |const |\t)`+name+`\b`)
}

// declaresTest reports whether a test file in the directory declares the test name.
func declaresTest(t *testing.T, dir, name string) bool {
	t.Helper()
	return matches(t, dir, "_test.go", `(?m)^func `+name+`\(`)
}

// matches reports whether the pattern matches the content of any file below dir whose name ends with end.
func matches(t *testing.T, dir, end, pattern string) bool {
	t.Helper()
	re := regexp.MustCompile(pattern)
	found := false
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, end) {
			return err
		}
		src, err := os.ReadFile(path)
		found = found || re.Match(src)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
