package traces

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
	"time"
)

// span returns a span between two numbers of milliseconds.
func span(id, parent, service, name string, begin, end int) Span {
	at := func(ms int) time.Time { return time.Unix(100, 0).Add(time.Duration(ms) * time.Millisecond) }
	return Span{Trace: "t", ID: id, Parent: parent, Service: service, Name: name, Begin: at(begin), End: at(end)}
}

// Each span is below the span that caused it, and short spans of other services are counted, not drawn.
func TestOrder(t *testing.T) {
	t.Parallel()
	rows := order([]Span{
		span("5", "3", "containerd", "a read", 41, 42), span("6", "5", "containerd", "another", 41, 42), span("4", "3", "containerd", "unpack", 42, 60),
		span("3", "2", "kubelet", "PullImage", 40, 61), span("2", "1", "kubelet", "pull-image", 40, 61), span("7", "1", "kubelet", "set-up", 0, 3),
		span("1", "", "kubelet", "pod start", 0, 100), span("8", "9", "kubelet", "of a lost parent", 99, 100),
		span("r1", "r2", "kubelet", "ring", 1, 2), span("r2", "r1", "kubelet", "ring", 1, 2),
	}, 5*time.Millisecond)
	var got []string
	for _, r := range rows {
		line := strings.Repeat("  ", r.depth) + r.span.Name
		if r.left > 0 {
			line += " +2"
		}
		got = append(got, line)
	}
	want := "pod start\n  set-up\n  pull-image\n    PullImage +2\n      unpack\nof a lost parent"
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// The picture is well-formed whatever the spans say.
func TestWaterfall(t *testing.T) {
	t.Parallel()
	long := span("1", "", "kubelet", strings.Repeat("<&>\x00ü", 100), 0, 1234)
	long.Failed, long.Attributes = true, map[string]string{"k8s.container.name": "main"}
	for name, spans := range map[string][]Span{
		"none": nil, "one of no time": {span("1", "", "kubelet", "pod start", 0, 0)}, "one that ends before it begins": {span("1", "", "a", "b", 5, 1)},
		"long names": {long, span("2", "1", `<"containerd">`, "RunPodSandbox", 1, 900)},
	} {
		svg := Waterfall("a pod & its start", spans, 0)
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			_, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: not well-formed: %v\n%s", name, err, svg)
			}
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") || strings.Count(svg, "<rect") != 1+len(spans) {
			t.Errorf("%s: %s", name, svg)
		}
	}
}

func TestNiceStep(t *testing.T) {
	t.Parallel()
	for whole, want := range map[time.Duration]time.Duration{
		time.Millisecond: 100 * time.Microsecond, 350 * time.Millisecond: 50 * time.Millisecond, time.Second: 100 * time.Millisecond, 12 * time.Second: 2 * time.Second,
	} {
		if got := niceStep(whole); got != want {
			t.Errorf("%v: %v, want %v", whole, got, want)
		}
	}
}
