package config

import (
	"errors"
	"maps"
	"reflect"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

// Problem is a wrong value of one field of a KubeletConfiguration.
type Problem struct {
	Path string // path of the field as in a file: "evictionHard[memory.available]"; "": the problem belongs to no single field
	Text string // text that says what is wrong, and what to use instead
}

// SimulatedKubelet returns the configuration of a simulated node whose file sets the given fields. The other fields have their
// defaults. It reports all wrong values. The caller has already compared the fields with the type KubeletConfiguration.
func SimulatedKubelet(fields map[string]any) (kubelet.KubeletConfiguration, []Problem) {
	cfg := baseConfig()
	if err := decodeOver(fields, nil, &cfg.Kubelet); err != nil {
		return cfg.Kubelet, []Problem{{Text: err.Error()}}
	}
	defaultEviction(&cfg.Kubelet)
	cfg.Kubelet.ContainerRuntimeEndpoint, cfg.Simulated = simulatedScheme, &SimulatedNode{}
	set := map[string]string{}
	setPaths(fields, maps.Collect(leaves(reflect.TypeFor[kubelet.KubeletConfiguration]())), "", set)
	var errs []error
	cfg.Gates, errs = NewGates(cfg.Kubelet.FeatureGates)
	errs = append(errs, validate(&cfg, nil)...)
	errs = append(errs, useErrors(&cfg, set)...)
	var out []Problem
	for _, err := range errs {
		p := Problem{Text: err.Error()}
		if e := (*fieldError)(nil); errors.As(err, &e) {
			p.Path = e.path
		}
		out = append(out, p)
	}
	return cfg.Kubelet, out
}
