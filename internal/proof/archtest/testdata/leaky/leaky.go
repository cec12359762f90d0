// Package leaky exports types of other packages in every possible way. The test of the public API reads it. Nothing imports it.
package leaky

import "github.com/wherry-node/wherry/internal/core/pod"

// Constant has an internal type.
const Constant = pod.SourceNone

// Variable contains an internal type.
var Variable = map[string][]*pod.Ref{}

// Alias is an alias of an internal type.
type Alias = pod.Ref

// Func has a parameter of an internal type.
func Func(func(...pod.Ref)) {}

// Generic has a constraint with an internal type.
type Generic[T interface{ pod.Ref | string }] struct{}

// Interface has a method with an internal type.
type Interface interface{ Method() <-chan pod.Ref }

// Embeds embeds an internal type.
type Embeds struct{ pod.Ref }

// Struct has internal types in a field and in a method.
type Struct struct {
	Callback func() pod.Ref
	Deep     struct{ In [2]Box[pod.Ref] }
	Shut     Shut
	unseen   pod.Ref
}

// Method returns an unexported field.
func (s *Struct) Method() pod.Ref { return s.unseen }

// Box has no internal type.
type Box[T any] struct{ In T }

// Shut has no visible internal type.
type Shut struct{ hidden }

type hidden struct{ ref pod.Ref }

func (h hidden) see() string { return h.ref.Name }

// Seen calls an unexported method.
func (s Shut) Seen() string { return s.see() }

// Promoted has the exported methods of its embedded type.
type Promoted struct{ *embedded }

type embedded struct{}

// Returns returns an internal type.
func (*embedded) Returns() (r pod.Ref) { return r }
