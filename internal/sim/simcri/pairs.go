package simcri

import (
	"cmp"
	"slices"
)

// pairs are labels or annotations, sorted by key. They are never modified. A runtime keeps four sets for each pod, and a map of a few entries takes
// twice the memory of a slice.
type pairs []pair

type pair struct{ key, value string }

func pairsOf(m map[string]string) pairs {
	if len(m) == 0 {
		return nil
	}
	out := make(pairs, 0, len(m))
	for k, v := range m {
		out = append(out, pair{k, v})
	}
	slices.SortFunc(out, func(a, b pair) int { return cmp.Compare(a.key, b.key) })
	return out
}

// get returns the value of a key.
func (p pairs) get(key string) (value string, ok bool) {
	at, ok := slices.BinarySearchFunc(p, key, func(e pair, key string) int { return cmp.Compare(e.key, key) })
	if !ok {
		return "", false
	}
	return p[at].value, true
}

// asMap returns the pairs as a new map; nil: there are none.
func (p pairs) asMap() map[string]string {
	if len(p) == 0 {
		return nil
	}
	out := make(map[string]string, len(p))
	for _, e := range p {
		out[e.key] = e.value
	}
	return out
}

// match reports whether the pairs contain a selector.
func (p pairs) match(selector map[string]string) bool {
	for k, v := range selector {
		if got, ok := p.get(k); !ok || got != v {
			return false
		}
	}
	return true
}
