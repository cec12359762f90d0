package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// openers are functions that open or list whatever is at a path, follow links, wait for pipes, or read without a limit. A container could
// replace a file that the node reads by a link to another pod's log, a pipe, /dev/zero or an empty file of 4 TiB. hostfs.OpenUntrusted and
// similar functions are safe. Each use of an opener has to be in openAllowed, with its reason; package hostfs, which makes the system
// calls, is exempt.
var openers = map[string][]string{
	"os":                    {"ReadFile", "Open", "OpenFile", "Create", "WriteFile", "ReadDir", "OpenRoot", "OpenInRoot", "DirFS", "CopyFS", "Truncate"},
	"io":                    {"ReadAll"},
	"path/filepath":         {"Walk", "WalkDir", "Glob"},
	"net/http":              {"Dir", "FileServer", "FileServerFS", "ServeFile", "ServeFileFS"},
	"golang.org/x/sys/unix": {"Open", "Openat", "Openat2", "Creat"},
	"syscall":               {"Open", "Openat", "Creat"},
	"io/ioutil":             {"ReadFile", "ReadAll", "ReadDir", "WriteFile"},
}

// opening is one use of an opener in the code.
type opening struct {
	where string // file and function, for example internal/edge/volume/podfiles.go:messageFile; a method is TYPE.METHOD
	call  string // the function that is used, for example os.OpenFile
}

// openings returns the uses of openers in a file, both as calls and as function values. io.ReadAll of a reader with a limit does not count.
func openings(path string, file *ast.File) (found []opening) {
	names := map[string]string{} // name of each imported package in this file
	for _, imp := range file.Imports {
		at := strings.Trim(imp.Path.Value, `"`)
		if openers[at] == nil {
			continue
		}
		name := at[strings.LastIndexByte(at, '/')+1:]
		if imp.Name != nil {
			name = imp.Name.Name
		}
		names[name] = at
		if name == "." {
			found = append(found, opening{path + ":import", ". " + at})
		}
	}
	for _, d := range file.Decls {
		where := path + ":" + declName(d)
		bounded := map[ast.Node]bool{}
		ast.Inspect(d, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 1 && hasBound(call.Args[0]) {
				bounded[call.Fun] = true
			}
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if !ok || !slices.Contains(openers[names[pkg.Name]], sel.Sel.Name) || (sel.Sel.Name == "ReadAll" && bounded[sel]) {
				return true
			}
			if names[pkg.Name] == "golang.org/x/sys/unix" && strings.HasPrefix(path, "internal/base/hostfs/") {
				return true
			}
			found = append(found, opening{where, names[pkg.Name] + "." + sel.Sel.Name})
			return true
		})
	}
	return found
}

// hasBound reports whether an expression is a reader with a limit: io.LimitReader(...) or http.MaxBytesReader(...).
func hasBound(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && slices.Contains([]string{"io.LimitReader", "http.MaxBytesReader"}, exprName(call.Fun))
}

func declName(d ast.Decl) string {
	fn, ok := d.(*ast.FuncDecl)
	if !ok {
		return "var"
	}
	if fn.Recv == nil {
		return fn.Name.Name
	}
	t := fn.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	return exprName(t) + "." + fn.Name.Name
}

// check returns a problem for each use that is not allowed, and for each allowed use that does not exist.
func check(found []opening, allowed map[opening]string) (problems []string) {
	used := map[opening]bool{}
	for _, o := range found {
		used[o] = true
		if allowed[o] == "" {
			problems = append(problems, fmt.Sprintf("%s uses %s: if a container, a tenant or a volume can decide what is at the path, use hostfs.OpenUntrusted, ReadUntrusted, OpenUntrustedDir or UntrustedFS (a reader: put io.LimitReader around it); if none can, add it to openAllowed with the reason", o.where, o.call))
		}
	}
	for _, o := range slices.SortedFunc(maps.Keys(allowed), func(a, b opening) int { return strings.Compare(a.where+a.call, b.where+b.call) }) {
		if !used[o] {
			problems = append(problems, fmt.Sprintf("%s does not use %s: remove the exception", o.where, o.call))
		}
	}
	return problems
}

// product reports whether a package is a part of the agent or of its command. Simulations and tests may open any file.
func product(importPath string) bool {
	room, _ := roomOf(importPath)
	return (room != "" && room != "sim" && room != "proof") || importPath == module+"/agent" || strings.HasPrefix(importPath, module+"/cmd/")
}

func TestFilesOfContainersAreOpenedByTheHelper(t *testing.T) {
	t.Parallel()
	var found []opening
	files := 0
	for _, p := range packages(t) {
		if !product(p.ImportPath) {
			continue
		}
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files++
			found = append(found, openings(strings.TrimPrefix(p.ImportPath, module+"/")+"/"+f, file)...)
		}
	}
	if files < 200 {
		t.Errorf("only %d files were checked: the list of packages is wrong", files)
	}
	for _, problem := range check(found, openAllowed) {
		t.Error(problem)
	}
}

// The function openings finds each use of an opener, such as os.ReadFile: in calls, as a function value, and under another import name.
func TestAPlantedOpenIsFound(t *testing.T) {
	t.Parallel()
	const source = `package volume

import (
	"io"
	"net/http"
	stdos "os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

var later = stdos.ReadFile

func (v *Volumes) direct(path string) { stdos.Open(path) }

func closure(path string) {
	go func() { unix.Open(path, 0, 0) }()
	filepath.WalkDir(path, nil)
	apply(stdos.ReadDir)
}

func bodies(r *http.Request, w http.ResponseWriter) {
	io.ReadAll(r.Body)
	io.ReadAll(io.LimitReader(r.Body, 10))
	io.ReadAll(http.MaxBytesReader(w, r.Body, 10))
	stdos.Stat("x")
}
`
	file, err := parser.ParseFile(token.NewFileSet(), "planted.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	at := func(fn string) string { return "internal/edge/volume/planted.go:" + fn }
	want := []opening{
		{at("var"), "os.ReadFile"}, {at("Volumes.direct"), "os.Open"}, {at("closure"), "golang.org/x/sys/unix.Open"},
		{at("closure"), "path/filepath.WalkDir"}, {at("closure"), "os.ReadDir"}, {at("bodies"), "io.ReadAll"},
	}
	got := openings("internal/edge/volume/planted.go", file)
	if !slices.Equal(got, want) {
		t.Errorf("found\n%v, want\n%v", got, want)
	}
	if problems := check(got, nil); len(problems) != len(want) {
		t.Errorf("%d problems, want %d: %q", len(problems), len(want), problems)
	}
	allowed := map[opening]string{}
	for _, o := range want[1:] {
		allowed[o] = "a reason"
	}
	allowed[opening{at("gone"), "os.Open"}] = "a reason"
	allowed[want[1]] = ""
	problems := check(got, allowed)
	if len(problems) != 3 || !strings.Contains(problems[0], "planted.go:var uses os.ReadFile") ||
		!strings.Contains(problems[1], "Volumes.direct uses os.Open") || !strings.Contains(problems[2], "gone does not use os.Open") {
		t.Errorf("problems %q", problems)
	}
}
