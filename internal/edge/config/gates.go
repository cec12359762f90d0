package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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

// String returns the stage as Kubernetes writes it.
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

// gateFact has the facts about one feature gate in the release of Kubernetes that Wherry follows.
type gateFact struct {
	stage  stage
	on     bool // the gate is on by default
	locked bool // the gate cannot be set to the other value
}

// Gates has the values of feature gates. The zero value has the defaults of Kubernetes.
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
			errs = append(errs, gateError(name, "Kubernetes %s has no such gate%s: remove it",
				KubernetesVersion, didYouMean(name, slices.Collect(maps.Keys(gateFacts)))))
		case fact.locked && set[name] != fact.on:
			errs = append(errs, gateError(name, "locked to %t in Kubernetes %s: remove it", fact.on, KubernetesVersion))
		}
	}
	return Gates{set: maps.Clone(set)}, errs
}

// gatePath begins the path of a feature gate in the configuration: featureGates.NAME.
const gatePath = "featureGates."

func gateError(name, format string, args ...any) error {
	path := gatePath + name
	return &fieldError{path, path + " (--feature-gates): " + fmt.Sprintf(format, args...)}
}

// Enabled reports whether a gate is on: the value that is set, or else AllAlpha or AllBeta for its stage, or else its default.
// A gate that Kubernetes does not have is off.
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

// Gate is a feature gate with its value.
type Gate struct {
	Name  string
	Stage string // ALPHA, BETA or DEPRECATED; "" for a feature that is generally available
	On    bool
}

// List returns every gate, sorted by name.
func (g Gates) List() []Gate {
	out := make([]Gate, 0, len(gateFacts))
	for _, name := range slices.Sorted(maps.Keys(gateFacts)) {
		stage := ""
		if s := gateFacts[name].stage; s != stageGA {
			stage = strings.ToUpper(s.String())
		}
		out = append(out, Gate{Name: name, Stage: stage, On: g.Enabled(name)})
	}
	return out
}

// didYouMean returns ` (did you mean "x"?)` with the most similar known name, or "" if none is similar.
func didYouMean(name string, known []string) string {
	if best := strict.Nearest(name, known); best != "" {
		return meant(best)
	}
	return ""
}
