package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

// A function that takes a lock does not return a pointer to data that the lock guards, because the caller would read the data without the
// lock.
func TestNoPointerToSharedStateIsHandedOut(t *testing.T) {
	t.Parallel()
	functions := 0
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Body == nil || !locks(fn.Body) {
					continue
				}
				functions++
				for _, at := range pointersInto(fn.Body) {
					t.Errorf("%s: %s takes a lock and returns a pointer to a field: return a copy", fset.Position(at), fn.Name.Name)
				}
			}
		}
	}
	if functions < 100 {
		t.Errorf("only %d functions that take a lock were found", functions)
	}
}

// pointersInto finds the pointer in two functions that return one to data that a lock guards, and nothing in two that return other values.
func TestPointerToSharedStateIsSeen(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]int{
		`func (l *L) F() *R { l.mu.Lock(); defer l.mu.Unlock(); r := l.rs[1]; return &r.result }`: 1,
		`func (l *L) F() *R { l.mu.RLock(); defer l.mu.RUnlock(); return &l.rs[1] }`:              1,
		`func (l *L) F() *R { l.mu.Lock(); l.mu.Unlock(); return &R{OK: true} }`:                  0,
		`func (l *L) F() R { l.mu.Lock(); defer l.mu.Unlock(); return l.rs[1].result }`:           0,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+src, 0)
		if err != nil {
			t.Fatal(err)
		}
		body := f.Decls[0].(*ast.FuncDecl).Body
		if got := len(pointersInto(body)); got != want || !locks(body) {
			t.Errorf("%s: %d pointers, want %d", src, got, want)
		}
	}
}

func locks(body *ast.BlockStmt) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if s, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Lock", "RLock"}, s.Sel.Name) && len(call.Args) == 0 {
				found = true
			}
		}
		return true
	})
	return found
}

// pointersInto returns the positions at which a function body returns the address of a field or an element.
func pointersInto(body *ast.BlockStmt) (at []token.Pos) {
	ast.Inspect(body, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false
		}
		ret, ok := n.(*ast.ReturnStmt)
		if !ok {
			return true
		}
		for _, r := range ret.Results {
			if u, ok := r.(*ast.UnaryExpr); ok && u.Op == token.AND {
				switch u.X.(type) {
				case *ast.SelectorExpr, *ast.IndexExpr:
					at = append(at, u.Pos())
				}
			}
		}
		return true
	})
	return at
}
