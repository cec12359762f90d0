package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/strict"
)

// MaxBytes is the size limit of one manifest, as in upstream's kubelet.
const MaxBytes = 10 << 20

// Manifest is the content of one file, of one answer from a URL, or of one push request. Errors lists what is wrong in it, up to
// maxErrors; the other fields contain the objects of the documents and list items without errors.
type Manifest struct {
	// Pods have their defaults and are validated. Their annotation pod.AnnotationHash is a hash of the fields in the manifest: comments
	// and layout do not count, and all versions of the agent compute the same hash. Static gives them their UID and name on a node.
	Pods       []*v1.Pod
	ConfigMaps []*v1.ConfigMap
	Secrets    []*v1.Secret
	Errors     []*Error
	// Notes lists the parts of correct objects that Decode left out because an API server had added them.
	Notes []*Error
}

// Err joins all errors; nil if there is none.
func (m *Manifest) Err() error {
	errs := make([]error, len(m.Errors))
	for i, e := range m.Errors {
		errs[i] = e
	}
	return errors.Join(errs...)
}

// Error is one error in a manifest.
type Error struct {
	Manifest string // file or URL
	Line     int    // line number in the manifest, from 1; 0: not known
	Document int    // number of the document in the manifest, from 1
	Object   string // "Pod default/web", or the part of it that is known
	Field    string // "spec.containers[0].image"; "" for the whole document
	Detail   string // what is wrong, and what to do
}

// Error returns a text such as "web.yaml:12: document 2, Pod default/web: spec.containers[0].imagee: unknown field ...".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Manifest)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	fmt.Fprintf(&b, ": document %d", e.Document)
	for _, s := range []string{e.Object, e.Field, e.Detail} {
		if s == "" {
			continue
		}
		if s == e.Object {
			b.WriteString(", " + s)
			continue
		}
		b.WriteString(": " + s)
	}
	return b.String()
}

// Decode reads a manifest: YAML or JSON, one document or many, each a v1 Pod, PodList, List, ConfigMap or Secret. It is
// strict: an unknown or duplicate field, or a value of the wrong type, is an error of that document or list item. It
// never panics and does no IO. Errors contain the name of the manifest.
func Decode(name string, data []byte) *Manifest {
	d := &decoder{name: name, types: strict.Types{}, out: &Manifest{}}
	if len(data) > MaxBytes {
		d.doc = 1
		d.fail(0, "", "", fmt.Sprintf("the manifest has %d bytes, more than %d; split it", len(data), MaxBytes))
		return d.out
	}
	for i, doc := range split(data) {
		d.doc = i + 1
		d.document(doc)
	}
	return d.out
}

// document is one document of a manifest, with the number of lines before it.
type document struct {
	text   []byte
	before int
}

// split cuts a stream into documents at the markers "---" and "..." at the beginning of a line. It leaves out documents that
// contain only comments and directives.
func split(data []byte) []document {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var out []document
	cur, empty := document{}, true
	flush := func() {
		if !empty {
			out = append(out, cur)
		}
	}
	line := 0
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n') + 1
		if end == 0 {
			end = len(data)
		}
		text := data[:end]
		data = data[end:]
		line++
		t := bytes.TrimRight(text, " \t\r\n")
		marker := bytes.Equal(t, []byte("---")) || bytes.HasPrefix(t, []byte("--- ")) || bytes.HasPrefix(t, []byte("---\t"))
		if marker || bytes.Equal(t, []byte("...")) {
			flush()
			cur, empty = document{before: line - 1}, true
			text = append([]byte("   "), text[3:]...) // text on the same line as the marker belongs to the document
			t = bytes.TrimRight(text, " \t\r\n")
		}
		if empty && bytes.HasPrefix(t, []byte("%")) {
			text = []byte("\n")
			t = nil
		}
		if t = bytes.TrimLeft(t, " \t"); len(t) > 0 && t[0] != '#' {
			empty = false
		}
		cur.text = append(cur.text, text...)
	}
	flush()
	return out
}

// decoder reads one manifest.
type decoder struct {
	name  string
	types strict.Types
	out   *Manifest

	doc    int
	before int          // number of lines before the present document
	tree   *yamlv3.Node // the current document, which has the line numbers; nil: not known
}

// maxErrors bounds the errors of one manifest, and the errors of one object.
const maxErrors = 100

// fail adds an error, and cuts long texts in it. After maxErrors errors, it adds one error that says that there are more, and then none.
func (d *decoder) fail(line int, object, at, detail string) {
	switch n := len(d.out.Errors); {
	case n > maxErrors:
		return
	case n == maxErrors:
		line, object, at, detail = 0, "", "", fmt.Sprintf("more than %d errors; correct these first", maxErrors)
	}
	d.out.Errors = append(d.out.Errors, &Error{
		Manifest: d.name, Line: line, Document: d.doc, Object: pod.Text(object), Field: pod.Text(at), Detail: pod.Text(detail)})
}

// failAt adds an error of the field at a path.
func (d *decoder) failAt(at *field.Path, object, detail string) {
	if len(d.out.Errors) <= maxErrors { // fail keeps no more errors, so do not search for the line
		d.fail(d.line(at), object, strict.PathText(at), detail)
	}
}

// document reads one document, or the JSON values that follow one another in it.
func (d *decoder) document(doc document) {
	d.before, d.tree = doc.before, nil
	if t := bytes.TrimSpace(doc.text); t[0] == '{' {
		if d.jsonValues(doc) {
			return
		}
	}
	var tree yamlv3.Node
	if err := yamlv3.Unmarshal(doc.text, &tree); err != nil {
		d.syntax(err)
		return
	}
	d.tree = &tree
	if d.expands(&tree, maxExpansion*len(doc.text)) || d.duplicates(&tree) {
		return
	}
	text, err := yaml.YAMLToJSON(doc.text)
	if err != nil {
		d.syntax(err)
		return
	}
	v, err := generic(text)
	if err != nil {
		d.syntax(err)
		return
	}
	d.object(v, nil)
}

// jsonValues reads a document as JSON. If the document is not JSON, it returns false and changes nothing.
func (d *decoder) jsonValues(doc document) bool {
	dec := json.NewDecoder(bytes.NewReader(doc.text))
	type value struct {
		v      any
		tree   *yamlv3.Node
		before int
	}
	var values []value
	for dec.More() {
		var raw json.RawMessage
		begin := dec.InputOffset()
		if dec.Decode(&raw) != nil {
			return false
		}
		v, err := generic(raw)
		if err != nil {
			return false
		}
		val := value{v: v, before: doc.before + bytes.Count(doc.text[:begin], []byte("\n"))}
		var tree yamlv3.Node
		if yamlv3.Unmarshal(doc.text[begin:dec.InputOffset()], &tree) == nil {
			val.tree = &tree
		}
		values = append(values, val)
	}
	for _, v := range values {
		d.before, d.tree = v.before, v.tree
		if v.tree != nil && d.duplicates(v.tree) {
			continue
		}
		d.object(v.v, nil)
	}
	return true
}

// generic decodes JSON and keeps numbers as they were written.
func generic(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}

// yamlLine finds the line number in a parser's error.
const yamlLine = `line (\d+): `

func (d *decoder) syntax(err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if m := regexp.MustCompile(yamlLine).FindStringSubmatchIndex(text); m != nil {
		n, _ := strconv.Atoi(text[m[2]:m[3]])
		line = d.before + n
		text = text[:m[0]] + text[m[1]:]
	}
	d.fail(line, "", "", "not YAML or JSON: "+text+"; the document is left out")
}

// maxExpansion limits the size that a document may have after its YAML aliases are expanded, as a multiple of the length of its text.
const maxExpansion = 10

// expands reports whether a document with its aliases expanded has more than limit bytes. It measures the tree before
// anything copies it, because a few thousand aliases of one long text would fill the memory.
func (d *decoder) expands(tree *yamlv3.Node, limit int) bool {
	const open = -1 // the size of this node is being computed, so an alias to it would be endless
	sizes := map[*yamlv3.Node]int{}
	var size func(n *yamlv3.Node) int
	size = func(n *yamlv3.Node) int {
		if n.Kind == yamlv3.AliasNode {
			n = n.Alias
		}
		if n.Anchor != "" {
			if known, ok := sizes[n]; ok && known != open {
				return known
			} else if ok {
				return limit + 1
			}
			sizes[n] = open
		}
		sum := 1 + len(n.Value)
		for _, c := range n.Content {
			if sum += size(c); sum > limit {
				sum = limit + 1
				break
			}
		}
		if n.Anchor != "" {
			sizes[n] = sum
		}
		return sum
	}
	if size(tree) <= limit {
		return false
	}
	d.fail(0, "", "", fmt.Sprintf("its aliases expand it to more than %d times its text; write out what they name, or use fewer; the document is left out", maxExpansion))
	return true
}

// duplicates reports whether a mapping has the same key twice.
func (d *decoder) duplicates(tree *yamlv3.Node) bool {
	found := false
	var path []string // the steps to the present node
	var walk func(n *yamlv3.Node, step string)
	walk = func(n *yamlv3.Node, step string) {
		path = append(path, step)
		defer func() { path = path[:len(path)-1] }()
		if n.Kind == yamlv3.MappingNode {
			first := map[string]int{}
			for i := 0; i+1 < len(n.Content); i += 2 {
				k := n.Content[i]
				if line, twice := first[k.Value]; twice && k.Kind == yamlv3.ScalarNode && k.Tag != "!!merge" {
					found = true
					if len(d.out.Errors) <= maxErrors {
						name := strings.TrimPrefix(strings.Join(path, "")+"."+k.Value, ".")
						d.fail(d.before+k.Line, "", name, fmt.Sprintf("duplicate field, it is in line %d already; remove one", d.before+line))
					}
				}
				first[k.Value] = k.Line
				walk(n.Content[i+1], "."+k.Value)
			}
			return
		}
		for i, c := range n.Content {
			step := ""
			if n.Kind == yamlv3.SequenceNode {
				step = fmt.Sprintf("[%d]", i)
			}
			walk(c, step)
		}
	}
	walk(tree, "")
	return found
}

// object reads one object, or the items of a list.
func (d *decoder) object(v any, at *field.Path) {
	m, ok := v.(map[string]any)
	if !ok {
		d.failAt(at, "", "not an object: a manifest has apiVersion, kind, metadata and spec")
		return
	}
	d.kind(m, at, "")
}

// kind reads the object m, of the kind that m names. If m names none, because it is an item of a list, its kind is fallback.
func (d *decoder) kind(m map[string]any, at *field.Path, fallback string) {
	version, _ := m["apiVersion"].(string)
	kind, _ := m["kind"].(string)
	if kind == "" && version == "" && fallback != "" {
		version, kind = "v1", fallback
		m["apiVersion"], m["kind"] = version, kind
	}
	if version != "v1" {
		d.wrongKind(version, kind, at)
		return
	}
	switch kind {
	case "List", "PodList", "ConfigMapList", "SecretList":
		d.list(m, at, strings.TrimSuffix(kind, "List"))
	case "Pod":
		p := &v1.Pod{}
		served := unserve(m)
		if object, ok := d.into(m, p, at); ok {
			for _, note := range leaveOut(p, served) {
				d.out.Notes = append(d.out.Notes, &Error{Manifest: d.name, Line: d.line(at), Document: d.doc, Object: object, Detail: note})
			}
			d.pod(p, m, object, at)
		}
	case "ConfigMap":
		c := &v1.ConfigMap{}
		if object, ok := d.into(m, c, at); ok && d.valid(validateConfigMap(c), object, at) {
			c.Namespace = namespaceOf(c.Namespace)
			d.out.ConfigMaps = append(d.out.ConfigMaps, c)
		}
	case "Secret":
		s := &v1.Secret{}
		if object, ok := d.into(m, s, at); ok && d.valid(validateSecret(s), object, at) {
			s.Namespace = namespaceOf(s.Namespace)
			defaultSecret(s)
			d.out.Secrets = append(d.out.Secrets, s)
		}
	default:
		d.wrongKind(version, kind, at)
	}
}

func (d *decoder) wrongKind(version, kind string, at *field.Path) {
	const known = "a node runs v1 Pod, PodList, List, ConfigMap and Secret"
	switch {
	case kind == "":
		d.failAt(at.Child("kind"), "", "missing; "+known)
	case version == "":
		d.fail(d.line(at.Child("kind")), "", strict.PathText(at.Child("apiVersion")), "missing; write apiVersion: v1")
	default:
		d.failAt(at.Child("kind"), "", fmt.Sprintf("%s %s is nothing that a node runs by itself; %s: write its pod template as a Pod", version, kind, known))
	}
}

func (d *decoder) list(m map[string]any, at *field.Path, itemKind string) {
	for k := range m {
		if k != "apiVersion" && k != "kind" && k != "metadata" && k != "items" {
			d.failAt(at.Child(k), "List", strict.UnknownField(k, []string{"apiVersion", "kind", "metadata", "items"}))
		}
	}
	items, ok := m["items"].([]any)
	if m["items"] != nil && !ok {
		d.failAt(at.Child("items"), "List", "expected a list of objects")
	}
	for i, item := range items {
		here := at.Child("items").Index(i)
		o, ok := item.(map[string]any)
		if !ok {
			d.failAt(here, "", "expected an object")
			continue
		}
		if kind, _ := o["kind"].(string); strings.HasSuffix(kind, "List") {
			d.failAt(here.Child("kind"), "", "a list in a list; make it a document of its own")
			continue
		}
		d.kind(o, here, itemKind)
	}
}

// pod completes and validates one pod.
func (d *decoder) pod(p *v1.Pod, written map[string]any, object string, at *field.Path) {
	ownFields(p)
	SetDefaults(p)
	if !d.valid(validatePod(p), object, at) {
		return
	}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[pod.AnnotationHash] = contentHash(written)
	d.out.Pods = append(d.out.Pods, p)
}

// contentHash returns a hash of the fields in a manifest; their order does not count.
func contentHash(v any) string {
	text, err := json.Marshal(v)
	if err != nil { // never: the value was decoded from JSON
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// into reads m into the API type that obj points to, or reports all errors that prevent it.
func (d *decoder) into(m map[string]any, obj any, at *field.Path) (object string, ok bool) {
	object = nameOf(m)
	if problems := d.types.Check(m, obj); len(problems) > 0 {
		for _, p := range problems {
			d.failAt(under(at, p.Path), object, p.Detail)
		}
		return object, false
	}
	text, err := json.Marshal(m)
	if err == nil {
		err = json.Unmarshal(text, obj)
	}
	if err != nil {
		d.failAt(at, object, err.Error())
		return object, false
	}
	return object, true
}

// valid adds the errors that a validation of an object found. It returns true if there are none.
func (d *decoder) valid(errs field.ErrorList, object string, at *field.Path) bool {
	for _, e := range errs {
		d.failAt(under(at, e.Field), object, e.ErrorBody())
	}
	return len(errs) == 0
}

// nameOf returns the kind and name of an object as people write them.
func nameOf(m map[string]any) string {
	kind, _ := m["kind"].(string)
	meta, _ := m["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	ns, _ := meta["namespace"].(string)
	if name == "" {
		return kind
	}
	return strings.TrimSpace(kind + " " + namespaceOf(ns) + "/" + name)
}

func namespaceOf(ns string) string {
	if ns == "" {
		return v1.NamespaceDefault
	}
	return ns
}
