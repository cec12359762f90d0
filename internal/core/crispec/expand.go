package crispec

import (
	"fmt"
	"strings"
)

// These constants bound, in bytes, one text with its references replaced, and all texts of an environment or of a command together.
// Without a bound, thirty variables of which each refers twice to the one before it would fill the memory of the node. Linux starts no
// process with longer texts.
const (
	maxExpanded    = 2 << 20
	maxAllExpanded = 8 << 20
)

// Expand replaces $(NAME) by lookup(NAME). "If a variable cannot be resolved, the reference in the input string
// will be unchanged. Double $$ are reduced to a single $, which allows for escaping the $(VAR_NAME) syntax."
// It is an error if the result is longer than 2 MiB.
func Expand(s string, lookup func(name string) (string, bool)) (string, error) {
	if !strings.Contains(s, "$") {
		return s, nil
	}
	var b strings.Builder
	ends := true // false once no ")" is left; otherwise a text of many "$(" and no ")" would be searched again and again
	for len(s) > 0 {
		before, rest, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			break
		}
		name, after, reference := "", "", false
		if ends && strings.HasPrefix(rest, "(") {
			name, after, reference = strings.Cut(rest[1:], ")")
			ends = reference
		}
		switch {
		case reference:
			value, ok := lookup(name)
			if !ok {
				value = "$(" + name + ")"
			}
			if b.Len()+len(value) > maxExpanded {
				return "", fmt.Errorf("with its references to variables replaced, a text is longer than %d bytes", maxExpanded)
			}
			b.WriteString(value)
			s = after
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			s = rest[1:]
		default:
			b.WriteByte('$')
			s = rest
		}
	}
	return b.String(), nil
}

// ExpandAll calls Expand for each word of a command. It is an error if all words together are longer than 8 MiB.
func ExpandAll(words []string, lookup func(name string) (string, bool)) ([]string, error) {
	if len(words) == 0 {
		return nil, nil
	}
	out, total := make([]string, len(words)), 0
	for i, s := range words {
		var err error
		if out[i], err = Expand(s, lookup); err != nil {
			return nil, err
		}
		if total += len(out[i]); total > maxAllExpanded {
			return nil, fmt.Errorf("with the references to variables replaced, all words together are longer than %d bytes", maxAllExpanded)
		}
	}
	return out, nil
}

// EnvVar is one resolved environment variable.
type EnvVar struct {
	Name  string
	Value string
}

// lookupIn returns a function that finds the value of a variable.
func lookupIn(env []EnvVar) func(name string) (string, bool) {
	values := make(map[string]string, len(env))
	for _, e := range env {
		values[e.Name] = e.Value
	}
	return func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok
	}
}
