package fleetctl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/core/manifest"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// input is what the options and the files that they name ask for.
type input struct {
	groups    []fleet.Group
	workloads []fleet.Workload // of --snapshot
	nodes     int              // of all groups
	expect    []fleet.Expectation
	plan      *fleet.Scenario  // nil: there is no --scenario
	rules     *simulated.Rules // nil: there are no --rules
	manifests manifest.Manifest
	sum       string // of the files of --rules, which must be the same in all shards of a fleet
}

// read reads the files that the options name, and checks the options. It starts nothing.
func (r *Run) read() (in input, err error) {
	if err := errors.Join(r.checkShard(), r.checkRecord(), r.checkMetrics()); err != nil {
		return in, err
	}
	if r.Snapshot != "" {
		err = r.readSnapshot(&in)
	} else {
		in.groups, err = r.groups()
	}
	if err != nil {
		return in, err
	}
	for i := range in.groups {
		in.nodes += in.groups[i].Count
	}
	if in.expect, err = r.expectations(); err != nil {
		return in, err
	}
	if errs := validation.IsDNS1123Label(r.Namespace); r.Pods > 0 && r.Snapshot == "" && len(errs) > 0 {
		return in, fmt.Errorf("--namespace=%q: %s", r.Namespace, strings.Join(errs, "; "))
	}
	if r.Scenario != "" {
		if in.plan, err = readScenario(r.Scenario); err != nil {
			return in, err
		}
	}
	if err = in.readManifests(r.Manifests); err != nil {
		return in, err
	}
	in.rules, in.sum, err = readRules(r.Rules)
	return in, err
}

// expectations returns the expectations of the user, or else the default ones: all nodes Ready, and at least Pods pods Running.
func (r *Run) expectations() ([]fleet.Expectation, error) {
	if err := checkOutput(r.Output); err != nil {
		return nil, err
	}
	if r.Hold < 0 {
		return nil, fmt.Errorf("--hold=%s: must not be negative", r.Hold)
	}
	if len(r.Expect) > 0 {
		return fleet.ParseExpectations(r.Expect)
	}
	texts := []string{"nodes=ready"}
	if r.Pods > 0 {
		texts = append(texts, fmt.Sprintf("pods.running>=%d", r.Pods)) // the cluster may have other pods
	}
	return fleet.ParseExpectations(texts)
}

// groups returns the groups of the template. Without a template it returns one group, with Nodes nodes.
func (r *Run) groups() ([]fleet.Group, error) {
	if r.Nodes < 0 || r.Nodes > fleet.MaxNodes {
		return nil, fmt.Errorf("--nodes=%d: use 0 to %d", r.Nodes, fleet.MaxNodes)
	}
	if r.Template == "" {
		n := r.Nodes
		if n == 0 {
			n = 10
		}
		return []fleet.Group{{Count: n}}, nil
	}
	data, err := readBounded(r.Template, fleet.MaxTemplate)
	if err != nil {
		return nil, fmt.Errorf("--template: %w", err)
	}
	groups, err := fleet.ParseTemplate(r.Template, data)
	if err != nil {
		return nil, err
	}
	switch {
	case r.Nodes > 0 && len(groups) > 1:
		return nil, fmt.Errorf("--nodes=%d: %s has %d groups: set their counts there", r.Nodes, r.Template, len(groups))
	case r.Nodes > 0:
		groups[0].Count = r.Nodes
	}
	return groups, nil
}

// readManifests reads files with pods, config maps and secrets.
func (in *input) readManifests(names []string) error {
	var errs []error
	for _, name := range names {
		data, err := readBounded(name, manifest.MaxBytes)
		if err != nil {
			errs = append(errs, fmt.Errorf("--manifest: %w", err))
			continue
		}
		m := manifest.Decode(name, data)
		errs = append(errs, m.Err())
		for _, p := range m.Pods {
			delete(p.Annotations, pod.AnnotationHash) // of a static pod, and these come from an API server
		}
		in.manifests.Pods = append(in.manifests.Pods, m.Pods...)
		in.manifests.ConfigMaps = append(in.manifests.ConfigMaps, m.ConfigMaps...)
		in.manifests.Notes = append(in.manifests.Notes, m.Notes...)
		in.manifests.Secrets = append(in.manifests.Secrets, m.Secrets...)
	}
	return errors.Join(errs...)
}

// readBounded reads a file of at most limit bytes. The caller refuses a file that is longer: its result has limit+1 bytes.
func readBounded(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}
