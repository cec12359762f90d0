package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-node/wherry/internal/core/yamldoc"
)

// fieldError is a problem with the value of one field.
type fieldError struct {
	path string // path as in the file, with keys of maps and indices of lists in brackets
	text string
}

func (e *fieldError) Error() string { return e.text }

// field returns the path of the whole field, without a key or index.
func (e *fieldError) field() string { return fieldOf(e.path) }

func fieldOf(path string) string {
	field, _, _ := strings.Cut(path, "[")
	return field
}

// located returns an error with the file and the line that set the field, if a file set it. files are in the order in which they
// were merged: of two that set the field, the error names the last one, and it names a file that sets only a parent of the field if
// no file sets the field itself.
func located(err *fieldError, files []*yamldoc.Document) error {
	var file *yamldoc.Document
	lacks := err.path // the part of the path that file lacks
	for _, f := range slices.Backward(files) {
		if _, missing := f.Find(err.path); len(missing) < len(lacks) {
			file, lacks = f, missing
		}
	}
	if file == nil || lacks != "" && strings.HasPrefix(err.path, gatePath) { // a file that does not set the gate sets only other gates
		return err
	}
	return fmt.Errorf("%s: %s", file.At(err.path), err.text)
}
