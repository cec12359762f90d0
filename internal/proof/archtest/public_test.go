package archtest

import (
	"encoding/json"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// publicPackages are the packages that other modules may import.
var publicPackages = []string{module + "/agent", module + "/agent/simulated", module + "/agent/fleet", module + "/agent/fleet/fleettest"}

// No exported name of a public package has a type from internal/. Another module could not name such a type, so it could neither make a
// value of it nor implement an interface with it.
func TestPublicAPINamesNoInternalType(t *testing.T) {
	t.Parallel()
	load := compiledPackages(t, publicPackages...)
	for _, path := range publicPackages {
		pkg, err := load.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		found, looked := leaks(pkg, func(path string) bool { return strings.HasPrefix(path, module+"/internal/") })
		if looked < 3 {
			t.Errorf("%s: only %d exported names found: the test no longer sees them", path, looked)
		}
		for _, leak := range found {
			t.Errorf("%s: %s", path, leak)
		}
	}
}

// The function leaks finds each exported name of package leaky that makes a type of internal/ visible, and no other name.
func TestLeaksAreFound(t *testing.T) {
	t.Parallel()
	pkg, err := compiledPackages(t, module+"/internal/proof/archtest/testdata/leaky").Import(module + "/internal/proof/archtest/testdata/leaky")
	if err != nil {
		t.Fatal(err)
	}
	found, _ := leaks(pkg, func(path string) bool { return strings.HasPrefix(path, module+"/internal/core/pod") })
	var names []string
	for _, leak := range found {
		name, _, _ := strings.Cut(leak, " ")
		names = append(names, name)
	}
	want := []string{
		"Alias", "Constant", "Embeds.Ref", "Func", "Generic", "Interface.Method", "Promoted.Returns", "Struct.Callback", "Struct.Deep", "Struct.Method", "Variable",
	}
	if !slices.Equal(names, want) {
		t.Errorf("found %v, want %v", names, want)
	}
}

// compiledPackages returns an importer for packages, which reads the compiler's export data.
func compiledPackages(t *testing.T, paths ...string) types.Importer {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Export"}, paths...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}

// leaks returns the exported names of pkg whose types contain a type of a hidden package: sorted, each with that type. looked is how many
// exported names were checked.
func leaks(pkg *types.Package, hidden func(path string) bool) (found []string, looked int) {
	l := &leakSearch{pkg: pkg, hidden: hidden}
	for _, name := range pkg.Scope().Names() {
		obj := pkg.Scope().Lookup(name)
		if !obj.Exported() {
			continue
		}
		looked++
		decl, isType := obj.(*types.TypeName)
		if !isType {
			l.check(name, obj.Type())
			continue
		}
		if named, ok := decl.Type().(*types.Named); ok {
			l.named(name, named)
			continue
		}
		l.check(name, decl.Type())
	}
	slices.Sort(l.found)
	return slices.Compact(l.found), looked
}

type leakSearch struct {
	pkg    *types.Package
	hidden func(path string) bool
	found  []string
}

// named checks what is visible of a named type: its type parameters, its exported fields, and its methods, also promoted ones.
func (l *leakSearch) named(name string, n *types.Named) {
	for p := range n.TypeParams().TypeParams() {
		l.check(name, p.Constraint())
	}
	switch u := n.Underlying().(type) {
	case *types.Struct:
		for f := range u.Fields() {
			if f.Exported() {
				l.check(name+"."+f.Name(), f.Type())
			}
		}
	case *types.Interface: // the methods of an interface are checked together with its type
	default:
		l.check(name, u)
	}
	methods := types.NewMethodSet(n)
	if !types.IsInterface(n) {
		methods = types.NewMethodSet(types.NewPointer(n))
	}
	for m := range methods.Methods() {
		if m.Obj().Exported() {
			l.check(name+"."+m.Obj().Name(), m.Type())
		}
	}
}

// check looks for hidden types in t. It does not enter types of other packages. Named types of this package are checked where they are
// declared.
func (l *leakSearch) check(where string, t types.Type) {
	switch t := t.(type) {
	case *types.Alias:
		if l.isHidden(where, t.Obj()) {
			return
		}
		if t.Obj().Pkg() == l.pkg || t.Obj().Pkg() == nil {
			l.check(where, t.Rhs())
		}
	case *types.Named:
		l.isHidden(where, t.Obj())
		for a := range t.TypeArgs().Types() {
			l.check(where, a)
		}
	case *types.Pointer:
		l.check(where, t.Elem())
	case *types.Slice:
		l.check(where, t.Elem())
	case *types.Array:
		l.check(where, t.Elem())
	case *types.Chan:
		l.check(where, t.Elem())
	case *types.Map:
		l.check(where, t.Key())
		l.check(where, t.Elem())
	case *types.Signature:
		for v := range t.Params().Variables() {
			l.check(where, v.Type())
		}
		for v := range t.Results().Variables() {
			l.check(where, v.Type())
		}
		for p := range t.TypeParams().TypeParams() {
			l.check(where, p.Constraint())
		}
	case *types.Struct:
		for f := range t.Fields() {
			l.check(where, f.Type())
		}
	case *types.Interface:
		for m := range t.Methods() {
			l.check(where, m.Type())
		}
		for e := range t.EmbeddedTypes() {
			l.check(where, e)
		}
	case *types.Union:
		for term := range t.Terms() {
			l.check(where, term.Type())
		}
	}
}

func (l *leakSearch) isHidden(where string, obj *types.TypeName) bool {
	hidden := obj.Pkg() != nil && l.hidden(obj.Pkg().Path())
	if hidden {
		l.found = append(l.found, fmt.Sprintf("%s names %s.%s", where, obj.Pkg().Path(), obj.Name()))
	}
	return hidden
}
