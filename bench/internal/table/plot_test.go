package table

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

func TestPlot(t *testing.T) {
	t.Parallel()
	for name, series := range map[string][]Series{
		"none": nil, "empty": {{Name: "a"}},
		"two": {{Name: "upstream's <kubelet>", Times: []float64{17, 16, 18}}, {Name: "wherry", Times: []float64{1, 5, 9}}},
	} {
		svg := Plot("100 pods & one node", "seconds", series)
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
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s: %s", name, svg)
		}
		for _, s := range series {
			if got := strings.Count(svg, "H"); len(s.Times) > 0 && got != 6 {
				t.Errorf("%s: %d steps, want one per time", name, got)
			}
		}
	}
}

func TestNiceStep(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]float64{0: 1, 0.03: 0.05, 1: 1, 1.1: 2, 2.3: 5, 7: 10, 60: 100} {
		if got := niceStep(v); got < want*0.999 || got > want*1.001 {
			t.Errorf("niceStep(%v) = %v, want %v", v, got, want)
		}
	}
}
