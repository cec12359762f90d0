package console

import (
	"encoding/json"
	"fmt"
)

// These limits bound the memory that a Board uses.
const (
	maxDocument  = 256 << 10 // bytes
	maxDocuments = 20_000
)

// Board holds the documents that viewers see, each under a key. It is not safe for concurrent use.
type Board struct {
	docs    map[string]*document
	version uint64 // increases with each change of a document
	round   uint64 // increases with each call of Source.Look
}

type document struct {
	body    []byte // JSON without line breaks
	version uint64 // the version of the board when the document last changed
	round   uint64 // the round in which the document was last put or kept
}

// Put stores a document under key. If JSON cannot express the value, or the JSON is too large, the document contains the problem
// instead.
func (b *Board) Put(key string, value any) {
	body, err := json.Marshal(value)
	switch {
	case err != nil:
		body, _ = json.Marshal(map[string]string{"problem": err.Error()})
	case len(body) > maxDocument:
		body, _ = json.Marshal(map[string]string{"problem": fmt.Sprintf("this part of the page has %d bytes, and at most %d are shown", len(body), maxDocument)})
	}
	d := b.docs[key]
	if d == nil {
		if len(b.docs) >= maxDocuments {
			return
		}
		d = &document{}
		b.docs[key] = d
	}
	d.round = b.round
	if string(d.body) != string(body) {
		b.version++
		d.body, d.version = body, b.version
	}
}

// Keep marks the document under key as unchanged in this round. It returns false if there is no such document; the caller must then
// Put it.
func (b *Board) Keep(key string) bool {
	d := b.docs[key]
	if d == nil {
		return false
	}
	d.round = b.round
	return true
}

// sweep removes the documents that the last round neither put nor kept.
func (b *Board) sweep() {
	for key, d := range b.docs {
		if d.round != b.round {
			delete(b.docs, key)
			b.version++
		}
	}
}
