package main

import (
	"go/types"
	"strings"

	"golang.org/x/tools/go/packages"
)

// declarations records what has to be used: the fields of the package's structs and, in an internal package, its exported names.
func (s *search) declarations(p *packages.Package) {
	internal := strings.Contains(p.PkgPath+"/", "/internal/")
	for _, o := range p.TypesInfo.Defs {
		if o == nil || o.Name() == "_" {
			continue
		}
		v, isVar := o.(*types.Var)
		switch {
		case isVar && v.IsField():
		case internal && o.Exported() && o.Parent() == p.Types.Scope():
			s.declared[placeOf(p.Fset, o)] = "only tests use " + o.Name()
		case internal && o.Exported() && isMethod(o):
			at := placeOf(p.Fset, o)
			s.declared[at], s.methods[at] = "only tests use method "+o.Name(), true
		}
	}
	for _, tv := range p.TypesInfo.Types {
		st, ok := tv.Type.(*types.Struct)
		if !ok || !tv.IsType() { // skip everything except struct types themselves: values and named types
			continue
		}
		for i := range st.NumFields() {
			f := st.Field(i)
			if f.Embedded() || f.Name() == "_" || st.Tag(i) != "" || f.Exported() && !internal {
				continue
			}
			s.declared[placeOf(p.Fset, f)] = "nobody reads field " + f.Name()
		}
	}
}

func isMethod(o types.Object) bool {
	f, ok := o.(*types.Func)
	return ok && f.Signature().Recv() != nil && !types.IsInterface(f.Signature().Recv().Type())
}
