package strict_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/strict"
)

type inner struct {
	Name  string            `json:"name"`
	Flag  *bool             `json:"flag,omitempty"`
	Count int8              `json:"count"`
	Share float64           `json:"share"`
	Size  resource.Quantity `json:"size"`
}

type inlined struct {
	Kind string `json:"kind"`
}

type outer struct {
	inlined `json:",inline"`
	List    []inner          `json:"list"`
	Map     map[string]inner `json:"map"`
	Bytes   []byte           `json:"bytes"`
	Any     any              `json:"any"`
	Hidden  string           `json:"-"`
	Places  uint16           `json:"places"`
	Wait    metav1.Duration  `json:"wait"`
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`{"kind":"k","list":[{"name":"a","flag":true,"count":-5,"share":0.5,"size":"1Gi"}],"map":{"x":{}},"bytes":"aGk=","any":[{}],"places":7}`: nil,
		`{"kind":null,"list":null}`:              nil,
		`{"lisst":[]}`:                           {`lisst: unknown field; did you mean "list"? [list]`},
		`{"LIST":[]}`:                            {`LIST: unknown field; did you mean "list"? [list]`},
		`{"completelyOther":1}`:                  {`completelyOther: unknown field; remove it []`},
		`{"Hidden":"x","map":{"a.b":{"nam":1}}}`: {`Hidden: unknown field; remove it []`, `map[a.b].nam: unknown field; did you mean "name"? [name]`},
		`{"list":[{"name":1,"flag":"yes","count":200,"share":"x","size":"1Q"},null]}`: {
			`list[0].count: expected a whole number of 8 bits, found 200`, `list[0].flag: expected true or false, found the string "yes"`,
			`list[0].name: expected a string, found the number 1; put it in quotes`, `list[0].share: expected a number, found the string "x"`,
			`list[0].size: "1Q" is no Quantity`, `list[1]: empty item; remove it`},
		`{"list":{},"map":[],"bytes":"%","places":-1}`: {`bytes: not base64`, `list: expected a list, found an object`, `map: expected an object, found a list`,
			`places: expected a positive whole number, found -1`},
		`{"wait":5}`:           {`wait: 5 is no duration: write a string with a number and its unit, such as 30s or 5m`},
		`{"wait":"5 minutes"}`: {`wait: "5 minutes" is no duration: write`},
		`{"wait":"1h30m"}`:     nil,
		`[]`:                   {`: expected an object, found a list`},
		// resource.ParseQuantity works on these for hours, or at least long.
		`{"list":[{"size":"1e-2147483648"},{"size":1e-999999999},{"size":"1E-9999"}],"map":{"a":{"size":"` + strings.Repeat("9", 250_000) + `Ki"}}}`: {
			`list[0].size: "1e-2147483648" is no Quantity: the exponent`, `list[1].size: 1e-999999999 is no Quantity: the exponent`,
			`list[2].size: "1E-9999" is no Quantity: the exponent`, `map[a].size: "999`},
		`{"list":[{"size":"1e999"},{"size":1e-999},{"size":"1E"},{"size":"12e6"},{"size":0.5}]}`: nil,
	} {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		got := strict.Types{}.Check(v, &outer{})
		if len(got) != len(want) {
			t.Errorf("%s:\n%v, want\n%v", text, got, want)
			continue
		}
		for i, p := range got {
			line := p.Path + ": " + p.Detail
			if p.Unknown {
				line += fmt.Sprintf(" [%s]", p.Nearest)
			}
			if !strings.HasPrefix(line, want[i]) {
				t.Errorf("%s: %s, want %s", text, line, want[i])
			}
		}
	}
}

// The test checks that Check returns only 200 problems for a value that has 10,000 unknown fields or 10,000 wrong items.
func TestProblemsAreBounded(t *testing.T) {
	t.Parallel()
	unknown, items := map[string]any{}, make([]any, 10_000)
	for i := range items {
		unknown[fmt.Sprint("x", i)] = true
	}
	for name, v := range map[string]any{"unknown fields": unknown, "empty items": map[string]any{"list": items}} {
		if n := len((strict.Types{}).Check(v, &outer{})); n != 200 {
			t.Errorf("%s: %d problems", name, n)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"evictionHard", "evictionSoft", "maxPods", "cpu"}
	got := map[string]string{}
	for _, name := range []string{"evictionHrad", "MAXPODS", "maxPodz", "gpu", "x", "", strings.Repeat("maxPods", 1<<20)} {
		got[name[:min(len(name), 20)]] = strict.Nearest(name, known)
	}
	if d := cmp.Diff(map[string]string{"evictionHrad": "evictionHard", "MAXPODS": "maxPods", "maxPodz": "maxPods", "gpu": "cpu", "x": "", "": "",
		"maxPodsmaxPodsmaxPod": ""}, got); d != "" {
		t.Error(d)
	}
}
