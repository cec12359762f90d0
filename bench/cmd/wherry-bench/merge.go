package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/wherry-node/wherry/bench/internal/table"
	"github.com/wherry-node/wherry/bench/internal/work"
)

// measured is the content of a file of -json, as far as merge needs it.
type measured struct {
	Machine []string
	Plan    work.Plan
	Rounds  int
	Samples map[string][]table.Samples
	Calls   map[string]map[string][]string
}

// merge reports the rounds of several runs as those of one. The runs must be of the same machine, the same programs and the same plan.
func merge(o *options, files []string) error {
	b := &bench{options: o, samples: map[string][]table.Samples{}, took: fmt.Sprintf("%d runs", len(files))}
	o.rounds = 0
	for i, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var m measured
		if err := json.Unmarshal(data, &m); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if i == 0 {
			b.machine, b.calls, o.plan = m.Machine, m.Calls, m.Plan
		}
		if one, other := withoutLoad(b.machine), withoutLoad(m.Machine); !slices.Equal(one, other) || !reflect.DeepEqual(o.plan, m.Plan) {
			return fmt.Errorf("%s and %s are not runs of the same work on the same machine:\n%s %+v\n%s %+v", files[0], file, strings.Join(one, "; "), o.plan, strings.Join(other, "; "), m.Plan)
		}
		o.rounds += m.Rounds
		for arm, rounds := range m.Samples {
			b.samples[arm] = append(b.samples[arm], rounds...)
		}
	}
	return b.report()
}

// withoutLoad returns the description of a machine without the line about its load before the run.
func withoutLoad(machine []string) []string {
	return slices.DeleteFunc(slices.Clone(machine), func(l string) bool { return strings.HasPrefix(l, "load before: ") })
}
