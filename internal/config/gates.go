package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// stage is the maturity of a feature gate.
type stage uint8

const (
	stageAlpha stage = iota
	stageBeta
	stageGA
	stageDeprecated
)

// String is the stage as Kubernetes writes it.
func (s stage) String() string {
	switch s {
	case stageAlpha:
		return "alpha"
	case stageBeta:
		return "beta"
	case stageGA:
		return "GA"
	case stageDeprecated:
		return "deprecated"
	}
	return fmt.Sprintf("stage(%d)", uint8(s))
}

// gateFact is what Kubernetes says of one feature gate in the release that Wherry follows.
type gateFact struct {
	stage  stage
	on     bool // default
	locked bool // may not be set to the contrary
}

// Gates answers whether a feature gate is on. The zero value answers with Kubernetes' defaults.
type Gates struct{ set map[string]bool }

// NewGates checks the gates that a user set and merges them with the defaults. Unknown gates, and gates that
// Kubernetes has locked, are errors, as they are for every Kubernetes component.
func NewGates(set map[string]bool) (Gates, []error) {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(set)) {
		fact, known := gateFacts[name]
		switch {
		case name == "AllAlpha" || name == "AllBeta":
		case !known:
			errs = append(errs, fmt.Errorf("featureGates.%s (--feature-gates): Kubernetes %s has no such gate%s: remove it",
				name, KubernetesVersion, didYouMean(name, slices.Collect(maps.Keys(gateFacts)))))
		case fact.locked && set[name] != fact.on:
			errs = append(errs, fmt.Errorf("featureGates.%s (--feature-gates): locked to %t in Kubernetes %s: remove it",
				name, fact.on, KubernetesVersion))
		}
	}
	return Gates{set: maps.Clone(set)}, errs
}

// Enabled reports whether a gate is on: as set, else by AllAlpha or AllBeta for its stage, else its default. A name
// that Kubernetes does not know is off.
func (g Gates) Enabled(name string) bool {
	if on, ok := g.set[name]; ok {
		return on
	}
	fact := gateFacts[name]
	if fact.locked {
		return fact.on
	}
	group := ""
	switch fact.stage {
	case stageAlpha:
		group = "AllAlpha"
	case stageBeta:
		group = "AllBeta"
	case stageGA, stageDeprecated:
	}
	if on, ok := g.set[group]; ok && group != "" {
		if _, known := gateFacts[name]; known {
			return on
		}
	}
	return fact.on
}

// didYouMean is ` (did you mean "x"?)` for the nearest of the known names, or empty where none is near.
func didYouMean(name string, known []string) string {
	best, at := "", 1+len(name)/4
	slices.Sort(known)
	for _, k := range known {
		if d := editDistance(strings.ToLower(name), strings.ToLower(k)); d <= at && (best == "" || d < at) {
			best, at = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// editDistance counts insertions, deletions and replacements between two words.
func editDistance(a, b string) int {
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur := make([]int, len(b)+1)
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
		}
		prev = cur
	}
	return prev[len(b)]
}
