package pod

import (
	"maps"
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

// String returns the form used in logs: namespace/name(uid).
func (r Ref) String() string {
	return r.Namespace + "/" + r.Name + "(" + string(r.UID) + ")"
}

// FullName returns name_namespace. Two pods with the same full name must never run on a node at the same time.
func (r Ref) FullName() string { return r.Name + "_" + r.Namespace }

// Plausible reports whether a Ref can be a pod's: it has a UID, and none of its parts can lead out of a directory when used as a
// file name. Code that reads references from outside must drop implausible ones, because the parts become paths, which the agent
// removes as root.
func (r Ref) Plausible() bool {
	return r.UID != "" && PathSegment(string(r.UID)) && PathSegment(r.Namespace) && PathSegment(r.Name)
}

// PathSegment reports whether it is safe to join a name to the path of a directory, because the result stays within the directory. It
// returns true for the empty name.
func PathSegment(s string) bool { return s != "." && s != ".." && !strings.ContainsAny(s, "/\x00") }

// Source says from where a pod came to this node.
type Source uint8

// The sources of pods. Zero means that no source is known (an orphan found in the runtime).
const (
	SourceNone Source = iota
	SourceAPI
	SourceFile
	SourceURL
	SourcePush
)

// These annotations mark where a pod came from; other tools of Kubernetes use them too. A static pod carries AnnotationSource and
// AnnotationHash; its mirror in the API carries AnnotationMirror.
const (
	AnnotationSource = "kubernetes.io/config.source"
	AnnotationHash   = "kubernetes.io/config.hash"
	AnnotationSeen   = "kubernetes.io/config.seen"
	AnnotationMirror = "kubernetes.io/config.mirror"
)

// String returns the value of AnnotationSource.
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

// IsStatic reports whether a pod is owned by the node rather than by the API server. Use it only for pods that From returned: in
// an object from the API, any user may have written the annotation.
func IsStatic(p *v1.Pod) bool {
	src := p.Annotations[AnnotationSource]
	return src != "" && src != SourceAPI.String()
}

// IsMirror reports whether an API object claims to be a mirror of a static pod. Anybody who may create pods can make that claim,
// so it gives a pod no rights: no agent runs such a pod, and this one deletes it unless it mirrors a static pod of this node.
func IsMirror(p *v1.Pod) bool {
	_, ok := p.Annotations[AnnotationMirror]
	return ok
}

// Mirrors reports whether mirror was made for the present version of static, and not for an earlier version of its manifest.
func Mirrors(mirror, static *v1.Pod) bool {
	return mirror.Annotations[AnnotationMirror] == static.Annotations[AnnotationHash]
}

// StaticSuffix returns the suffix of the names of all pods on a node that come from another source than the API: "the node
// hostname with a leading hyphen", in lower case as names of the API are.
func StaticSuffix(node string) string { return "-" + strings.ToLower(node) }

// annotationPrefix is the prefix of the annotations by which agents mark where a pod came from.
const annotationPrefix = "kubernetes.io/config."

// From returns the pod p, which came from the source src, with correct annotations about its source. IsStatic relies on them. From drops
// such annotations from pods of the API, because anybody who creates a pod can write them. On other pods it sets AnnotationSource to src.
// It does not modify p, and returns p itself if nothing has to change.
func From(src Source, p *v1.Pod) *v1.Pod {
	foreign := func(key, value string) bool {
		if src == SourceAPI || src == SourceNone {
			return strings.HasPrefix(key, annotationPrefix)
		}
		return key == AnnotationMirror || key == AnnotationSource && value != src.String()
	}
	right := src == SourceAPI || src == SourceNone || p.Annotations[AnnotationSource] != ""
	for key, value := range p.Annotations {
		right = right && !foreign(key, value)
	}
	if right {
		return p
	}
	out := *p
	out.Annotations = maps.Clone(p.Annotations)
	maps.DeleteFunc(out.Annotations, foreign)
	if src != SourceAPI && src != SourceNone {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[AnnotationSource] = src.String()
	}
	return &out
}
