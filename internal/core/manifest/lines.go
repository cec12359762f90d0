package manifest

import (
	"maps"
	"slices"

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

// line returns the line of a field in the manifest, or the line of the nearest parent that has one; 0: unknown.
func (d *decoder) line(at *field.Path) int {
	line, _ := d.tree.Find(strict.PathText(at))
	if line == 0 {
		return 0
	}
	return d.before + line
}

func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
