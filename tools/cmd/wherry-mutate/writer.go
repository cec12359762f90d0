package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
)

// writer adds all mutants of one file to the text of the file.
type writer struct {
	*pkg
	src     []byte
	base    int
	file    string
	fn      string
	results *types.Tuple
	last    ast.Stmt // last statement of the function; if it is a return statement, it cannot be left out
	seen    map[string]int
	imports map[string]string
	inserts []insert
}

// insert is a change of a file: text replaces the code between the offsets at and end. Inserts at the same offset are applied in ascending
// order: first the texts that close a node, those of the innermost node first, and then the texts that open a node, those of the outermost
// node first.
type insert struct {
	at, end int
	order   int
	text    string
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// mutant adds a mutant that changes the node at; what describes the change. It gives the mutant a unique name and returns its number.
func (w *writer) mutant(what string, at ast.Node) int {
	text := strings.Join(strings.Fields(w.text(at)), " ")
	if len(text) > 60 {
		text = text[:57] + "..."
	}
	name := fmt.Sprintf("%s %s %s `%s`", w.file, w.fn, what, strings.ReplaceAll(text, ": ", ":"))
	if w.seen[name]++; w.seen[name] > 1 {
		name += fmt.Sprintf(" #%d", w.seen[name])
	}
	w.mutants = append(w.mutants, name)
	return len(w.mutants)
}

func (w *writer) offset(p token.Pos) int { return int(p) - w.base }
func (w *writer) text(n ast.Node) string { return string(w.src[w.offset(n.Pos()):w.offset(n.End())]) }

// wrap inserts the texts before and after around a node.
func (w *writer) wrap(n ast.Node, before, after string) {
	at, end := w.offset(n.Pos()), w.offset(n.End())
	seq := len(w.inserts) // if two pairs of texts are put around the same node, the later pair is inside the earlier one
	w.inserts = append(w.inserts, insert{at, at, (1<<20-(end-at))<<20 + seq, before}, insert{end, end, -((1<<20 - (end - at)) << 20) - seq, after})
}

// replace replaces the text between two positions.
func (w *writer) replace(from, to token.Pos, text string) {
	w.inserts = append(w.inserts, insert{w.offset(from), w.offset(to), 1 << 40, text})
}

func (w *writer) function(fn *ast.FuncDecl) {
	w.fn = fn.Name.Name
	if obj, ok := w.types.Scope().Lookup(fn.Name.Name).(*types.Func); ok && fn.Recv == nil {
		w.results = obj.Signature().Results()
	} else {
		w.results = w.methodResults(fn)
	}
	if n := len(fn.Body.List); n > 0 {
		w.last = fn.Body.List[n-1]
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false // a function literal gets no mutants, because it is usually small
		case *ast.GenDecl:
			return n.Tok != token.CONST
		case *ast.IfStmt:
			w.condition(n.Cond, true)
		case *ast.ForStmt:
			if n.Cond != nil {
				w.condition(n.Cond, false) // no mutant makes the condition of a loop always true: the loop would never end, and only a timeout would notice that
			}
		case *ast.SwitchStmt:
			if n.Tag == nil {
				w.cases(n)
			}
		case *ast.BinaryExpr:
			w.binary(n)
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				w.wrap(n, fmt.Sprintf("(mut(%d) != (", w.mutant("without !", n)), "))")
			}
		case *ast.BasicLit:
			w.number(n)
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && len(n.Args) == 2 && (id.Name == "min" || id.Name == "max") {
				w.bound(n, id)
			}
		case *ast.CompositeLit:
			w.fields(n)
		case *ast.ReturnStmt:
			w.returned(n)
		case *ast.BlockStmt:
			w.statements(n.List)
		case *ast.CaseClause:
			w.statements(n.Body)
		}
		return true
	})
}

func (w *writer) methodResults(fn *ast.FuncDecl) *types.Tuple {
	recv := fn.Recv.List[0].Type
	if star, ok := recv.(*ast.StarExpr); ok {
		recv = star.X
	}
	named, ok := w.types.Scope().Lookup(recv.(*ast.Ident).Name).Type().(*types.Named)
	if !ok {
		return types.NewTuple()
	}
	for m := range named.Methods() {
		if m.Name() == fn.Name.Name {
			return m.Signature().Results()
		}
	}
	return types.NewTuple()
}

func (w *writer) condition(e ast.Expr, both bool) {
	if both {
		w.wrap(e, fmt.Sprintf("(mut(%d) || !mut(%d) && (", w.mutant("always", e), w.mutant("never", e)), "))")
		return
	}
	w.wrap(e, fmt.Sprintf("(!mut(%d) && (", w.mutant("never", e)), "))")
}

func (w *writer) cases(s *ast.SwitchStmt) {
	for _, c := range s.Body.List {
		for _, e := range c.(*ast.CaseClause).List {
			w.condition(e, true)
		}
	}
}

func (w *writer) binary(n *ast.BinaryExpr) {
	x, y := w.text(n.X), w.text(n.Y)
	switch n.Op {
	case token.LAND:
		w.wrap(n.X, fmt.Sprintf("(mut(%d) || (", w.mutant("left side out", n)), "))")
		w.wrap(n.Y, fmt.Sprintf("(mut(%d) || (", w.mutant("right side out", n)), "))")
	case token.LOR:
		w.wrap(n.X, fmt.Sprintf("(!mut(%d) && (", w.mutant("left side out", n)), "))")
		w.wrap(n.Y, fmt.Sprintf("(!mut(%d) && (", w.mutant("right side out", n)), "))")
	case token.LSS, token.GTR:
		w.wrap(n, fmt.Sprintf("(mut(%d) && (%s == %s) || ", w.mutant("boundary", n), x, y), ")")
	case token.LEQ, token.GEQ:
		w.wrap(n, fmt.Sprintf("(!(mut(%d) && (%s == %s)) && ", w.mutant("boundary", n), x, y), ")")
	case token.EQL, token.NEQ:
		w.wrap(n, fmt.Sprintf("(mut(%d) != (", w.mutant("negated", n)), "))")
	case token.ADD, token.SUB, token.MUL:
		if !w.numeric(n) {
			return
		}
		other := map[token.Token]string{token.ADD: "-", token.SUB: "+", token.MUL: "+"}[n.Op]
		w.wrap(n, fmt.Sprintf("mutPick[%s](%d, ", w.typeOf(n), w.mutant(other, n)), fmt.Sprintf(", %s %s %s)", x, other, y))
	default:
	}
}

// numeric reports whether an expression is a number that is not a constant.
func (w *writer) numeric(e ast.Expr) bool {
	tv := w.info.Types[e]
	b, ok := tv.Type.Underlying().(*types.Basic)
	return ok && tv.Value == nil && w.writable(tv.Type) && b.Info()&types.IsNumeric != 0 && b.Info()&types.IsUntyped == 0
}

func (w *writer) typeOf(e ast.Expr) string { return w.typeName(w.info.Types[e].Type) }

func (w *writer) typeName(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string {
		if p == w.types {
			return ""
		}
		return w.imports[p.Path()]
	})
}

// writable reports whether the code in this file can write the name of a type: the file imports every package that the name mentions.
func (w *writer) writable(t types.Type) bool {
	ok := true
	types.TypeString(t, func(p *types.Package) string {
		if p != w.types && w.imports[p.Path()] == "" {
			ok = false
		}
		return ""
	})
	return ok
}

func (w *writer) number(n *ast.BasicLit) {
	tv := w.info.Types[n]
	b, ok := tv.Type.Underlying().(*types.Basic)
	if n.Kind != token.INT || !ok || !w.writable(tv.Type) {
		return
	}
	t := w.typeName(tv.Type)
	if b.Info()&types.IsUntyped != 0 {
		t = "int"
	}
	more := "1"
	if t == "time.Duration" {
		more = "1000000000" // one second, because tests do not notice one nanosecond
	}
	w.wrap(n, fmt.Sprintf("mutPick[%s](%d, ", t, w.mutant("one more", n)), fmt.Sprintf(", %s+%s)", n.Value, more))
}

func (w *writer) bound(n *ast.CallExpr, id *ast.Ident) {
	other, fn := "max", "mutMin"
	if id.Name == "max" {
		other, fn = "min", "mutMax"
	}
	if t := w.info.Types[n].Type; !w.writable(t) {
		return
	}
	num := w.mutant(other, n)
	w.replace(id.Pos(), n.Lparen+1, fmt.Sprintf("%s[%s](%d, ", fn, w.typeOf(n), num))
}

// fields adds, for each value in a struct literal, a mutant with the zero value in its place.
func (w *writer) fields(n *ast.CompositeLit) {
	s, ok := w.info.Types[n].Type.Underlying().(*types.Struct)
	if !ok {
		return
	}
	for _, e := range n.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		for f := range s.Fields() {
			if f.Name() == kv.Key.(*ast.Ident).Name && w.writable(f.Type()) {
				w.wrap(kv.Value, fmt.Sprintf("mutZero[%s](%d, ", w.typeName(f.Type()), w.mutant("zero for "+f.Name(), kv)), ")")
			}
		}
	}
}

// tables adds mutants of the entries of a package variable, such as a table of rules.
func (w *writer) tables(d *ast.GenDecl) {
	if d.Tok != token.VAR {
		return
	}
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		w.fn = v.Names[0].Name
		for _, value := range v.Values {
			ast.Inspect(value, func(n ast.Node) bool {
				if row, ok := n.(*ast.CompositeLit); ok {
					w.row(row)
				}
				_, fn := n.(*ast.FuncLit)
				return !fn
			})
		}
	}
}

// row adds a mutant for each constant in a struct literal. A constant of an enumeration becomes each other constant of its type; any other
// constant becomes zero.
func (w *writer) row(n *ast.CompositeLit) {
	s, ok := w.info.Types[n].Type.Underlying().(*types.Struct)
	if !ok {
		return
	}
	for i, e := range n.Elts {
		f := s.Field(i)
		if kv, keyed := e.(*ast.KeyValueExpr); keyed {
			for f = range s.Fields() {
				if f.Name() == kv.Key.(*ast.Ident).Name {
					break
				}
			}
			e = kv.Value
		}
		v := w.info.Types[e].Value
		if v == nil || !w.writable(f.Type()) {
			continue
		}
		if others := w.others(f.Type(), v); len(others) > 0 {
			for _, other := range others {
				w.wrap(e, fmt.Sprintf("mutPick[%s](%d, ", w.typeName(f.Type()), w.mutant(f.Name()+" "+other+" in", n)), ", "+other+")")
			}
		} else if !w.isZero(e) {
			w.wrap(e, fmt.Sprintf("mutZero[%s](%d, ", w.typeName(f.Type()), w.mutant("zero for "+f.Name()+" in", n)), ")")
		}
	}
}

// others returns the names of the constants of the type t, an enumeration of this package, whose value is not v.
func (w *writer) others(t types.Type, v constant.Value) []string {
	if named, ok := t.(*types.Named); !ok || named.Obj().Pkg() != w.types {
		return nil
	}
	var out []string
	for _, name := range w.types.Scope().Names() {
		c, ok := w.types.Scope().Lookup(name).(*types.Const)
		if ok && types.Identical(c.Type(), t) && c.Val().Kind() == constant.Int && constant.Compare(c.Val(), token.NEQ, v) {
			out = append(out, name)
		}
	}
	return out
}

// returned adds, for each value of a return statement, a mutant that returns the zero value; a bool is negated instead.
func (w *writer) returned(n *ast.ReturnStmt) {
	if len(n.Results) != w.results.Len() {
		return
	}
	for i, e := range n.Results {
		t := w.results.At(i).Type()
		if w.isZero(e) || !w.writable(t) {
			continue
		}
		if b, ok := t.Underlying().(*types.Basic); ok && b.Kind() == types.Bool {
			w.wrap(e, fmt.Sprintf("(mut(%d) != (", w.mutant("return not", e)), "))")
			continue
		}
		w.wrap(e, fmt.Sprintf("mutZero[%s](%d, ", w.typeName(t), w.mutant("return zero for", e)), ")")
	}
}

// isZero reports whether an expression is obviously a zero value: nil, "", 0, a constant that is zero, or T{}.
func (w *writer) isZero(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		if e.Name == "nil" {
			return true
		}
	case *ast.CompositeLit:
		return len(e.Elts) == 0
	}
	v := w.info.Types[e].Value
	switch {
	case v == nil:
		return false
	case v.Kind() == constant.String:
		return constant.StringVal(v) == ""
	case v.Kind() == constant.Int || v.Kind() == constant.Float:
		return constant.Sign(v) == 0
	}
	return false // a mutant negates true and false instead
}

// statements adds, for each statement that can be left out, a mutant without it.
func (w *writer) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.ExprStmt, *ast.IncDecStmt:
		case *ast.BranchStmt:
			if s.Tok == token.GOTO || s.Tok == token.FALLTHROUGH {
				continue
			}
		default:
			continue
		}
		w.wrap(s, fmt.Sprintf("if !mut(%d) { ", w.mutant("left out", s)), " }")
	}
}

// apply returns the text of the file with all mutants.
func (w *writer) apply() []byte {
	slices.SortStableFunc(w.inserts, func(a, b insert) int {
		if a.at != b.at {
			return a.at - b.at
		}
		return a.order - b.order
	})
	var out []byte
	at := 0
	for _, in := range w.inserts {
		out = append(out, w.src[at:max(at, in.at)]...)
		out = append(out, in.text...)
		at = max(at, in.end)
	}
	return append(out, w.src[at:]...)
}
