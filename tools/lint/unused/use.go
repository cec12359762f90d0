package main

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/packages"
)

// use records what a package uses.
func (s *search) use(p *packages.Package) {
	s.interfaces(p.Types)
	u := &user{search: s, p: p, written: map[*ast.Ident]bool{}, whole: map[types.Type]bool{}}
	for _, file := range p.Syntax {
		ast.Inspect(file, u.writes)
		ast.Inspect(file, u.wholes)
	}
	for id, o := range p.TypesInfo.Uses {
		if !u.written[id] && !u.own(id, o) {
			s.used[placeOf(p.Fset, origin(o))] = true
		}
	}
	for _, sel := range p.TypesInfo.Selections { // a promoted method belongs to the embedded type
		if f, ok := sel.Obj().(*types.Func); ok {
			s.used[placeOf(p.Fset, origin(f))] = true
		}
	}
}

// interfaces records the names of the methods that the interfaces of a package and its dependencies require.
func (s *search) interfaces(p *types.Package) {
	if s.checked[p] {
		return
	}
	s.checked[p] = true
	for _, name := range p.Scope().Names() {
		if i, ok := p.Scope().Lookup(name).Type().Underlying().(*types.Interface); ok {
			s.asks(i)
		}
	}
	for _, below := range p.Imports() {
		s.interfaces(below)
	}
}

func (s *search) asks(i *types.Interface) {
	for m := range i.Methods() {
		s.asked[m.Name()] = true
	}
}

// origin returns the generic declaration of an instance.
func origin(o types.Object) types.Object {
	switch o := o.(type) {
	case *types.Var:
		return o.Origin()
	case *types.Func:
		return o.Origin()
	}
	return o
}

// user examines one package.
type user struct {
	*search
	p       *packages.Package
	written map[*ast.Ident]bool // names that are assigned to
	whole   map[types.Type]bool // types whose fields all count as read
}

// own reports whether an identifier is the name of the function that contains it, which does not count as a use.
func (u *user) own(id *ast.Ident, o types.Object) bool {
	f, ok := o.(*types.Func)
	return ok && f.Pkg() == u.p.Types && f.Scope() != nil && f.Scope().Contains(id.Pos())
}

// writes records the fields that an assignment sets: x.f = y, S{f: y}. x.f++ and x.f += y count as writes only. Taking
// the address (&x.f) counts as a read.
func (u *user) writes(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.AssignStmt:
		for _, l := range n.Lhs {
			u.write(l)
		}
	case *ast.IncDecStmt:
		u.write(n.X)
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			u.write(n.Key)
			u.write(n.Value)
		}
	case *ast.KeyValueExpr:
		if id, ok := n.Key.(*ast.Ident); ok {
			if v, ok := u.p.TypesInfo.Uses[id].(*types.Var); ok && v.IsField() {
				u.written[id] = true
			}
		}
	}
	return true
}

func (u *user) write(e ast.Expr) {
	if sel, ok := e.(*ast.SelectorExpr); ok {
		u.written[sel.Sel] = true
	}
}

// wholes records the types whose values are used as a whole, and the methods that interfaces in this package require.
func (u *user) wholes(n ast.Node) bool {
	info := u.p.TypesInfo
	switch n := n.(type) {
	case *ast.InterfaceType:
		if i, ok := info.TypeOf(n).(*types.Interface); ok {
			u.asks(i)
		}
	case *ast.BinaryExpr:
		if n.Op == token.EQL || n.Op == token.NEQ {
			u.all(info.TypeOf(n.X), false)
		}
	case *ast.MapType:
		u.all(info.TypeOf(n.Key), false)
	case *ast.CallExpr:
		u.call(n)
	case *ast.CompositeLit: // positional values set the fields in the order of the declaration
		for _, e := range n.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				e = kv.Value
			}
			u.into(e, elemOf(info.TypeOf(n)))
		}
	}
	return true
}

func elemOf(t types.Type) types.Type {
	if t == nil {
		return nil
	}
	switch t := t.Underlying().(type) {
	case *types.Slice:
		return t.Elem()
	case *types.Array:
		return t.Elem()
	case *types.Map:
		return t.Elem()
	}
	return nil
}

func (u *user) call(n *ast.CallExpr) {
	info := u.p.TypesInfo
	if tv := info.Types[n.Fun]; tv.IsType() { // a conversion
		for _, a := range n.Args {
			if _, ok := info.TypeOf(a).Underlying().(*types.Struct); ok {
				u.all(info.TypeOf(a), false)
				u.all(tv.Type, false)
			}
			u.into(a, tv.Type)
		}
		return
	}
	sig, ok := info.TypeOf(n.Fun).(*types.Signature)
	if !ok {
		return
	}
	for _, t := range instance(info, n.Fun) { // a type argument may be compared or encoded
		u.all(t, false)
	}
	for i, a := range n.Args {
		var to types.Type
		switch last := sig.Params().Len() - 1; {
		case sig.Variadic() && i >= last:
			to = elemOf(sig.Params().At(last).Type())
		case i <= last:
			to = sig.Params().At(i).Type()
		}
		u.into(a, to)
	}
}

// instance returns the type arguments of a generic function of another module, whose code is not examined here.
func instance(info *types.Info, fun ast.Expr) (out []types.Type) {
	var id *ast.Ident
	switch f := ast.Unparen(fun).(type) {
	case *ast.Ident:
		id = f
	case *ast.SelectorExpr:
		id = f.Sel
	}
	if id == nil {
		return nil
	}
	for t := range info.Instances[id].TypeArgs.Types() {
		out = append(out, t)
	}
	return out
}

// into records that a value is assigned to a type that accepts any value, so its fields may be read there.
func (u *user) into(e ast.Expr, to types.Type) {
	if to == nil {
		return
	}
	if i, ok := to.Underlying().(*types.Interface); ok && i.NumMethods() == 0 && !types.Identical(to, types.Universe.Lookup("comparable").Type()) {
		u.all(u.p.TypesInfo.TypeOf(e), true)
	}
}

// all records that all fields of a type, and of the types that they contain, are read. through: follow pointers too.
func (u *user) all(t types.Type, through bool) {
	if t == nil || u.whole[t] {
		return
	}
	u.whole[t] = true
	switch t := t.Underlying().(type) {
	case *types.Pointer:
		if through {
			u.all(t.Elem(), true)
		}
	case *types.Slice:
		if through {
			u.all(t.Elem(), true)
		}
	case *types.Array:
		u.all(t.Elem(), through)
	case *types.Map:
		if through {
			u.all(t.Key(), true)
			u.all(t.Elem(), true)
		}
	case *types.Struct:
		for f := range t.Fields() {
			u.used[placeOf(u.p.Fset, f.Origin())] = true
			u.all(f.Type(), through)
		}
	}
}
