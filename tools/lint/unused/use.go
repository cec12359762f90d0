package main

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/packages"
)

// use records the declarations that a package uses.
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
	for _, sel := range p.TypesInfo.Selections { // a call of a promoted method uses the method of the embedded type
		if f, ok := sel.Obj().(*types.Func); ok {
			s.used[placeOf(p.Fset, origin(f))] = true
		}
	}
}

// interfaces records the names of the methods of all interfaces in a package and in the packages that it imports.
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

// origin returns the generic declaration of o if o is a field or function of an instantiated generic type; otherwise it returns o.
func origin(o types.Object) types.Object {
	switch o := o.(type) {
	case *types.Var:
		return o.Origin()
	case *types.Func:
		return o.Origin()
	}
	return o
}

// user records the uses in one package.
type user struct {
	*search
	p       *packages.Package
	written map[*ast.Ident]bool // identifiers that are only assigned to
	whole   map[types.Type]bool // types whose fields are all recorded as read
}

// own reports whether an identifier is inside the function that it names. Such a recursive call does not count as a use of the function.
func (u *user) own(id *ast.Ident, o types.Object) bool {
	f, ok := o.(*types.Func)
	return ok && f.Pkg() == u.p.Types && f.Scope() != nil && f.Scope().Contains(id.Pos())
}

// writes records the identifiers of fields that a statement only sets: x.f = y, x.f++, x.f += y, S{f: y}. Taking the address (&x.f) is not
// among them and counts as a read.
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

// wholes records the types whose values are used as a whole, and the methods of interface types.
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
	case *ast.CompositeLit: // an element of a list or map may be converted to an interface type
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
	if tv := info.Types[n.Fun]; tv.IsType() { // the call is a conversion
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
	for _, t := range instance(info, n.Fun) { // a generic function may compare or encode a value of its type argument
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

// instance returns the type arguments of a call of a generic function; none for other functions.
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

// into records that the value e is assigned to a variable of the type to. If to is an empty interface, all fields of e count as read.
func (u *user) into(e ast.Expr, to types.Type) {
	if to == nil {
		return
	}
	if i, ok := to.Underlying().(*types.Interface); ok && i.NumMethods() == 0 && !types.Identical(to, types.Universe.Lookup("comparable").Type()) {
		u.all(u.p.TypesInfo.TypeOf(e), true)
	}
}

// The method all records every field of the type t as read, also the fields of structs within t. If through is true, it also follows
// pointers, slices and maps.
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
