package yamldoc

import (
	"fmt"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// Tree is a document with the lines of its fields. The zero value and nil are documents without lines. One goroutine may use it at a time.
type Tree struct {
	root yamlv3.Node
	keys map[*yamlv3.Node]map[string]int // for each mapping that Find has searched: where its keys are in Content
}

// ParseTree parses a document. It expands no aliases.
func ParseTree(data []byte) (*Tree, error) {
	t := &Tree{}
	if err := yamlv3.Unmarshal(data, &t.root); err != nil {
		return nil, err
	}
	return t, nil
}

// Find returns the line of the field at path, such as "groups[0].labels[a.b/c]". If the document lacks the field, Find returns the line of
// the nearest parent that it has, and missing is the part of path below that parent. The line is 0 if it is unknown.
func (t *Tree) Find(path string) (line int, missing string) {
	if t == nil || len(t.root.Content) == 0 {
		return 0, path
	}
	n := t.root.Content[0]
	line = n.Line
	for path != "" {
		if n.Kind == yamlv3.AliasNode {
			n = n.Alias
		}
		next, at, rest := t.step(n, path)
		if next == nil {
			break
		}
		n, line, path = next, at, rest
	}
	return line, path
}

// maxDots bounds how many dots step searches for in one name.
const maxDots = 8

// step goes from a node along the first name, key or index of path. rest is the remaining path. next is nil if the node has no such child.
// A name may contain dots: a.b is the field b of a, or else the field "a.b".
func (t *Tree) step(n *yamlv3.Node, path string) (next *yamlv3.Node, line int, rest string) {
	if inner, ok := strings.CutPrefix(path, "["); ok {
		key, after, _ := strings.Cut(inner, "]")
		next, line = t.child(n, key)
		return next, line, strings.TrimPrefix(after, ".")
	}
	end := 0
	for range maxDots + 1 {
		if i := strings.IndexAny(path[end:], ".["); i >= 0 {
			end += i
		} else {
			end = len(path)
		}
		if next, line = t.child(n, path[:end]); next != nil || end == len(path) {
			return next, line, strings.TrimPrefix(path[end:], ".")
		}
		end++
	}
	return nil, 0, ""
}

// child returns the value that a mapping has for a key, or that a sequence has at an index, and the line on which the entry begins.
func (t *Tree) child(n *yamlv3.Node, step string) (*yamlv3.Node, int) {
	switch n.Kind {
	case yamlv3.MappingNode:
		if i, ok := t.keysOf(n)[step]; ok {
			return n.Content[i+1], n.Content[i].Line
		}
	case yamlv3.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
	}
	return nil, 0
}

// keysOf returns where the keys of a mapping are in its Content. A file may have as many problems as keys, so a search must not look at
// each key.
func (t *Tree) keysOf(n *yamlv3.Node) map[string]int {
	keys, ok := t.keys[n]
	if ok {
		return keys
	}
	keys = make(map[string]int, len(n.Content)/2)
	for i := len(n.Content) - 2; i >= 0; i -= 2 { // backwards, so that the first of two equal keys remains
		keys[n.Content[i].Value] = i
	}
	if t.keys == nil {
		t.keys = map[*yamlv3.Node]map[string]int{}
	}
	t.keys[n] = keys
	return keys
}

// Expands reports whether the document with its aliases expanded has more than limit bytes. It measures the tree before anything copies
// it, because a few thousand aliases of one long text would fill the memory.
func (t *Tree) Expands(limit int) bool {
	const open = -1 // the size of this node is being computed, so an alias to it would be endless
	sizes := map[*yamlv3.Node]int{}
	var size func(n *yamlv3.Node) int
	size = func(n *yamlv3.Node) int {
		if n.Kind == yamlv3.AliasNode {
			n = n.Alias
		}
		if n.Anchor != "" {
			if known, ok := sizes[n]; ok && known != open {
				return known
			} else if ok {
				return limit + 1
			}
			sizes[n] = open
		}
		sum := 1 + len(n.Value)
		for _, c := range n.Content {
			if sum += size(c); sum > limit {
				sum = limit + 1
				break
			}
		}
		if n.Anchor != "" {
			sizes[n] = sum
		}
		return sum
	}
	return size(&t.root) > limit
}

// Duplicate is a key that a mapping has for the second time.
type Duplicate struct {
	Path        string
	Line, First int // its line, and the line where the mapping has the key first
}

// Text says what is wrong. before is the number of lines that precede the document.
func (d *Duplicate) Text(before int) string {
	return fmt.Sprintf("duplicate field, it is in line %d already; remove one", before+d.First)
}

// Duplicates returns the keys that occur twice in a mapping, at most most of them.
func (t *Tree) Duplicates(most int) (out []Duplicate) {
	var path []string // the steps to the present node
	var walk func(n *yamlv3.Node, step string)
	walk = func(n *yamlv3.Node, step string) {
		path = append(path, step)
		defer func() { path = path[:len(path)-1] }()
		if n.Kind == yamlv3.MappingNode {
			first := map[string]int{}
			for i := 0; i+1 < len(n.Content) && len(out) < most; i += 2 {
				k := n.Content[i]
				if line, twice := first[k.Value]; twice && k.Kind == yamlv3.ScalarNode && k.Tag != "!!merge" {
					out = append(out, Duplicate{strings.TrimPrefix(strings.Join(path, "")+"."+k.Value, "."), k.Line, line})
				}
				first[k.Value] = k.Line
				walk(n.Content[i+1], "."+k.Value)
			}
			return
		}
		for i, c := range n.Content {
			if len(out) >= most {
				return
			}
			step := ""
			if n.Kind == yamlv3.SequenceNode {
				step = "[" + strconv.Itoa(i) + "]"
			}
			walk(c, step)
		}
	}
	if t != nil {
		walk(&t.root, "")
	}
	return out
}
