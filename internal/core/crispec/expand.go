package crispec

import "strings"

// Expand replaces $(NAME) by lookup(NAME). "If a variable cannot be resolved, the reference in the input string
// will be unchanged. Double $$ are reduced to a single $, which allows for escaping the $(VAR_NAME) syntax."
func Expand(s string, lookup func(name string) (string, bool)) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		before, rest, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			break
		}
		switch {
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			s = rest[1:]
		case strings.HasPrefix(rest, "("):
			name, after, closed := strings.Cut(rest[1:], ")")
			if !closed {
				b.WriteString("$(")
				s = rest[1:]
				continue
			}
			if v, ok := lookup(name); ok {
				b.WriteString(v)
			} else {
				b.WriteString("$(" + name + ")")
			}
			s = after
		default:
			b.WriteByte('$')
			s = rest
		}
	}
	return b.String()
}

// EnvVar is one resolved environment variable.
type EnvVar struct {
	Name  string
	Value string
}

func expandAll(in []string, env []EnvVar) []string {
	if len(in) == 0 {
		return nil
	}
	lookup := func(name string) (string, bool) {
		for i := len(env) - 1; i >= 0; i-- {
			if env[i].Name == name {
				return env[i].Value, true
			}
		}
		return "", false
	}
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = Expand(s, lookup)
	}
	return out
}
