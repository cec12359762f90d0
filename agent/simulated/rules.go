package simulated

import (
	"errors"

	"github.com/wherry-node/wherry/internal/sim/simrules"
)

// Rules say as data what containers and images do: see docs/fleet-rules.md. They do not change.
type Rules struct{ rules *simrules.Rules }

// MaxRules bounds a file of rules in bytes.
const MaxRules = simrules.MaxFile

// RulesFile is a file of rules.
type RulesFile struct {
	Name string // for errors
	Data []byte
	// Read returns the content of another file that Data names, at most MaxRules bytes; nil: there are no other files.
	Read func(file string) ([]byte, error)
}

// ParseRules reads rules from files in YAML or JSON: documents of kind SimulationRules, and those of KWOK's API that docs/fleet-kwok.md lists. Rules of
// earlier files take precedence. The error joins all problems, each with file, line and field.
func ParseRules(files ...RulesFile) (*Rules, error) {
	all := &simrules.Rules{}
	var errs []error
	for _, f := range files {
		rules, err := simrules.Parse(f.Name, f.Data, f.Read)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all.Add(rules)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Rules{all}, nil
}

// Ignored returns what documents of KWOK's API ask for that has no meaning on a simulated node, each with file and line.
func (r *Rules) Ignored() []string { return r.rules.Ignored }

func (r *Rules) of() *simrules.Rules {
	if r == nil {
		return nil
	}
	return r.rules
}
