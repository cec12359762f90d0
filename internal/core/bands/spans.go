package bands

import (
	"time"

	"github.com/wherry-node/wherry/internal/core/timeline"
)

// Span is one stripe in the picture of a pod's life: a period in which the pod stays in the same band, for example pulling or ready.
type Span struct {
	Band timeline.Band `json:"band"`
	From time.Time     `json:"from"`
	// To is the end; zero: the span goes on.
	To time.Time `json:"to,omitzero"`
	// Why is the reason of the last decision of the span, or the error that led to it.
	Why string `json:"why,omitempty"`
}

// tooShort is the minimum length of a span. Spans leaves out a shorter span, for example the check of an image that is present, and
// extends the span before it, or else the one after it. It never leaves out failing or failed spans, nor the last span.
const tooShort = 25 * time.Millisecond

// Spans turns the recorded decisions about one pod into the stripes of its picture, oldest first.
func Spans(records []timeline.Record) []Span {
	var out []Span
	failed := "" // the error of the last action that ended; empty if it succeeded
	for i := range records {
		r := &records[i]
		if r.Kind == timeline.KindEnded {
			failed = r.Error
		}
		if r.Band == timeline.BandNone {
			continue
		}
		why := r.Why
		if r.Band == timeline.BandFailing && failed != "" {
			why = failed
		}
		if n := len(out); n > 0 && out[n-1].Band == r.Band {
			out[n-1].Why = why
			continue
		}
		out = closed(out, r.At)
		if n := len(out); n > 0 && out[n-1].Band == r.Band { // a short span was removed, and the one before it has the band of r
			out[n-1].To, out[n-1].Why = time.Time{}, why
			continue
		}
		from := r.At
		if n := len(out); n > 0 {
			from = out[n-1].To
		} else if len(records) > 0 && i > 0 && records[0].Band != timeline.BandNone {
			from = records[0].At // all earlier spans were too short
		}
		out = append(out, Span{Band: r.Band, From: from, Why: why})
	}
	return out
}

// closed ends the last span at the time at. A span that is shorter than tooShort is removed instead, and the span before it is extended.
// Failing and failed spans are kept whatever their length.
func closed(out []Span, at time.Time) []Span {
	n := len(out)
	if n == 0 {
		return out
	}
	last := &out[n-1]
	if at.Sub(last.From) < tooShort && last.Band != timeline.BandFailing && last.Band != timeline.BandFailed {
		if n > 1 {
			out[n-2].To = at
		}
		return out[:n-1]
	}
	last.To = at
	return out
}
