package yamldoc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/wherry-node/wherry/internal/core/strict"
)

// Document is the state of the check of a file in YAML or JSON: the parsed file, and the problems found so far.
type Document struct {
	Name string // the name of the file
	// Offset is how many lines of the file precede the document.
	Offset int
	// Unknown returns the text, with path, for a field that does not exist. nearest is the path of the most similar field, or "". If Unknown is
	// nil, the text is that of package strict.
	Unknown func(path, nearest string) string
	// Errs are the problems, each with file, line and field.
	Errs []error

	data []byte
	tree *Tree // data with its lines; nil: no problem has needed them yet
}

// maxProblems is how many problems of a document are reported at most.
const maxProblems = 50

// Bad adds a problem with the field at path; "": the whole document.
func (d *Document) Bad(path, text string) {
	if path != "" {
		text = path + ": " + text
	}
	d.add(path, text)
}

func (d *Document) add(path, text string) {
	if len(d.Errs) <= maxProblems { // fail keeps no more, so do not search for the line
		line, _ := d.Find(path)
		d.fail(line, text)
	}
}

// fail adds a problem with a line of the document; 0: unknown.
func (d *Document) fail(line int, text string) {
	switch n := len(d.Errs); {
	case n > maxProblems:
	case n == maxProblems:
		d.Errs = append(d.Errs, fmt.Errorf("%s: more than %d problems in all", d.Name, maxProblems))
	default:
		d.Errs = append(d.Errs, fmt.Errorf("%s: %s", d.where(line), text))
	}
}

// At returns the file and the line of the field at path, or of the nearest parent: "FILE:LINE", or "FILE" if the line is unknown.
func (d *Document) At(path string) string {
	line, _ := d.Find(path)
	return d.where(line)
}

func (d *Document) where(line int) string {
	if line == 0 {
		return d.Name
	}
	return d.Name + ":" + strconv.Itoa(line+d.Offset)
}

// Find returns the line in the document of the field at path, as Tree.Find does.
func (d *Document) Find(path string) (line int, missing string) { return d.lines().Find(path) }

func (d *Document) lines() *Tree {
	if d.tree == nil {
		d.tree, _ = ParseTree(d.data)
		if d.tree == nil { // the lines stay unknown
			d.tree = &Tree{}
		}
	}
	return d.tree
}

// Parse parses data into plain values (maps, slices, strings, json.Numbers), and returns them also as JSON. It keeps data.
func (d *Document) Parse(data []byte) (v any, asJSON []byte, err error) {
	d.data, d.tree = data, nil
	if bytes.IndexByte(data, '&') >= 0 && bytes.IndexByte(data, '*') >= 0 { // otherwise there are no aliases
		if d.tree, err = ParseTree(data); err == nil && d.tree.Expands(maxExpanded) {
			return nil, nil, fmt.Errorf("%s: its aliases expand it to more than %d bytes; write out what they name, or use fewer", d.Name, maxExpanded)
		}
	}
	if err == nil {
		asJSON, err = yaml.YAMLToJSONStrict(data)
	}
	if err == nil {
		v, err = Plain(asJSON)
	}
	if err != nil {
		d.syntax(err)
		return nil, nil, errors.Join(d.Errs...)
	}
	return v, asJSON, nil
}

// maxExpanded bounds the bytes of a document whose aliases are expanded.
const maxExpanded = 10 << 20

// syntax adds the problems of a text that a parser refuses.
func (d *Document) syntax(err error) {
	if strings.Contains(err.Error(), "already set in map") { // only then: the lines cost another pass over the text
		for _, twice := range d.lines().Duplicates(maxProblems + 1) {
			d.fail(twice.Line, twice.Path+": "+twice.Text(d.Offset))
		}
		if len(d.Errs) > 0 {
			return
		}
	}
	for _, f := range Faults(err) {
		d.fail(f.Line, "not valid YAML or JSON: "+f.Text)
	}
}

// Plain decodes JSON into plain values, and keeps each number as it is written.
func Plain(asJSON []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// Fault is what a parser of YAML or JSON refuses.
type Fault struct {
	Line int // 0: unknown
	Text string
}

// Faults returns the faults in the error of a parser, with their lines and in plain words. A parser returns one or several in one text.
func Faults(err error) (out []Fault) {
	for text := range strings.Lines(strings.TrimPrefix(err.Error(), "yaml: ")) {
		text = strings.TrimSpace(text)
		f := Fault{Text: text}
		if rest, ok := strings.CutPrefix(text, "line "); ok {
			number, after, _ := strings.Cut(rest, ": ")
			if line, err := strconv.Atoi(number); err == nil {
				f = Fault{line, after}
			}
		}
		if text != "" && text != "unmarshal errors:" {
			f.Text = plain(f.Text)
			out = append(out, f)
		}
	}
	return out
}

// Decode parses data, which has to be of the API version and kind, and checks that all its fields are fields of the type of file. It decodes data
// into file and into each of others.
func (d *Document) Decode(data []byte, apiVersion, kind string, file any, others ...any) error {
	_, asJSON, err := d.Check(data, apiVersion, kind, file)
	if err != nil {
		return err
	}
	return d.fill(asJSON, append([]any{file}, others...)...)
}

// DecodePlain parses data, which need not have an API version and kind, and checks that all its fields are fields of the type of into.
func (d *Document) DecodePlain(data []byte, into any) error {
	v, asJSON, err := d.Parse(data)
	if err != nil {
		return err
	}
	if err := d.check(v, into); err != nil {
		return err
	}
	return d.fill(asJSON, into)
}

// Check parses data as Decode does, and returns it as plain values and as JSON. It decodes nothing into file.
func (d *Document) Check(data []byte, apiVersion, kind string, file any) (m map[string]any, asJSON []byte, err error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil, fmt.Errorf("%s: the file is empty: write at least apiVersion: %s and kind: %s", d.Name, apiVersion, kind)
	}
	v, asJSON, err := d.Parse(data)
	if err != nil {
		return nil, nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, nil, fmt.Errorf("%s: not a map of fields: write apiVersion: %s, kind: %s and other fields", d.Name, apiVersion, kind)
	}
	if m["apiVersion"] != apiVersion || m["kind"] != kind {
		return nil, nil, fmt.Errorf("%s: apiVersion %v, kind %v: must be %s and %s", d.Name, cmp.Or(m["apiVersion"], "none"), cmp.Or(m["kind"], "none"), apiVersion, kind)
	}
	return m, asJSON, d.check(m, file)
}

// check adds a problem for each field that the type of obj does not have, and for each value of a wrong type.
func (d *Document) check(v, obj any) error {
	for _, p := range (strict.Types{}).Check(v, obj) {
		if !p.Unknown || d.Unknown == nil {
			d.Bad(p.Path, p.Detail)
			continue
		}
		nearest := p.Nearest
		if nearest != "" {
			nearest = p.Path[:strings.LastIndexByte(p.Path, '.')+1] + nearest
		}
		d.add(p.Path, d.Unknown(p.Path, nearest))
	}
	return errors.Join(d.Errs...)
}

func (d *Document) fill(asJSON []byte, into ...any) error {
	for _, one := range into {
		if err := json.Unmarshal(asJSON, one); err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
	}
	return nil
}
