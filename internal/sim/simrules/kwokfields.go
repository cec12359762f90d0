package simrules

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/wherry-node/wherry/internal/core/strict"
)

// kwokFile is a document with a spec of the type S.
type kwokFile[S any] struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Spec       S                 `json:"spec"`
	Status     json.RawMessage   `json:"status"` // KWOK writes it
}

// kwokSelector selects pods in documents that are for several pods.
type kwokSelector struct {
	MatchNamespaces []string `json:"matchNamespaces"`
	MatchNames      []string `json:"matchNames"`
}

// kwokUsage is the spec of a ResourceUsage or ClusterResourceUsage.
type kwokUsage struct {
	Selector *kwokSelector `json:"selector"`
	Usages   []struct {
		Containers []string `json:"containers"`
		Usage      map[string]struct {
			Value      *resource.Quantity `json:"value"`
			Expression string             `json:"expression"`
		} `json:"usage"`
	} `json:"usages"`
}

// kwokLogs is the spec of Logs or ClusterLogs.
type kwokLogs struct {
	Selector *kwokSelector `json:"selector"`
	Logs     []struct {
		Containers       []string `json:"containers"`
		LogsFile         string   `json:"logsFile"`
		PreviousLogsFile string   `json:"previousLogsFile"`
		Follow           bool     `json:"follow"`
	} `json:"logs"`
}

// kwokStage is the spec of a Stage.
type kwokStage struct {
	ResourceRef struct {
		APIGroup string `json:"apiGroup"`
		Kind     string `json:"kind"`
	} `json:"resourceRef"`
	Selector struct {
		MatchLabels      map[string]string `json:"matchLabels"`
		MatchAnnotations map[string]string `json:"matchAnnotations"`
		MatchExpressions []struct {
			Key      string   `json:"key"`
			Operator string   `json:"operator"`
			Values   []string `json:"values"`
		} `json:"matchExpressions"`
	} `json:"selector"`
	Weight     int             `json:"weight"`
	WeightFrom json.RawMessage `json:"weightFrom"`
	Delay      struct {
		DurationMilliseconds       int64           `json:"durationMilliseconds"`
		DurationFrom               json.RawMessage `json:"durationFrom"`
		JitterDurationMilliseconds *int64          `json:"jitterDurationMilliseconds"`
		JitterDurationFrom         json.RawMessage `json:"jitterDurationFrom"`
	} `json:"delay"`
	Next struct {
		StatusTemplate    string          `json:"statusTemplate"`
		StatusSubresource string          `json:"statusSubresource"`
		StatusPatchAs     json.RawMessage `json:"statusPatchAs"`
		Patches           []kwokPatch     `json:"patches"`
		Delete            bool            `json:"delete"`
		Event             json.RawMessage `json:"event"`
		Finalizers        json.RawMessage `json:"finalizers"`
	} `json:"next"`
	ImmediateNextStage bool `json:"immediateNextStage"`
}

type kwokPatch struct {
	Subresource   string          `json:"subresource"`
	Root          string          `json:"root"`
	Template      string          `json:"template"`
	Type          string          `json:"type"`
	Impersonation json.RawMessage `json:"impersonation"`
}

// parse reads the document and its kind.
func (k *kwok) parse(data []byte) (err error) {
	if k.plain, k.asJSON, err = k.Parse(data); err != nil {
		return err
	}
	m, ok := k.plain.(map[string]any)
	if !ok {
		k.Bad("", "not a map of fields")
		return errors.Join(k.Errs...)
	}
	k.kind, _ = m["kind"].(string)
	k.version, _ = m["apiVersion"].(string)
	return nil
}

// decode decodes the document into a kwokFile. A field that the type does not have has no effect: it becomes an entry of Ignored. A value of a wrong type
// is an error, and decode returns false.
func (k *kwok) decode(into any) bool {
	for _, p := range (strict.Types{}).Check(k.plain, into) {
		if p.Unknown {
			k.ignore(p.Path, p.Detail)
		} else {
			k.Bad(p.Path, p.Detail)
		}
	}
	if len(k.Errs) > 0 {
		return false
	}
	// As in Kubernetes, and unlike in package encoding/json, a name in another case is another field.
	if err := kjson.UnmarshalCaseSensitivePreserveInts(k.asJSON, into); err != nil {
		k.Bad("spec", err.Error())
		return false
	}
	return true
}

// unmapped calls ignore for each field of the stage that is set and that no rule can have.
func (s *kwokStage) unmapped(ignore func(path, why string)) {
	for _, f := range []struct {
		path string
		set  bool
	}{
		{"spec.weight", s.Weight > 1}, {"spec.weightFrom", s.WeightFrom != nil}, {"spec.delay.durationFrom", s.Delay.DurationFrom != nil},
		{"spec.delay.jitterDurationFrom", s.Delay.JitterDurationFrom != nil}, {"spec.next.event", s.Next.Event != nil},
		{"spec.next.finalizers", s.Next.Finalizers != nil}, {"spec.next.statusPatchAs", s.Next.StatusPatchAs != nil},
		{"spec.immediateNextStage", s.ImmediateNextStage},
	} {
		if f.set {
			ignore(f.path, "it is not mapped")
		}
	}
}

// template returns the text in which the stage writes a status: its template, and those of its patches of the status. It calls ignore for the other
// patches.
func (s *kwokStage) template(ignore func(path, why string)) string {
	out := s.Next.StatusTemplate
	if sub := s.Next.StatusSubresource; sub != "" && sub != "status" {
		ignore("spec.next.statusTemplate", "only templates of the subresource status are read")
		out = ""
	}
	for i := range s.Next.Patches {
		p, path := &s.Next.Patches[i], fmt.Sprintf("spec.next.patches[%d]", i)
		switch {
		case p.Subresource != "status":
			ignore(path, "only patches of the subresource status are read")
			continue
		case p.Root != "" && p.Root != "status":
			ignore(path+".root", "only patches of the status are read")
			continue
		case p.Type == "json":
			ignore(path+".type", "only patches of the types merge and strategic are read")
			continue
		}
		if p.Impersonation != nil {
			ignore(path+".impersonation", "it is not mapped")
		}
		out += "\n" + p.Template
	}
	return out
}
