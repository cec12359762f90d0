package view

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/bands"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/timeline"
	"github.com/wherry-node/wherry/internal/core/why"
)

// These limits bound the data that the console shows for one pod.
const (
	maxSpans   = 40
	maxText    = 300
	maxEntries = 64 // the limit for each list: containers, volumes, conditions and others
)

// Row is one pod in the console's list of pods.
type Row struct {
	UID       string        `json:"uid"`
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Band      timeline.Band `json:"band"`
	Cause     why.Cause     `json:"cause"`
	Level     why.Level     `json:"level"`
	Line      string        `json:"line"`
	Since     time.Time     `json:"since,omitzero"`
	Next      string        `json:"next,omitempty"`
	NextAt    time.Time     `json:"nextAt,omitzero"`
	// Ready is how many of the pod's main containers are ready. Containers is how many main containers it has.
	Ready      int       `json:"ready"`
	Containers int       `json:"containers"`
	Restarts   int       `json:"restarts"`
	Created    time.Time `json:"created,omitzero"`
	Static     bool      `json:"static,omitempty"`
	// Failing are the probes whose last check failed.
	Failing []Probe `json:"failing,omitempty"`
	// Spans are the periods of the pod's life (pulling, running, ready and so on), oldest first. Dropped says that the first ones are
	// missing.
	Spans   []bands.Span `json:"spans"`
	Dropped bool         `json:"dropped,omitempty"`
}

// Probe is a probe whose last check failed.
type Probe struct {
	Container string `json:"container"`
	Kind      string `json:"kind"`
	Times     int    `json:"times"`     // failures in a row
	Threshold int    `json:"threshold"` // the number of failures in a row after which the failure takes effect
	Output    string `json:"output,omitempty"`
}

// Pod is the input of RowOf and DetailOf.
type Pod struct {
	Pod     *v1.Pod // the pod, with its newest status
	Answer  why.Answer
	Records []timeline.Record // oldest first
	Dropped int               // how many older records the timeline has dropped
	Failing []why.FailingProbe
	// UnderWay are the actions in flight; Inspection is a problem with the inspections of the pod, or empty.
	UnderWay   []why.Flight
	Inspection string
}

// RowOf returns the row of a pod.
func RowOf(in *Pod) Row {
	p, a := in.Pod, &in.Answer
	r := Row{
		UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Cause: a.Cause, Level: a.Level, Line: text(a.Line),
		Since: a.Since, Next: text(a.Next), NextAt: a.NextAt, Created: p.CreationTimestamp.Time, Static: pod.IsStatic(p),
		Containers: len(p.Spec.Containers), Failing: probes(in.Failing), Spans: bands.Spans(in.Records), Dropped: in.Dropped > 0,
	}
	for s := range pod.BaseStatuses(&p.Status) {
		r.Restarts += int(s.RestartCount)
	}
	for i := range p.Status.ContainerStatuses {
		if p.Status.ContainerStatuses[i].Ready {
			r.Ready++
		}
	}
	if n := len(r.Spans); n > 0 {
		r.Band = r.Spans[n-1].Band
	}
	if extra := len(r.Spans) - maxSpans; extra > 0 {
		r.Spans, r.Dropped = r.Spans[extra:], true
	}
	for i := range r.Spans {
		r.Spans[i].Why = text(r.Spans[i].Why)
	}
	return r
}

func probes(failing []why.FailingProbe) (out []Probe) {
	for i := range failing[:min(len(failing), maxEntries)] {
		f := &failing[i]
		out = append(out, Probe{Container: f.Container, Kind: f.Kind, Times: f.Times, Threshold: f.Threshold, Output: text(f.Output)})
	}
	return out
}

// text limits the length of a text that a tenant may have chosen, and removes control characters.
func text(s string) string { return pod.TextMax(s, maxText) }
