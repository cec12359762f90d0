// Command unused lists declarations that no program of this repository uses and that two other tools do not find: staticcheck
// sees one package at a time, and deadcode sees functions only. It lists fields that are written and never read, and exported
// constants, variables, types, functions and methods that only tests use.
//
//	unused [-support PACKAGES] [-known FILE] [DIR...]
//
// It loads the module in each DIR, without tests, and checks the first one. The file lists exceptions with their reasons, one
// on each line: "PATH: finding: reason". A field counts as read if its struct is used as a whole: compared, converted to
// another type, or passed to a function that accepts any value (encoders, printers, comparers). Fields with a tag and embedded
// fields are not checked, and neither are methods that an interface requires by name.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	support := flag.String("support", "", "import paths, separated by commas, of which tests are the users; with /... all below")
	known := flag.String("known", "", "file of what may stay")
	flag.Parse()
	dirs := flag.Args()
	if len(dirs) == 0 {
		dirs = []string{"."}
	}
	found, err := run(dirs, strings.Split(*support, ","))
	if err == nil && *known != "" {
		found, err = without(found, *known)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "unused:", err)
		os.Exit(2)
	}
	for _, f := range found {
		fmt.Println(f)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}

// run returns the unused declarations in the module of the first directory.
func run(dirs, support []string) ([]finding, error) {
	s := newSearch()
	for i, dir := range dirs {
		pkgs, err := load(dir)
		if err != nil {
			return nil, err
		}
		for _, p := range pkgs {
			s.use(p)
			if i == 0 && !supports(support, p.PkgPath) {
				s.declarations(p)
			}
		}
	}
	return s.report(dirs[0]), nil
}

func load(dir string) ([]*packages.Package, error) {
	cfg := &packages.Config{Dir: dir, Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes |
		packages.NeedTypesInfo | packages.NeedImports | packages.NeedTypesSizes | packages.NeedModule}
	pkgs, err := packages.Load(cfg, "./...")
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", dir, err)
	}
	for _, p := range pkgs {
		for _, e := range p.Errors {
			return nil, fmt.Errorf("load %s: %w", p.PkgPath, e)
		}
	}
	return pkgs, nil
}

func supports(support []string, path string) bool {
	return slices.ContainsFunc(support, func(s string) bool {
		below, all := strings.CutSuffix(s, "/...")
		return s == path || all && (path == below || strings.HasPrefix(path, below+"/"))
	})
}

// without removes the findings that a file lists.
func without(found []finding, file string) ([]finding, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		path, rest, _ := strings.Cut(strings.TrimSpace(line), ": ")
		what, reason, _ := strings.Cut(rest, ": ")
		if line[0] != '#' && reason == "" {
			return nil, fmt.Errorf("%s: no reason: %s", file, line)
		}
		known[path+": "+what] = true
	}
	return slices.DeleteFunc(found, func(f finding) bool { return known[f.file+": "+f.what] }), nil
}

// finding is an unused field or name.
type finding struct {
	file string
	line int
	what string
}

// String returns the finding in the format that editors recognise.
func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.what) }

// place identifies an object by its position and name, because its package may be loaded several times.
type place struct {
	file string
	line int
	name string
}

// search has the state of the search.
type search struct {
	declared map[place]string // the declarations to check, with their descriptions
	methods  map[place]bool   // which of these declarations are methods
	used     map[place]bool
	asked    map[string]bool // names of the methods that interfaces require
	checked  map[*types.Package]bool
}

func newSearch() *search {
	// The functions of package errors require these methods by interfaces in their bodies.
	asked := map[string]bool{"Error": true, "Unwrap": true, "Is": true, "As": true}
	return &search{declared: map[place]string{}, methods: map[place]bool{}, used: map[place]bool{}, asked: asked, checked: map[*types.Package]bool{}}
}

func placeOf(fset *token.FileSet, o types.Object) place {
	at := fset.Position(o.Pos())
	return place{at.Filename, at.Line, o.Name()}
}

// report returns the declarations that are not used.
func (s *search) report(dir string) []finding {
	root, err := filepath.Abs(dir)
	if err != nil {
		root = dir
	}
	var at []place
	for p := range s.declared {
		if !s.used[p] && !(s.methods[p] && s.asked[p.name]) {
			at = append(at, p)
		}
	}
	slices.SortFunc(at, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line), cmp.Compare(a.name, b.name))
	})
	out := make([]finding, len(at))
	for i, p := range at {
		file, err := filepath.Rel(root, p.file)
		if err != nil {
			file = p.file
		}
		out[i] = finding{file, p.line, s.declared[p]}
	}
	return out
}
