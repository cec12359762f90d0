package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/wherry-node/wherry/internal/core/strict"
)

// document is the state of the check of a file in YAML or JSON: the parsed file, and the problems found so far.
type document struct {
	name string // the name of the file
	tree yamlv3.Node
	errs []error
}

// maxProblems is how many problems of a document are reported at most.
const maxProblems = 50

// bad adds a problem with the field at path.
func (t *document) bad(path, text string) {
	switch n := len(t.errs); {
	case n > maxProblems:
	case n == maxProblems:
		t.errs = append(t.errs, fmt.Errorf("%s: more than %d problems in all", t.name, maxProblems))
	default:
		where := t.name
		if line := lineOf(&t.tree, path); line > 0 {
			where += ":" + strconv.Itoa(line)
		}
		t.errs = append(t.errs, fmt.Errorf("%s: %s: %s", where, path, text))
	}
}

// decode parses data and checks that all its fields are fields of the type of file. It decodes data into file and into each of others.
func (t *document) decode(data []byte, kind string, file any, others ...any) error {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err == nil {
		err = yamlv3.Unmarshal(data, &t.tree)
	}
	if err != nil {
		return fmt.Errorf("%s: not valid YAML or JSON: %w", t.name, err)
	}
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return fmt.Errorf("%s: not valid YAML or JSON: %w", t.name, err)
	}
	m, ok := v.(map[string]any)
	if !ok || m["apiVersion"] != TemplateAPIVersion || m["kind"] != kind {
		return fmt.Errorf("%s: apiVersion %v, kind %v: must be %s and %s", t.name, m["apiVersion"], m["kind"], TemplateAPIVersion, kind)
	}
	for _, p := range (strict.Types{}).Check(v, file) {
		t.bad(p.Path, p.Detail)
	}
	if len(t.errs) > 0 {
		return errors.Join(t.errs...)
	}
	for _, into := range append([]any{file}, others...) {
		if err := json.Unmarshal(asJSON, into); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

// lineOf returns the line of the field at path in a YAML document. If the document lacks the field, it returns the line of the nearest
// parent that the document has; 0: unknown.
func lineOf(tree *yamlv3.Node, path string) int {
	if len(tree.Content) == 0 {
		return 0
	}
	n := tree.Content[0]
	line := n.Line
	for _, step := range steps(path) {
		if n.Kind == yamlv3.AliasNode {
			n = n.Alias
		}
		next, at := child(n, step)
		if next == nil {
			break
		}
		n, line = next, at
	}
	return line
}

// child returns the value that a mapping has for a key, or that a sequence has at an index, and the line on which the entry begins.
func child(n *yamlv3.Node, step string) (*yamlv3.Node, int) {
	switch n.Kind {
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	case yamlv3.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
	}
	return nil, 0
}

// steps splits a path such as "groups[0].labels[a.b/c]" into its field names, indexes and map keys.
func steps(path string) (out []string) {
	for path != "" {
		if rest, ok := strings.CutPrefix(path, "["); ok {
			key, after, _ := strings.Cut(rest, "]")
			out, path = append(out, key), strings.TrimPrefix(after, ".")
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			return append(out, path)
		}
		out = append(out, path[:end])
		path = strings.TrimPrefix(path[end:], ".")
	}
	return out
}
