// Package leaky names types of other packages in each way that an exported name can. The test of the public API reads it; nothing
// imports it.
package leaky

import "github.com/wherry-node/wherry/internal/core/pod"

// Constant has such a type.
const Constant = pod.SourceNone

// Variable has it below others.
var Variable = map[string][]*pod.Ref{}

// Alias is such a type under another name.
type Alias = pod.Ref

// Func takes one.
func Func(func(...pod.Ref)) {}

// Generic is bound by one.
type Generic[T interface{ pod.Ref | string }] struct{}

// Interface has a method with one.
type Interface interface{ Method() <-chan pod.Ref }

// Embeds is one.
type Embeds struct{ pod.Ref }

// Struct has one in a field and in a method.
type Struct struct {
	Callback func() pod.Ref
	Deep     struct{ In [2]Box[pod.Ref] }
	Shut     Shut
	unseen   pod.Ref
}

// Method returns the field that nobody sees.
func (s *Struct) Method() pod.Ref { return s.unseen }

// Box is nobody's.
type Box[T any] struct{ In T }

// Shut shows none.
type Shut struct{ hidden }

type hidden struct{ ref pod.Ref }

func (h hidden) see() string { return h.ref.Name }

// Seen calls what nobody sees.
func (s Shut) Seen() string { return s.see() }

// Promoted has the exported methods of what it embeds.
type Promoted struct{ *embedded }

type embedded struct{}

// Returns one.
func (*embedded) Returns() (r pod.Ref) { return r }
