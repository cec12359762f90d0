package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var whyName = regexp.MustCompile(`^(Why|Why[A-Z].*)$`)

// isWhy reports whether an expression has the name of a Why, a reason as text for people: x.Why, decide.WhyLiveness or WhyLiveness.
func isWhy(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.SelectorExpr:
		return whyName.MatchString(x.Sel.Name)
	case *ast.Ident:
		return whyName.MatchString(x.Name)
	case *ast.ParenExpr:
		return isWhy(x.X)
	}
	return false
}

// decidesByWhy returns the positions at which a file compares a Why or switches on one.
func decidesByWhy(fset *token.FileSet, f *ast.File) []string {
	var found []string
	ast.Inspect(f, func(n ast.Node) bool {
		decides := false
		switch x := n.(type) {
		case *ast.BinaryExpr:
			decides = (x.Op == token.EQL || x.Op == token.NEQ) && (isWhy(x.X) || isWhy(x.Y))
		case *ast.SwitchStmt:
			decides = x.Tag != nil && isWhy(x.Tag)
		case *ast.CaseClause:
			for _, e := range x.List {
				decides = decides || isWhy(e)
			}
		case *ast.IndexExpr:
			decides = isWhy(x.Index)
		}
		if decides {
			found = append(found, fset.Position(n.Pos()).String())
		}
		return true
	})
	return found
}

// No code decides by a Why, because a Why is text for people: a new wording must not change what the agent does. Code decides by
// a pod.Cause or another typed value.
func TestNothingDecidesByWhy(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	planted := `package p
func f(a struct{ Why string }) bool {
	switch a.Why { case WhyLiveness: }
	return a.Why == "x" || m[a.Why]
}`
	f, err := parser.ParseFile(fset, "planted.go", planted, parser.SkipObjectResolution)
	if err != nil || len(decidesByWhy(fset, f)) != 4 {
		t.Fatalf("of four planted decisions these are found: %v, %v", decidesByWhy(fset, f), err)
	}
	files := 0
	err = filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2) {
				return filepath.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !strings.Contains(string(src), "Why") {
			return nil
		}
		files++
		f, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, at := range decidesByWhy(fset, f) {
			t.Errorf("%s: decides by a Why", at)
		}
		return nil
	})
	if err != nil || files < 10 {
		t.Fatalf("%d files that have a Why were read: %v", files, err)
	}
}
