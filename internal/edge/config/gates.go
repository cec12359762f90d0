package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/wherry-node/wherry/internal/core/strict"
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
	if best := strict.Nearest(name, known); best != "" {
		return meant(best)
	}
	return ""
}
