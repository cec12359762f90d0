package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pkg is the package whose tests are judged, with its mutants.
type pkg struct {
	dir     string
	name    string
	fset    *token.FileSet
	files   map[string]*ast.File // parsed files by path
	info    types.Info
	types   *types.Package
	mutants []string          // name of each mutant; the mutant's number is its index plus 1
	changed map[string][]byte // text of each file with all mutants, by path
}

// load parses and type-checks the package. The types of imported packages come from the go command's export data.
func load(ctx context.Context, dir, path string) (*pkg, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles,DepOnly,Name", path)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	exports := map[string]string{}
	p := &pkg{fset: token.NewFileSet(), files: map[string]*ast.File{}, changed: map[string][]byte{}}
	var ordered []*ast.File
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var l struct {
			ImportPath, Export, Dir, Name string
			GoFiles                       []string
			DepOnly                       bool
		}
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[l.ImportPath] = l.Export
		if l.DepOnly {
			continue
		}
		p.dir, p.name = l.Dir, l.Name
		for _, f := range l.GoFiles {
			file := filepath.Join(l.Dir, f)
			parsed, err := parser.ParseFile(p.fset, file, nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			p.files[file] = parsed
			ordered = append(ordered, parsed)
		}
	}
	conf := types.Config{Importer: importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})}
	p.info = types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	if p.types, err = conf.Check(path, p.fset, ordered, &p.info); err != nil {
		return nil, fmt.Errorf("type-check %s: %w", path, err)
	}
	return p, nil
}

// instrument adds all mutants to the text of each file.
func (p *pkg) instrument() error {
	for _, path := range sortedKeys(p.files) {
		f := p.files[path]
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		w := &writer{pkg: p, src: src, base: p.fset.File(f.Pos()).Base(), file: filepath.Base(path), seen: map[string]int{}, imports: importsOf(f)}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Body != nil {
					w.function(d)
				}
			case *ast.GenDecl:
				w.tables(d)
			}
		}
		changed, err := format.Source(w.apply())
		if err != nil {
			return fmt.Errorf("%s with its mutants: %w", path, err)
		}
		p.changed[path] = changed
	}
	p.changed[filepath.Join(p.dir, "wherry_mutants.go")] = []byte(strings.ReplaceAll(support, "PACKAGE", p.name))
	return nil
}

// support is the code of an additional file that the changed files call. mut(n) reports whether the tests run with mutant n.
const support = `package PACKAGE

import (
	"cmp"
	"os"
	"strconv"
)

var mutActive, _ = strconv.Atoi(os.Getenv("WHERRY_MUTANT"))

func mut(n int) bool { return n == mutActive }

func mutZero[T any](n int, v T) T {
	if mut(n) {
		var zero T
		return zero
	}
	return v
}

func mutPick[T any](n int, v, other T) T {
	if mut(n) {
		return other
	}
	return v
}

func mutMin[T cmp.Ordered](n int, a, b T) T {
	if mut(n) {
		return max(a, b)
	}
	return min(a, b)
}

func mutMax[T cmp.Ordered](n int, a, b T) T {
	if mut(n) {
		return min(a, b)
	}
	return max(a, b)
}
`

// importsOf returns the names under which a file imports packages, by import path.
func importsOf(f *ast.File) map[string]string {
	names := map[string]string{}
	for _, i := range f.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		name := path[strings.LastIndexByte(path, '/')+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		names[path] = name
	}
	return names
}
