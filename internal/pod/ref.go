package pod

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Ref names one pod. The UID is the identity; namespace and name are for people.
type Ref struct {
	Namespace string
	Name      string
	UID       types.UID
}

// RefOf returns the Ref of an API object.
func RefOf(p *v1.Pod) Ref { return Ref{Namespace: p.Namespace, Name: p.Name, UID: p.UID} }

// String is the form used in logs: namespace/name(uid).
func (r Ref) String() string {
	return r.Namespace + "/" + r.Name + "(" + string(r.UID) + ")"
}

// FullName is the name that two pods of one node must never share while either runs: name_namespace.
func (r Ref) FullName() string { return r.Name + "_" + r.Namespace }

// Plausible reports whether a Ref can be a pod's: it has a UID, and none of its parts leads out of a directory that bears
// its name. Whoever takes references from outside drops the others: the parts become paths, which are removed as root.
func (r Ref) Plausible() bool {
	return r.UID != "" && PathSegment(string(r.UID)) && PathSegment(r.Namespace) && PathSegment(r.Name)
}

// PathSegment reports whether a name stays where it is joined to a path. The empty name does.
func PathSegment(s string) bool { return s != "." && s != ".." && !strings.ContainsAny(s, "/\x00") }

// Source says who wants a pod to run here.
type Source uint8

// The sources of pods. Zero means that no source is known (an orphan found in the runtime).
const (
	SourceNone Source = iota
	SourceAPI
	SourceFile
	SourceURL
	SourcePush
)

// Annotations by which the field marks where a pod came from. A static pod carries AnnotationSource and
// AnnotationHash; its mirror in the API carries AnnotationMirror.
const (
	AnnotationSource = "kubernetes.io/config.source"
	AnnotationHash   = "kubernetes.io/config.hash"
	AnnotationSeen   = "kubernetes.io/config.seen"
	AnnotationMirror = "kubernetes.io/config.mirror"
)

// String is the value of AnnotationSource.
func (s Source) String() string {
	switch s {
	case SourceAPI:
		return "api"
	case SourceFile:
		return "file"
	case SourceURL:
		return "http"
	case SourcePush:
		return "push"
	case SourceNone:
		return "none"
	}
	return "unknown"
}

// IsStatic reports whether a pod is owned by the node rather than by the API server.
func IsStatic(p *v1.Pod) bool {
	src := p.Annotations[AnnotationSource]
	return src != "" && src != SourceAPI.String()
}

// IsMirror reports whether an API object only mirrors a static pod.
func IsMirror(p *v1.Pod) bool {
	_, ok := p.Annotations[AnnotationMirror]
	return ok
}

// StaticSuffix is what ends the name of every pod that a node has from another source than the API: "the node hostname with
// a leading hyphen", in lower case as names of the API are.
func StaticSuffix(node string) string { return "-" + strings.ToLower(node) }
