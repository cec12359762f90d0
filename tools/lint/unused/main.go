// Command unused lists declarations that no program of this repository uses. It finds what two other tools miss, because staticcheck sees
// one package at a time and deadcode sees only functions: fields that are written but never read, and exported constants, variables, types,
// functions and methods that only tests use.
//
//	unused [-support PACKAGES] [-known FILE] [DIR...]
//
// The command loads the modules in all DIRs, without tests, and checks the first one; the other modules count as users. Packages of
// -support are not checked. The file of -known lists exceptions with their reasons, one per line: "PATH: finding: reason". A field counts
// as read if its struct is used as a whole: compared, converted to another type, or passed to a function that accepts any value (such as an
// encoder or a printer). Fields with a tag, embedded fields, and methods with the name of an interface's method are not checked.
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

// run returns the unused declarations of the module in the first directory. Uses in all directories count. Declarations in the packages
// support are not checked.
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

// without returns the findings in found that the file does not list as exceptions. It returns an error if a line of the file has no reason.
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

// finding is a declaration that nothing uses.
type finding struct {
	file string
	line int
	what string
}

// String formats the finding as FILE:LINE: TEXT, which editors recognise.
func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.what) }

// place identifies a declared object by its position and name. A package may be loaded several times, with a different types.Object each
// time.
type place struct {
	file string
	line int
	name string
}

// search collects declarations and uses.
type search struct {
	declared map[place]string // what to report about each declaration if it is not used
	methods  map[place]bool   // declarations that are methods
	used     map[place]bool
	asked    map[string]bool // names of methods that some interface requires
	checked  map[*types.Package]bool
}

func newSearch() *search {
	// Functions of package errors require these methods through interfaces in their bodies, which are not loaded.
	asked := map[string]bool{"Error": true, "Unwrap": true, "Is": true, "As": true}
	return &search{declared: map[place]string{}, methods: map[place]bool{}, used: map[place]bool{}, asked: asked, checked: map[*types.Package]bool{}}
}

func placeOf(fset *token.FileSet, o types.Object) place {
	at := fset.Position(o.Pos())
	return place{at.Filename, at.Line, o.Name()}
}

// report returns the declarations that are not used, sorted by position. Their files are relative to dir.
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
