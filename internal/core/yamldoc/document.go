package yamldoc

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

// Document is the state of the check of a file in YAML or JSON: the parsed file, and the problems found so far.
type Document struct {
	Name string // the name of the file
	// Offset is how many lines of the file precede the document.
	Offset int
	// Errs are the problems, each with file, line and field.
	Errs []error
	tree yamlv3.Node
}

// maxProblems is how many problems of a document are reported at most.
const maxProblems = 50

// Bad adds a problem with the field at path.
func (t *Document) Bad(path, text string) {
	switch n := len(t.Errs); {
	case n > maxProblems:
	case n == maxProblems:
		t.Errs = append(t.Errs, fmt.Errorf("%s: more than %d problems in all", t.Name, maxProblems))
	default:
		t.Errs = append(t.Errs, fmt.Errorf("%s: %s: %s", t.At(path), path, text))
	}
}

// At returns the file and the line of the field at path: "FILE:LINE", or "FILE" if the line is unknown.
func (t *Document) At(path string) string {
	if line := lineOf(&t.tree, path); line > 0 {
		return t.Name + ":" + strconv.Itoa(line+t.Offset)
	}
	return t.Name
}

// Parse parses data into plain values (maps, slices, strings, json.Numbers), and returns them also as JSON.
func (t *Document) Parse(data []byte) (v any, asJSON []byte, err error) {
	asJSON, err = yaml.YAMLToJSONStrict(data)
	if err == nil {
		err = yamlv3.Unmarshal(data, &t.tree)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: not valid YAML or JSON: %w", t.Name, err)
	}
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, nil, fmt.Errorf("%s: not valid YAML or JSON: %w", t.Name, err)
	}
	return v, asJSON, nil
}

// Decode parses data, which has to be of the API version and kind, and checks that all its fields are fields of the type of file. It decodes data
// into file and into each of others.
func (t *Document) Decode(data []byte, apiVersion, kind string, file any, others ...any) error {
	v, asJSON, err := t.Parse(data)
	if err != nil {
		return err
	}
	m, ok := v.(map[string]any)
	if !ok || m["apiVersion"] != apiVersion || m["kind"] != kind {
		return fmt.Errorf("%s: apiVersion %v, kind %v: must be %s and %s", t.Name, m["apiVersion"], m["kind"], apiVersion, kind)
	}
	return t.fill(v, asJSON, append([]any{file}, others...))
}

// DecodePlain parses data, which has no API version and kind, and checks that all its fields are fields of the type of into.
func (t *Document) DecodePlain(data []byte, into any) error {
	v, asJSON, err := t.Parse(data)
	if err != nil {
		return err
	}
	return t.fill(v, asJSON, []any{into})
}

// fill checks v against the type of the first of into, and decodes asJSON into each of them.
func (t *Document) fill(v any, asJSON []byte, into []any) error {
	for _, p := range (strict.Types{}).Check(v, into[0]) {
		t.Bad(p.Path, p.Detail)
	}
	if len(t.Errs) > 0 {
		return errors.Join(t.Errs...)
	}
	for _, one := range into {
		if err := json.Unmarshal(asJSON, one); err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
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
