package yamldoc

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

// Faults that people make in YAML are named in plain words, with the line.
func TestFaultsArePlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a: b: c\n":           "file: not valid YAML or JSON: a colon is where none may be",
		"a: 1\n  b: 2\n":      "a colon is where none may be",
		"a:\n  b: 1\n c: 2\n": "a field is not indented like its neighbours",
		"a: {b: 1\n":          "a { is not closed, or a comma is missing",
		"a: [1, 2\nb: 3\n":    "is not closed, or a comma is missing",
		"a: \"b\n":            "a quote or bracket is not closed",
		"a:\n\tb: 1\n":        "a value begins with a tab, a % or another character that needs quotes: indent with spaces",
		"a: %b\n":             "a value begins with a tab, a % or another character that needs quotes",
		"a: \"\\d\"\n":        "use single quotes",
		"a: 1\nb\nc: 2\n":     "a field has no colon",
		"a: ]\n":              "a value is missing, or a bracket is where none may be",
		"a: \x01\n":           "a control character is in the text",
		"a: *nobody\n":        "unknown anchor 'nobody' referenced",
	} {
		d := Document{Name: "file"}
		_, _, err := d.Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %q, want %q in it", text, err, want)
		}
		for _, of := range []string{"yaml: ", "did not find", "could not find", "in this context", "token", "node content"} {
			if err != nil && strings.Contains(err.Error(), of) {
				t.Errorf("%q: error %q has the parser's words", text, err)
			}
		}
	}
}

// What cannot be decoded from JSON is said in plain words: no types of Go, no names of a library.
func TestJSONText(t *testing.T) {
	t.Parallel()
	var into struct {
		At   int `json:"at"`
		Deep struct {
			Names []string `json:"names"`
		} `json:"deep"`
	}
	for text, want := range map[string]string{
		``:                          "the text ends in the middle of a value",
		`{"at":1`:                   "the text ends in the middle of a value",
		`{"at":x}`:                  "it is not JSON from byte 7 on",
		`{"at":"x"}`:                "the field at does not take this string",
		`{"deep":{"names":[true]}}`: "the field deep.names does not take this bool",
		`[]`:                        "it must not be a value like this: array",
	} {
		if got := JSONText(json.Unmarshal([]byte(text), &into)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	d := json.NewDecoder(strings.NewReader(`{"size":1}`))
	d.DisallowUnknownFields()
	for _, c := range []struct {
		err  error
		want string
	}{
		{io.EOF, "there is no text"}, {io.ErrUnexpectedEOF, "the text ends in the middle of a value"},
		{d.Decode(&into), `unknown field "size"`}, {errors.New("connection reset"), "connection reset"},
	} {
		if got := JSONText(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
