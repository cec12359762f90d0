package yamldoc

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type shapes struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Size       int            `json:"size"`
	Names      []string       `json:"names"`
	Places     map[string]int `json:"places"`
}

const head = "apiVersion: example/v1\nkind: Shapes\n"

func decode(text string) (shapes, error) {
	d := Document{Name: "s.yaml", Offset: 10}
	var s shapes
	err := d.Decode([]byte(text), "example/v1", "Shapes", &s)
	return s, err
}

func TestDecode(t *testing.T) {
	t.Parallel()
	d := Document{Name: "s.yaml"}
	var s shapes
	var plain map[string]any
	if err := d.Decode([]byte(head+"size: 9007199254740993\nnames: [a]\n"), "example/v1", "Shapes", &s, &plain); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(shapes{APIVersion: "example/v1", Kind: "Shapes", Size: 9007199254740993, Names: []string{"a"}}, s); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if len(plain) != 4 {
		t.Errorf("the second value: %v", plain)
	}
	m, _, err := d.Check([]byte(head+"size: 9007199254740993\n"), "example/v1", "Shapes", &s)
	if err != nil || m["size"] != json.Number("9007199254740993") {
		t.Errorf("a number is not kept: %v, %v", m["size"], err)
	}
}

// Each error of a document names the file, the line and the field. The test adds ten lines before the document.
func TestErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		" \n":                              "s.yaml: the file is empty: write at least apiVersion: example/v1 and kind: Shapes",
		"# nothing":                        "s.yaml: not a map of fields: write apiVersion: example/v1, kind: Shapes and other fields",
		"[]":                               "s.yaml: not a map of fields: write apiVersion: example/v1, kind: Shapes and other fields",
		"kind: Shapes":                     "s.yaml: apiVersion none, kind Shapes: must be example/v1 and Shapes",
		head + "kind: Shapes\nkind: X\n":   "s.yaml:13: kind: duplicate field, it is in line 12 already; remove one\ns.yaml:14: kind: duplicate field, it is in line 13 already; remove one",
		head + "siez: 1\nsize: x\n":        "s.yaml:13: siez: unknown field; did you mean \"size\"?\ns.yaml:14: size: expected a whole number, found the string \"x\"",
		head + "places:\n  a.b: 1\n  c: -": "s.yaml:15: not valid YAML or JSON: an entry of a list is where none may be: begin it in a line of its own",
		head + "places:\n  a.b: x\n":       "s.yaml:14: places[a.b]: expected a whole number, found the string \"x\"",
		head + "names:\n- a\n- 1\n":        "s.yaml:15: names[1]: expected a string, found the number 1; put it in quotes",
	} {
		if _, err := decode(text); err == nil || err.Error() != want {
			t.Errorf("%q:\n%v, want\n%s", text, err, want)
		}
	}
	d := Document{Name: "s.yaml", Unknown: func(path, nearest string) string { return path + " is new, " + nearest + " is not" }}
	if err := d.DecodePlain([]byte("a: 1\nsize: {siez: 1}"), &struct {
		Size shapes `json:"size"`
	}{}); err == nil || err.Error() != "s.yaml:1: a is new,  is not\ns.yaml:2: size.siez is new, size.size is not" {
		t.Errorf("with Unknown: %v", err)
	}
	d = Document{Name: "s.yaml"}
	if err := d.DecodePlain([]byte("\n- a\n"), &shapes{}); err == nil || err.Error() != "s.yaml:2: expected an object, found a list" {
		t.Errorf("a list: %v", err)
	}
}

// A hostile document has a bounded number of problems, and its aliases cannot fill the memory.
func TestDocumentIsBounded(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{"unknown": "k%d: 1\n", "twice": "size: 1 #%d\n", "wrong": "names: [%d]\n"} {
		text := head
		if name == "wrong" {
			text += "names:\n"
			line = "- %d\n"
		}
		for i := range 1000 {
			text += fmt.Sprintf(line, i)
		}
		_, err := decode(text)
		if n := strings.Count(fmt.Sprint(err), "\n"); n != maxProblems || !strings.HasSuffix(err.Error(), "s.yaml: more than 50 problems in all") {
			t.Errorf("%s: %d problems: %.300v", name, n+1, err)
		}
	}
	long := strings.Repeat("x", 100_000)
	bomb := func(aliases int) string {
		return head + "names:\n- &a " + long + "\n" + strings.Repeat("- *a\n", aliases)
	}
	if s, err := decode(bomb(20)); err != nil || len(s.Names) != 21 || s.Names[20] != long {
		t.Errorf("20 aliases: %d names, %v", len(s.Names), err)
	}
	for name, text := range map[string]string{"many aliases": bomb(1000), "an endless alias": head + "names: &a [*a]\n"} {
		if _, err := decode(text); err == nil || !strings.Contains(err.Error(), "aliases expand it to more than 10485760 bytes") {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}

// Whatever a file contains, Decode does not panic, and each error has a text.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{head, head + "names: [a]\n", "{", "a: &a [*a]\n", head + "places: {a: 1, a: 2}\n", "\"a.b\": {c: 1}\n", "- - - a: 1", "? [x]\n: y\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, part := range Split(data) {
			d := Document{Name: "f", Offset: part.Before}
			var s shapes
			if err := d.Decode(part.Text, "example/v1", "Shapes", &s); err != nil && err.Error() == "" {
				t.Error("an error without a text")
			}
			d.Bad("places[a].b", "x")
		}
	})
}
