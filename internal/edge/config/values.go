package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// taintsValue is the value of --register-with-taints. A second use of the flag replaces the first, as in upstream's kubelet.
type taintsValue struct{ to *[]v1.Taint }

func (t *taintsValue) Type() string { return "taints" }

func (t *taintsValue) String() string {
	if t.to == nil {
		return ""
	}
	parts := make([]string, 0, len(*t.to))
	for _, taint := range *t.to {
		parts = append(parts, fmt.Sprintf("%s=%s:%s", taint.Key, taint.Value, taint.Effect))
	}
	return strings.Join(parts, ",")
}

func (t *taintsValue) Set(s string) error {
	var taints []v1.Taint
	seen := map[string]bool{}
	for part := range strings.SplitSeq(s, ",") {
		if part == "" {
			continue
		}
		taint, err := parseTaint(part)
		if err != nil {
			return err
		}
		if id := taint.Key + ":" + string(taint.Effect); seen[id] {
			return fmt.Errorf("taint %s occurs twice with effect %s", taint.Key, taint.Effect)
		} else {
			seen[id] = true
		}
		taints = append(taints, taint)
	}
	*t.to = taints
	return nil
}

func parseTaint(s string) (v1.Taint, error) {
	head, effect, ok := strings.Cut(s, ":")
	if !ok {
		return v1.Taint{}, fmt.Errorf("taint %q has no effect: write key=value:NoSchedule", s)
	}
	key, value, _ := strings.Cut(head, "=")
	taint := v1.Taint{Key: strings.TrimSpace(key), Value: strings.TrimSpace(value), Effect: v1.TaintEffect(strings.TrimSpace(effect))}
	return taint, CheckTaint(taint)
}

// CheckTaint returns why a taint is not valid.
func CheckTaint(t v1.Taint) error {
	if errs := validation.IsQualifiedName(t.Key); len(errs) > 0 {
		return fmt.Errorf("taint key %q: %s", t.Key, strings.Join(errs, "; "))
	}
	if errs := validation.IsValidLabelValue(t.Value); len(errs) > 0 {
		return fmt.Errorf("taint value %q: %s", t.Value, strings.Join(errs, "; "))
	}
	switch t.Effect {
	case v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute:
		return nil
	}
	return fmt.Errorf("taint effect %q: use NoSchedule, PreferNoSchedule or NoExecute", t.Effect)
}

// reservedMemoryValue is the value of --reserved-memory: NUMA nodes separated by semicolons. Several uses of the flag add up.
type reservedMemoryValue struct {
	to    *[]kubelet.MemoryReservation
	begun bool
}

func (m *reservedMemoryValue) Type() string { return "reserved-memory" }

func (m *reservedMemoryValue) String() string {
	if m.to == nil {
		return ""
	}
	var nodes []string
	for _, r := range *m.to {
		var limits []string
		for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
			q := r.Limits[name]
			limits = append(limits, string(name)+"="+q.String())
		}
		nodes = append(nodes, strconv.Itoa(int(r.NumaNode))+":"+strings.Join(limits, ","))
	}
	return strings.Join(nodes, ";")
}

func (m *reservedMemoryValue) Set(s string) error {
	if !m.begun {
		*m.to, m.begun = nil, true
	}
	for part := range strings.SplitSeq(s, ";") {
		if part == "" {
			continue
		}
		node, list, ok := strings.Cut(part, ":")
		id, err := strconv.ParseInt(node, 10, 32)
		if !ok || err != nil {
			return fmt.Errorf("%q: write NUMA-node:type=quantity, as in 0:memory=1Gi,hugepages-2Mi=512Mi", part)
		}
		r := kubelet.MemoryReservation{NumaNode: int32(id), Limits: v1.ResourceList{}}
		for limit := range strings.SplitSeq(list, ",") {
			name, amount, _ := strings.Cut(limit, "=")
			q, err := resource.ParseQuantity(amount)
			if err != nil {
				return fmt.Errorf("%q: %q is not a quantity", part, amount)
			}
			r.Limits[v1.ResourceName(name)] = q
		}
		*m.to = append(*m.to, r)
	}
	return nil
}
