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

// layers lists every package under internal/ with its layer. A new package must be put in one.
var layers = map[string]string{
	"pod": "A", "decide": "A", "podstatus": "A", "crispec": "A", "admit": "A", "pressure": "A", "nodestatus": "A",
	"timeline": "A", "mergepatch": "A", "pullaccess": "A", "due": "A", "strict": "A",

	"cri": "B", "pleg": "B", "source": "B", "podset": "B", "status": "B", "heartbeat": "B", "volume": "B", "image": "B",
	"probe": "B", "identity": "B", "server": "B", "stats": "B", "cgroup": "B", "config": "B",
	"objects": "B", "mirror": "B", "firewall": "B", "checkpoint": "B", "handtools": "B", "logrotate": "B", "userns": "B", "event": "B",
	"pullrecord": "B", "socket": "B", "manpage": "B",

	"launch": "T", "podctl": "T",

	"kubeclient": "W",
	"hostfs":     "H",
	"work":       "S",

	"perform": "C", "podworker": "C", "syncloop": "C", "nodefacts": "C", "referents": "C",

	"simcri": "D", "simkube": "D", "fleet": "D", "agenttest": "D", "archtest": "D", "fuzzfill": "D", "plant": "D",
}

// may says which layers a layer may import. Imports go down only, so that a reader can take the layers one at a
// time; the edges do not know each other, so that one can be replaced without the others. W is the wire below the edges: it
// does IO, so it is not pure, and it knows nothing of a node, so that every edge that opens a connection of its own to the API
// server may use it. H is the host below the edges, in the same way: whatever opens a file that a container controls uses it. S
// says which of the node's own work goes next; whoever has such work asks it. T is what the commands of cmd/wherry do: it may use the
// agent as any embedder does.
var may = map[string][]string{
	"A": {"A"},
	"W": {},
	"H": {},
	"S": {},
	"B": {"A", "W", "H", "S"},
	"C": {"A", "H", "S", "B", "C"},
	"T": {"A", "W", "H", "S", "B", "T"},
	"D": {"A", "W", "H", "S", "B", "C", "D"},
}

// pureForbidden is what a pure package must not import: it has no IO, no clock of its own, no concurrency.
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
	cmd.Dir = filepath.Join("..", "..")
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

// layerOf returns the layer of an internal package (a sub-package has its parent's), or "".
func layerOf(path string) (name, layer string) {
	rest, ok := strings.CutPrefix(path, module+"/internal/")
	if !ok {
		return "", ""
	}
	name, _, _ = strings.Cut(rest, "/")
	return name, layers[name]
}

func TestImportsGoDownOnly(t *testing.T) {
	for _, p := range packages(t) {
		name, layer := layerOf(p.ImportPath)
		if name == "" {
			continue
		}
		if layer == "" {
			t.Errorf("internal/%s is in no layer: add it to the table, with a thought", name)
			continue
		}
		for _, imp := range p.Imports {
			other, otherLayer := layerOf(imp)
			switch {
			case strings.HasPrefix(imp, "k8s.io/kubernetes"):
				t.Errorf("%s imports %s: none of it may be in the agent", p.ImportPath, imp)
			case strings.HasPrefix(imp, module+"/agent") || strings.HasPrefix(imp, module+"/cmd"):
				if layer != "D" && (layer != "T" || strings.HasPrefix(imp, module+"/cmd")) {
					t.Errorf("%s imports %s: the composition root imports the rest, never the other way", p.ImportPath, imp)
				}
			case other == "" || other == name:
			case !slices.Contains(may[layer], otherLayer):
				t.Errorf("internal/%s (%s) imports internal/%s (%s): layer %s may import %v", name, layer, other, otherLayer, layer, may[layer])
			}
			if layer == "A" && slices.ContainsFunc(pureForbidden, func(f string) bool { return imp == f || (strings.Contains(f, ".") && strings.HasPrefix(imp, f)) }) {
				t.Errorf("internal/%s is pure and imports %s", name, imp)
			}
		}
	}
}

// "No package-level variables but errors and compile-time guards, no init()": many agents live in one process.
// Tables that are never written to are constants in all but syntax; they are recognised by what they are made of.
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
		for i, n := range v.Names {
			if n.Name == "_" || (i < len(v.Values) && harmless(v.Values[i])) {
				continue
			}
			problems = append(problems, fmt.Sprintf("package variable %s is neither an error nor a fixed table", n.Name))
		}
	}
	return problems
}

// harmless: errors, literal tables, compiled patterns and codecs (also such as are made when first used), sets of strings.
func harmless(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CompositeLit, *ast.BasicLit:
		return true
	case *ast.SelectorExpr: // another package's error under a name of ours
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

// Every package says what it promises.
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

// ARCHITECTURE.md names symbols; each `package.Symbol` in it must exist, or it misleads.
func TestArchitectureNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "ARCHITECTURE.md"))
	if os.IsNotExist(err) {
		t.Fatal("ARCHITECTURE.md is missing")
	}
	if err != nil {
		t.Fatal(err)
	}
	symbol := regexp.MustCompile("`([a-z]+)\\.([A-Z][A-Za-z]+)(?:\\.([A-Z][A-Za-z]+))?`")
	found := 0
	for _, m := range symbol.FindAllStringSubmatch(string(text), -1) {
		dir := filepath.Join("..", m[1])
		if m[1] == "agent" {
			dir = filepath.Join("..", "..", "agent")
		}
		if _, err := os.Stat(dir); err != nil {
			continue // a type of the Kubernetes API, say
		}
		found++
		last := m[2]
		if m[3] != "" {
			last = m[3]
		}
		if !declares(t, dir, last) {
			t.Errorf("ARCHITECTURE.md names %s, which does not exist", m[0])
		}
	}
	if found < 20 {
		t.Errorf("ARCHITECTURE.md names only %d symbols: the pattern no longer finds them", found)
	}
}

func declares(t *testing.T, dir, name string) bool {
	t.Helper()
	re := regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type |var |const |\t)` + name + `\b`)
	found := false
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
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
