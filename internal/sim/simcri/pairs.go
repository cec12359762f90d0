package simcri

import (
	"maps"
	"slices"
)

// pairs are labels or annotations. They are never modified. A runtime keeps four sets for each pod, and a map of a few entries takes four times the
// memory.
type pairs struct {
	keys   *[]string // sorted; sets with the same keys share them; nil: there are no pairs
	values []string  // the values, in the order of the keys
}

// pairsOf returns the entries of m. If *last has the keys of m, the pairs share them; otherwise *last becomes the keys of m. The caller holds the lock.
func pairsOf(m map[string]string, last **[]string) pairs {
	if len(m) == 0 {
		return pairs{}
	}
	keys := slices.Sorted(maps.Keys(m))
	if *last == nil || !slices.Equal(keys, **last) {
		*last = &keys
	}
	p := pairs{keys: *last, values: make([]string, len(keys))}
	for i, k := range keys {
		p.values[i] = m[k]
	}
	return p
}

func (p pairs) empty() bool { return p.keys == nil }

// get returns the value of a key.
func (p pairs) get(key string) (value string, ok bool) {
	if p.empty() {
		return "", false
	}
	at, ok := slices.BinarySearch(*p.keys, key)
	if !ok {
		return "", false
	}
	return p.values[at], true
}

// asMap returns the pairs as a new map; nil: there are none.
func (p pairs) asMap() map[string]string {
	if p.empty() {
		return nil
	}
	out := make(map[string]string, len(p.values))
	for i, k := range *p.keys {
		out[k] = p.values[i]
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
