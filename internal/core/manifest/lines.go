package manifest

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wherry-node/wherry/internal/core/strict"
)

// under returns the path rel, which is relative to at, as a path from the document's root.
func under(at *field.Path, rel string) *field.Path {
	base := strict.PathText(at)
	if rel == "" {
		return at
	}
	if base == "" {
		return field.NewPath(rel)
	}
	return field.NewPath(base + "." + rel)
}

// line returns the line of a field in the present document, or the line of the nearest parent that has one.
func (d *decoder) line(at *field.Path) int {
	if d.tree == nil || len(d.tree.Content) == 0 {
		return 0
	}
	n := d.tree.Content[0]
	line := n.Line
	for _, step := range steps(strict.PathText(at)) {
		if n.Kind == yamlv3.AliasNode {
			n = n.Alias
		}
		var next *yamlv3.Node
		switch n.Kind {
		case yamlv3.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == step {
					line, next = n.Content[i].Line, n.Content[i+1]
				}
			}
		case yamlv3.SequenceNode:
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
				next = n.Content[i]
				line = next.Line
			}
		}
		if next == nil {
			break
		}
		n = next
	}
	return d.before + line
}

// steps cuts "spec.containers[0].env[1].name" and "metadata.labels[a.b/c]" into names, indexes and keys.
func steps(path string) []string {
	var out []string
	for path != "" {
		switch path[0] {
		case '.':
			path = path[1:]
		case '[':
			end := strings.IndexByte(path, ']')
			if end < 0 {
				return append(out, path[1:])
			}
			out = append(out, path[1:end])
			path = path[end+1:]
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			out = append(out, path[:end])
			path = path[end:]
		}
	}
	return out
}

func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
