package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/strict"
	"github.com/wherry-node/wherry/internal/core/yamldoc"
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
	for i, doc := range yamldoc.Split(data) {
		d.doc = i + 1
		d.document(doc)
	}
	return d.out
}

// decoder reads one manifest.
type decoder struct {
	name  string
	types strict.Types
	out   *Manifest

	doc    int
	before int           // number of lines before the present document
	tree   *yamldoc.Tree // the present document, which has the line numbers; nil: not known
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
func (d *decoder) document(doc yamldoc.Part) {
	d.before, d.tree = doc.Before, nil
	if bytes.HasPrefix(bytes.TrimSpace(doc.Text), []byte("{")) && d.jsonValues(doc) {
		return
	}
	tree, err := yamldoc.ParseTree(doc.Text)
	if err != nil {
		d.syntax(err)
		return
	}
	d.tree = tree
	if tree.Expands(maxExpansion * len(doc.Text)) {
		d.fail(0, "", "", fmt.Sprintf("its aliases expand it to more than %d times its text; write out what they name, or use fewer; the document is left out", maxExpansion))
		return
	}
	if d.duplicates() {
		return
	}
	text, err := yaml.YAMLToJSON(doc.Text) // not strict, so that a field may override one of a merge key (<<)
	if err != nil {
		d.syntax(err)
		return
	}
	v, err := yamldoc.Plain(text)
	if err != nil {
		d.syntax(err)
		return
	}
	d.object(v, nil)
}

// jsonValues reads a document as JSON. If the document is not JSON, it returns false and changes nothing.
func (d *decoder) jsonValues(doc yamldoc.Part) bool {
	dec := json.NewDecoder(bytes.NewReader(doc.Text))
	type value struct {
		v      any
		tree   *yamldoc.Tree
		before int
	}
	var values []value
	for dec.More() {
		var raw json.RawMessage
		begin := dec.InputOffset()
		if dec.Decode(&raw) != nil {
			return false
		}
		v, err := yamldoc.Plain(raw)
		if err != nil {
			return false
		}
		tree, _ := yamldoc.ParseTree(doc.Text[begin:dec.InputOffset()]) // nil if that fails: then the lines are unknown
		values = append(values, value{v, tree, doc.Before + bytes.Count(doc.Text[:begin], []byte("\n"))})
	}
	for _, v := range values {
		d.before, d.tree = v.before, v.tree
		if !d.duplicates() {
			d.object(v.v, nil)
		}
	}
	return true
}

func (d *decoder) syntax(err error) {
	for _, f := range yamldoc.Faults(err) {
		line := 0
		if f.Line > 0 {
			line = d.before + f.Line
		}
		d.fail(line, "", "", "not YAML or JSON: "+f.Text+"; the document is left out")
	}
}

// maxExpansion limits the size that a document may have after its YAML aliases are expanded, as a multiple of the length of its text.
const maxExpansion = 10

// duplicates reports whether a mapping of the present document has the same key twice, and adds an error for each.
func (d *decoder) duplicates() bool {
	all := d.tree.Duplicates(maxErrors + 1)
	for _, twice := range all {
		d.fail(d.before+twice.Line, "", twice.Path, twice.Text(d.before))
	}
	return len(all) > 0
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
