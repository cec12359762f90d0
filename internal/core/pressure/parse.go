package pressure

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ParseInput is the eviction part of a KubeletConfiguration.
type ParseInput struct {
	Hard            map[string]string // evictionHard
	Soft            map[string]string // evictionSoft
	SoftGracePeriod map[string]string // evictionSoftGracePeriod: required for every soft signal
	MinimumReclaim  map[string]string // evictionMinimumReclaim
	// EnforceNodeAllocatable is enforceNodeAllocatable. If it contains "pods", the thresholds of memory.available also apply to the
	// cgroup of all pods.
	EnforceNodeAllocatable []string
}

// Parse parses thresholds. Its error names each wrong field. The thresholds come in a fixed order. A threshold of 0% or
// 100% switches a signal off and is left out.
func Parse(in ParseInput) ([]Threshold, error) {
	var errs []error
	hard := parseField("evictionHard", in.Hard, &errs)
	soft := parseField("evictionSoft", in.Soft, &errs)
	for i := range soft {
		key := string(soft[i].Signal)
		text, ok := in.SoftGracePeriod[key]
		if !ok {
			errs = append(errs, fmt.Errorf("evictionSoft[%s]: needs a grace period: set evictionSoftGracePeriod[%s]", key, key))
			continue
		}
		grace, err := time.ParseDuration(text)
		if err != nil || grace <= 0 {
			errs = append(errs, fmt.Errorf("evictionSoftGracePeriod[%s]: %q is not a positive duration such as 1m30s", key, text))
			continue
		}
		soft[i].Grace = grace
	}
	out := append(hard, soft...)
	for _, key := range slices.Sorted(maps.Keys(in.MinimumReclaim)) {
		val, err := parseValue(in.MinimumReclaim[key])
		if err != nil || Signal(key).order() < 0 {
			errs = append(errs, fieldError("evictionMinimumReclaim", key, in.MinimumReclaim[key]))
			continue
		}
		for i := range out {
			if string(out[i].Signal) == key {
				out[i].MinReclaim = val
			}
		}
	}
	if slices.Contains(in.EnforceNodeAllocatable, enforcePods) {
		for _, t := range slices.Clone(out) {
			if t.Signal == MemoryAvailable && t.Hard() {
				t.Signal = AllocatableMemoryAvailable
				out = append(out, t)
			}
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Signal.order() < out[j].Signal.order() })
	return out, errors.Join(errs...)
}

func parseField(field string, m map[string]string, errs *[]error) []Threshold {
	var out []Threshold
	for _, key := range slices.Sorted(maps.Keys(m)) {
		text := m[key]
		if text == "0%" || text == "100%" {
			continue
		}
		val, err := parseValue(text)
		if err != nil || Signal(key).order() < 0 || val.Of(1<<40) <= 0 {
			*errs = append(*errs, fieldError(field, key, text))
			continue
		}
		out = append(out, Threshold{Signal: Signal(key), Value: *val})
	}
	return out
}

func fieldError(field, key, text string) error {
	if Signal(key).order() < 0 {
		names := make([]string, len(signals))
		for i, s := range signals {
			names[i] = string(s)
		}
		return fmt.Errorf("%s[%s]: unknown signal; the signals are %s", field, key, strings.Join(names, ", "))
	}
	return fmt.Errorf("%s[%s]: %q is neither a positive quantity such as 100Mi nor a percentage such as 10%%", field, key, text)
}

func parseValue(text string) (*Value, error) {
	if digits, ok := strings.CutSuffix(text, "%"); ok {
		f, err := strconv.ParseFloat(digits, 32)
		if err != nil || !(f >= 0 && f <= 100) {
			return nil, fmt.Errorf("percentage %q is not between 0%% and 100%%", text)
		}
		return &Value{Fraction: f / 100}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return nil, fmt.Errorf("parse quantity %q: %w", text, err)
	}
	if q.Sign() < 0 {
		return nil, fmt.Errorf("quantity %q is negative", text)
	}
	return &Value{Quantity: &q}, nil
}

// HardReservation returns the part of a node's capacity that the hard thresholds reserve. It is subtracted from allocatable
// ("Node Allocatable = capacity - kube-reserved - system-reserved - eviction-threshold").
func HardReservation(thresholds []Threshold, capacity v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for _, t := range thresholds {
		var name v1.ResourceName
		switch {
		case !t.Hard():
			continue
		case t.Signal == MemoryAvailable:
			name = v1.ResourceMemory
		case t.Signal == NodefsAvailable:
			name = v1.ResourceEphemeralStorage
		default:
			continue
		}
		whole, ok := capacity[name]
		if !ok {
			continue
		}
		out[name] = *resource.NewQuantity(t.Value.Of(whole.Value()), resource.BinarySI)
	}
	return out
}
