package config

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
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

// origin is a file that was read, with the line of each field that it sets.
type origin struct {
	name  string
	lines map[string]int
}

// located returns an error with the file and the line that set the field, if a file set it. files are in the order in which they
// were merged.
func located(err *fieldError, files []origin) error {
	for _, f := range slices.Backward(files) {
		if strings.HasPrefix(err.path, gatePath) && f.lines[err.path] == 0 {
			continue // this file does not set the gate; lineOf would return the line of the field featureGates
		}
		if line := lineOf(f.lines, err.path); line > 0 {
			return fmt.Errorf("%s line %d: %s", f.name, line, err.text)
		}
	}
	return err
}

// lineOf returns the line of a field, or of the nearest field above it; 0: unknown.
func lineOf(lines map[string]int, path string) int {
	path = strings.NewReplacer("[", ".", "]", "").Replace(path)
	for path != "" {
		if line := lines[path]; line > 0 {
			return line
		}
		path = path[:max(0, strings.LastIndexByte(path, '.'))]
	}
	return 0
}

// These constants bound linesOf: fields of a file, bytes of a path, and depth. KubeletConfiguration needs less of each.
const (
	maxLineFields = 20_000
	maxLinePath   = 256
	maxLineDepth  = 16
)

// linesOf returns the line of each field in a file, by its path with dots. It reads YAML in block style and JSON with one field
// on each line, because these files are written so. For a field in flow style, the line of the field above it is used.
func linesOf(data []byte) map[string]int {
	out := map[string]int{}
	type level struct {
		indent int
		path   string
	}
	var above []level
	number := 0
	for line := range bytes.Lines(data) {
		number++
		key, indent := keyOf(string(line))
		if key == "" || len(key) > maxLinePath {
			continue
		}
		for len(above) > 0 && above[len(above)-1].indent >= indent {
			above = above[:len(above)-1]
		}
		path := key
		if len(above) > 0 {
			path = above[len(above)-1].path + "." + key
		}
		if _, again := out[path]; !again && len(path) <= maxLinePath && len(out) < maxLineFields {
			out[path] = number
		}
		if len(above) < maxLineDepth && len(path) <= maxLinePath {
			above = append(above, level{indent, path})
		}
	}
	return out
}

// keyOf returns the key at the beginning of a line, and how far it is indented; "": the line does not begin with a key.
func keyOf(line string) (key string, indent int) {
	rest := strings.TrimLeft(line, " \t-")
	indent = len(line) - len(rest)
	rest = strings.TrimSpace(rest)
	if q := rest[:min(1, len(rest))]; q == `"` || q == "'" {
		key, rest, _ = strings.Cut(rest[1:], q)
		if !strings.HasPrefix(strings.TrimSpace(rest), ":") {
			return "", 0
		}
		return key, indent
	}
	key, rest, ok := strings.Cut(rest, ":")
	if !ok || strings.ContainsAny(key, "#{}[],") || rest != "" && rest[0] != ' ' && rest[0] != '\t' {
		return "", 0
	}
	return strings.TrimSpace(key), indent
}
